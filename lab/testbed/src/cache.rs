//! The user's cache.

use std::env;
use std::path::{Path, PathBuf};

/// The folder in which Leasehold's tests and scripts keep files that take long to make or to fetch.
pub(crate) fn cache() -> PathBuf {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
    cache.map(PathBuf::from).or_else(home).expect("there is a home").join("leasehold")
}
