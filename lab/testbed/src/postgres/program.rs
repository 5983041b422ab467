//! Where PostgreSQL's programs are.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Debian's directory for the programs, with one subdirectory for each major version. The
/// subdirectories are not in `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The path of one of the programs, such as `initdb`.
///
/// The environment variable `LEASEHOLD_POSTGRES` names another folder of programs than that of the newest version that
/// is installed.
///
/// # Panics
///
/// If no version is installed.
pub(super) fn program(name: &str) -> PathBuf {
    let folder = env::var_os("LEASEHOLD_POSTGRES").map(PathBuf::from);
    let folder = folder.or_else(newest).expect("PostgreSQL is missing: run scripts/install");
    folder.join(name)
}

fn newest() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let numbers = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let folder = |number: u32| Path::new(DEBIAN).join(number.to_string()).join("bin");
    numbers.filter(|number| folder(*number).join("initdb").is_file()).max().map(folder)
}
