//! The programs of PostgreSQL.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Debian's directory for the programs, with one subdirectory for each major version. The
/// subdirectories are not in `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The path of one of the programs, such as `initdb`.
///
/// The environment variable `LEASEHOLD_POSTGRES_SERVER` names the `postgres` program of a version.
/// Other programs of this version are in the same directory. A program that the directory does not
/// contain, such as a client, comes from the newest installed version.
///
/// # Panics
///
/// If the program is missing.
pub(super) fn program(name: &str) -> PathBuf {
    let program = named().map(|server| server.with_file_name(name));
    program
        .filter(|program| program.is_file())
        .unwrap_or_else(|| newest().expect("PostgreSQL is missing: run scripts/install").join(name))
}

/// A server finds its files relative to its own path, which must not contain links.
fn named() -> Option<PathBuf> {
    let server = env::var_os("LEASEHOLD_POSTGRES_SERVER")?;
    Some(fs::canonicalize(server).expect("LEASEHOLD_POSTGRES_SERVER names a program"))
}

fn newest() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let numbers = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let directory = |number: u32| Path::new(DEBIAN).join(number.to_string()).join("bin");
    numbers.filter(|number| directory(*number).join("initdb").is_file()).max().map(directory)
}
