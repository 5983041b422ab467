//! The verbs.

pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod top;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use leasehold::{Error, LockKey};

/// The key that a command line names, in whatever bytes.
fn key(name: &OsStr) -> Result<LockKey, Error> {
    LockKey::new(name.as_bytes())
}
