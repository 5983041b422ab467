//! The store that the command line names, or the file of this user.

use std::env;
use std::path::{Path, PathBuf};

use leasehold::LockClient;

use crate::args::Backend;
use crate::exit::{self, Failure};

impl Backend {
    /// Connects to the named store, or opens the file in the user's state folder.
    pub(crate) async fn connect(&self) -> Result<LockClient, Failure> {
        match self.url.as_deref() {
            None => open(&default_file()?).await,
            Some("") => Err(usage(
                "the backend is empty: name a store, or unset LEASEHOLD_BACKEND for locks on this machine",
            )),
            Some(url) if url.starts_with("memory:") => Err(usage(
                "a memory: store excludes no other command: leave --backend out for locks on this machine, or name a server",
            )),
            Some(url) => Ok(leasehold::connect(url).await?),
        }
    }
}

#[cfg(feature = "sqlite")]
async fn open(file: &Path) -> Result<LockClient, Failure> {
    use std::io::{IsTerminal, stderr};

    use leasehold::sqlite::{SqliteBackend, SqliteConfig};

    let is_new = !file.exists();
    let backend = SqliteBackend::connect_with(SqliteConfig::new(file)?).await?;
    if is_new && stderr().is_terminal() {
        eprintln!(
            "leasehold: locks of this user on this machine are in {}; for others, name a store by --backend",
            file.display()
        );
    }
    Ok(LockClient::new(backend).erase())
}

#[cfg(not(feature = "sqlite"))]
async fn open(_file: &Path) -> Result<LockClient, Failure> {
    Err(usage("no backend: name one by --backend or LEASEHOLD_BACKEND, e.g. redis://127.0.0.1"))
}

/// `leasehold/locks.db` in the folder where programs keep the state of a user.
fn default_file() -> Result<PathBuf, Failure> {
    let folder = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            usage("no backend, and no HOME for a file of locks: name a store by --backend or LEASEHOLD_BACKEND")
        })?;
    Ok(folder.join("leasehold").join("locks.db"))
}

/// The path in an environment variable. The XDG specification ignores relative ones.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn usage(message: &str) -> Failure {
    Failure::new(exit::USAGE, message)
}
