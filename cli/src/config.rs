//! The configuration file: values for options that neither the command line nor the environment sets.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Command;

use crate::exit::Failure;

/// The options that a file may set.
const OPTIONS: [&str; 11] = [
    "backend",
    "description",
    "kill-after",
    "lock-delay",
    "max-hold",
    "min-hold",
    "on-asked",
    "on-lost",
    "prefix",
    "ttl",
    "wait",
];

/// Gives the options of all verbs the values that the file has for them.
pub(crate) fn apply(command: Command) -> Result<Command, Failure> {
    let Some((path, is_named)) = path() else { return Ok(command) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && !is_named => return Ok(command),
        Err(error) => return Err(Failure::usage(format!("{}: {error}", path.display()))),
    };
    let values = parse(&text, &path)?;
    Ok(command.mut_subcommands(|verb| {
        values.iter().fold(verb, |verb, (name, value)| {
            let has = verb.get_arguments().find(|arg| arg.get_long() == Some(name));
            let Some(id) = has.map(|arg| arg.get_id().clone()) else { return verb };
            verb.mut_arg(id, |arg| arg.default_value(*value).hide_default_value(true))
        })
    }))
}

/// The file that `LEASEHOLD_CONFIG` names, or that of this user; and whether it was named.
fn path() -> Option<(PathBuf, bool)> {
    if let Some(path) = env::var_os("LEASEHOLD_CONFIG") {
        return (!path.is_empty()).then(|| (path.into(), true));
    }
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some((folder.join("leasehold").join("config"), false))
}

/// Reads lines like `ttl = 30s`. No message about a mistake shows a value: a URL may hold a password.
fn parse(text: &str, path: &Path) -> Result<Vec<(String, &'static str)>, Failure> {
    let mut values = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mistake =
            |said: String| Failure::usage(format!("{}, line {number}: {said}", path.display()));
        let (name, value) =
            line.split_once('=').ok_or_else(|| mistake("a line is like `ttl = 30s`".to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let value = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(value);
        if !OPTIONS.contains(&name) {
            return Err(mistake(format!("unknown option; known are {}", OPTIONS.join(", "))));
        }
        if values.iter().any(|(known, _)| known == name) {
            return Err(mistake(format!("{name} is set twice")));
        }
        // The definition of the command line is there for as long as the process.
        values.push((name.to_owned(), &*value.to_owned().leak()));
    }
    Ok(values)
}
