//! The settings for a lock file.

mod url;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use leasehold_core::Error;
use leasehold_settings::{REQUEST_TIMEOUT, duration_in, invalid};
use leasehold_sql_support::Layout;

use crate::error::BACKEND;
use crate::host::Host;

/// The lock file and its options.
///
/// The crate's example uses a `SqliteConfig` for two clients.
#[derive(Clone)]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) timeout: Duration,
    pub(crate) host: Option<Host>,
}

impl SqliteConfig {
    /// The default time limit for a call.
    ///
    /// A transaction takes less than 1 ms, so the limit is generous even if many processes need the
    /// file at the same time. The limit is also short enough for several renewal attempts within
    /// one TTL.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

    /// Creates a configuration for the file at this path. A relative path is resolved against the
    /// current directory, so programs in different directories would use different files, whose
    /// locks do not exclude each other.
    ///
    /// If the file does not exist, it is created with mode 0600, and missing directories are
    /// created with mode 0700. Only the owner can access these files and directories. If root
    /// creates a file in another user's directory, that user becomes the file's owner.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the path is empty, or
    /// if the path is relative and there is no current directory. Also returns
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the path begins with `~` or
    /// `$`, which only a shell expands. To use a file with such a name, write `./~name`.
    pub fn new(file: impl AsRef<Path>) -> Result<Self, Error> {
        let file = file.as_ref();
        if matches!(file.as_os_str().as_bytes(), [b'~' | b'$', ..]) {
            return Err(in_backend(invalid(format!(
                "cannot use lock file {}: only a shell expands ~ and $; use an absolute path, such as /var/lib/locks.db",
                file.display()
            ))));
        }
        let path = path::absolute(file).map_err(|error| {
            in_backend(invalid(
                "cannot determine the current directory; use the absolute path of the lock file",
            ))
            .with_source(error)
        })?;
        Ok(Self { path, layout: Layout::default(), timeout: Self::DEFAULT_TIMEOUT, host: None })
    }

    /// Sets the prefix of all table names. The default is `leasehold_`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the prefix is empty,
    /// is longer than 32 characters, contains characters other than `a-z 0-9 _`, or begins with a
    /// digit.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.layout = Layout::new(prefix).map_err(in_backend)?;
        Ok(self)
    }

    /// Sets the time limit for a call. The default is [`SqliteConfig::DEFAULT_TIMEOUT`].
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the limit is less than
    /// 1 ms or more than 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Error> {
        let timeout = duration_in(&REQUEST_TIMEOUT, "timeout (timeout-ms in a URL)", timeout);
        self.timeout = timeout.map_err(in_backend)?;
        Ok(self)
    }

    /// Replaces the identity and the clock of this machine, for tests that advance the clock,
    /// restart the machine or simulate a second machine. The default is [`Host::this`].
    #[must_use]
    pub fn host(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }
}

impl fmt::Debug for SqliteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteConfig")
            .field("path", &self.path)
            .field("layout", &self.layout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn in_backend(error: Error) -> Error {
    error.with_backend(BACKEND)
}
