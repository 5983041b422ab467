//! Reads the options of one command from the command line, the environment and the configuration file, in this order.
//!
//! Options conflict only with options of the same origin. A variable or a file that is set for all commands must not break one of them.

use std::env;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use strsim::damerau_levenshtein;

use crate::exit::{self, Failure};
use crate::refused::{Origin, Refused};
use crate::{config, out, store};

/// The variables that `leasehold` reads or sets for commands, without `LEASEHOLD_`.
const KNOWN: [&str; 9] =
    ["BACKEND", "CONFIG", "DESCRIPTION", "KEY", "PREFIX", "TOKEN", "TTL", "VALUE", "WAIT"];

/// Names that other programs use for the address of a store.
const ADDRESSES: [&str; 5] = ["ADDR", "ADDRESS", "SERVER", "STORE", "URL"];

/// Reads the options of this process.
pub(crate) fn read(command: Command) -> Result<Result<ArgMatches, Refused>, Failure> {
    let command = config::apply(without_empty_variables(command))?;
    let matches = match command.clone().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            let origin = origin(&command, &error);
            return Ok(Err(Refused { error, origin }));
        }
    };
    let Some((subcommand, options)) = matches.subcommand() else { return Ok(Ok(matches)) };
    refuse_relative_path(options)?;
    if source(options, "wait") == Some(ValueSource::CommandLine)
        && options.try_get_one("no_wait").ok().flatten() == Some(&true)
    {
        return Err(Failure::usage("--wait and --no-wait cannot be used together"));
    }
    if !url_overrides_prefix(options)? {
        return Ok(Ok(matches));
    }
    let without_prefix = command.mut_subcommand(subcommand, |subcommand| {
        subcommand.mut_arg("prefix", |prefix| {
            prefix.env(Resettable::Reset).default_value(Resettable::Reset)
        })
    });
    Ok(without_prefix.try_get_matches().map_err(|error| Refused { error, origin: None }))
}

/// The origin of a refused value: without it, the value would not be refused.
fn origin(command: &Command, error: &clap::Error) -> Option<Origin> {
    let refused = |error: &clap::Error| match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => Some(option.clone()),
        _ => None,
    };
    let option = refused(error)?;
    let name = option.split(' ').next()?.strip_prefix("--")?.to_owned();
    let is_refused_without = |reset: fn(Arg) -> Arg| {
        let command = command.clone().mut_subcommands(|subcommand| {
            subcommand.mut_args(|arg| if arg.get_long() == Some(&name) { reset(arg) } else { arg })
        });
        let matches = command.try_get_matches();
        matches.is_err_and(|error| refused(&error).as_ref() == Some(&option))
    };
    if !is_refused_without(|arg| arg.default_value(Resettable::Reset)) {
        let (path, _) = config::path()?;
        let source = path.display().to_string();
        return Some(Origin { option, source, code: exit::CONFIGURATION });
    }
    if is_refused_without(|arg| arg.env(Resettable::Reset).default_value(Resettable::Reset)) {
        return None;
    }
    let mut arguments = command.get_subcommands().flat_map(Command::get_arguments);
    let arg = arguments.find(|arg| arg.get_long() == Some(&name))?;
    let source = arg.get_env()?.to_string_lossy().into_owned();
    Some(Origin { option, source, code: exit::USAGE })
}

/// Warns about variables whose names look like a mistake.
pub(crate) fn warn_of_misspelled_variables() {
    for (name, _) in env::vars_os() {
        let Some(suffix) = name.to_str().and_then(|name| name.strip_prefix("LEASEHOLD_")) else {
            continue;
        };
        if let Some(meant) = meant_by(suffix) {
            out::warn(format!("LEASEHOLD_{suffix} has no effect; did you mean LEASEHOLD_{meant}?"));
        }
    }
}

/// The variable that a user may have meant by an unknown one.
fn meant_by(suffix: &str) -> Option<&'static str> {
    let is_known = |known: &str| {
        suffix.strip_prefix(known).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('_') && rest[1..].parse::<u32>().is_ok()
        })
    };
    if KNOWN.into_iter().any(is_known) {
        return None;
    }
    if ADDRESSES.contains(&suffix) {
        return Some("BACKEND");
    }
    KNOWN.into_iter().find(|known| {
        let is_longer = suffix.starts_with(known) || suffix.ends_with(known);
        is_longer || damerau_levenshtein(suffix, known) <= known.len() / 3
    })
}

/// Ignores empty variables, except for the store. A command that should share its locks must not lock a local file.
fn without_empty_variables(command: Command) -> Command {
    command.mut_subcommands(|subcommand| {
        subcommand.mut_args(|arg| {
            let is_empty = |name| env::var_os(name).is_some_and(|value| value.is_empty());
            match arg.get_env() {
                Some(name) if name != "LEASEHOLD_BACKEND" && is_empty(name) => {
                    arg.env(Resettable::Reset)
                }
                _ => arg,
            }
        })
    })
}

/// Whether the URL contains a prefix that takes precedence over the option, because the user was more specific about the URL.
///
/// # Errors
///
/// Fails if both prefixes have the same origin.
fn url_overrides_prefix(options: &ArgMatches) -> Result<bool, Failure> {
    let url = ["store", "url"].into_iter().find_map(|id| {
        let url = options.try_get_one::<String>(id).ok().flatten()?;
        store::has_prefix(url).then(|| rank(source(options, id)))
    });
    let Some(url) = url else { return Ok(false) };
    let prefix = rank(source(options, "prefix"));
    if prefix == url {
        return Err(Failure::usage(
            "the prefix is set both in --prefix and in the URL; remove one of them",
        ));
    }
    Ok(0 < prefix && prefix < url)
}

/// Refuses a relative path from the environment or the configuration file. Commands in different directories would use different files, and
/// not exclude each other.
fn refuse_relative_path(options: &ArgMatches) -> Result<(), Failure> {
    let named = match source(options, "url") {
        Some(ValueSource::EnvVariable) => "LEASEHOLD_BACKEND",
        Some(ValueSource::DefaultValue) => "backend in the configuration file",
        _ => return Ok(()),
    };
    let url = options.get_one::<String>("url").expect("an option with a source has a value");
    let Some(path) = url.strip_prefix("sqlite:") else { return Ok(()) };
    let path = path.strip_prefix("//").unwrap_or(path);
    // The library refuses a URL with a password. The error below would show it.
    if path.is_empty()
        || path.contains('@')
        || path.starts_with(['/', ':', '?'])
        || path.to_ascii_lowercase().starts_with("%2f")
    {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "cannot use {named}: {url} names a different file in each directory; use an absolute path, such as sqlite:/var/lib/locks.db"
    )))
}

fn source(options: &ArgMatches, id: &str) -> Option<ValueSource> {
    options.try_contains_id(id).is_ok_and(|is_there| is_there).then(|| options.value_source(id))?
}

/// A larger number for an origin that takes precedence. 0 for an option that is not given.
fn rank(source: Option<ValueSource>) -> u8 {
    match source {
        None => 0,
        Some(ValueSource::CommandLine) => 3,
        Some(ValueSource::EnvVariable) => 2,
        // From the configuration file.
        Some(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_variables_are_recognised() {
        for suffix in ["BACKENDS", "BACKEND_URL", "BAKCEND", "URL", "STORE"] {
            assert_eq!(meant_by(suffix), Some("BACKEND"), "{suffix}");
        }
        assert_eq!(meant_by("TLL"), Some("TTL"));
        assert_eq!(meant_by("PREFFIX"), Some("PREFIX"));
        for suffix in ["BACKEND", "KEY", "KEY_2", "TOKEN_17", "CLI", "SRC", "CONFORMANCE_LOG"] {
            assert_eq!(meant_by(suffix), None, "{suffix}");
        }
    }
}
