//! The configuration file: values for options that neither the command line nor the environment sets.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Command;

use crate::exit::Failure;

/// The options that a file may set for all subcommands.
const STORE: [&str; 2] = ["backend", "prefix"];

/// The options that a file may set for [`LOCKING`]. Other subcommands have options of the same name that mean something else.
const LOCK: [&str; 9] = [
    "description",
    "kill-after",
    "lock-delay",
    "max-hold",
    "min-hold",
    "on-asked",
    "on-lost",
    "ttl",
    "wait",
];

/// The subcommands that acquire locks.
const LOCKING: [&str; 3] = ["elect", "hold", "run"];

/// Gives the options of all subcommands the values of the file.
pub(crate) fn apply(command: Command) -> Result<Command, Failure> {
    let Some((path, is_named)) = path() else { return Ok(command) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && !is_named => return Ok(command),
        Err(error) => {
            let origin = if is_named { " (from LEASEHOLD_CONFIG)" } else { "" };
            let message =
                format!("cannot read the configuration file {}{origin}: {error}", path.display());
            return Err(Failure::configuration(message));
        }
    };
    let values = parse(&text, &path)?;
    Ok(command.mut_subcommands(|subcommand| {
        values.iter().fold(subcommand, |subcommand, (name, value)| {
            let is_for = STORE.contains(&&**name) || LOCKING.contains(&subcommand.get_name());
            let has = subcommand.get_arguments().find(|arg| is_for && arg.get_long() == Some(name));
            let Some(id) = has.map(|arg| arg.get_id().clone()) else { return subcommand };
            subcommand.mut_arg(id, |arg| arg.default_value(*value).hide_default_value(true))
        })
    }))
}

/// The file that `LEASEHOLD_CONFIG` names, or the file of this user. Also returns whether it was named.
pub(crate) fn path() -> Option<(PathBuf, bool)> {
    if let Some(path) = env::var_os("LEASEHOLD_CONFIG") {
        return (!path.is_empty()).then(|| (path.into(), true));
    }
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some((folder.join("leasehold").join("config"), false))
}

/// Reads lines like `ttl = 30s`. Messages about mistakes do not show values, because a URL may contain a password.
fn parse(text: &str, path: &Path) -> Result<Vec<(String, &'static str)>, Failure> {
    let mut values = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mistake = |why: String| {
            Failure::configuration(format!(
                "error in the configuration file {}, line {number}: {why}",
                path.display()
            ))
        };
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| mistake("not a setting; use, for example, ttl = 30s".to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let value = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(value);
        let mut known = STORE.iter().chain(&LOCK);
        if !known.any(|known| *known == name) {
            let known: Vec<&str> = STORE.into_iter().chain(LOCK).collect();
            return Err(mistake(format!(
                "unknown setting; known settings are {}",
                known.join(", ")
            )));
        }
        // Like an empty variable, an empty value counts as missing. An empty store is an error when it is used.
        if value.is_empty() && name != "backend" {
            continue;
        }
        if values.iter().any(|(known, _)| known == name) {
            return Err(mistake(format!("{name} is set twice")));
        }
        // The definition of the command line exists until the process exits.
        values.push((name.to_owned(), &*value.to_owned().leak()));
    }
    Ok(values)
}
