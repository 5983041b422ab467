//! How the command ends.

use std::error::Error as _;
use std::process::{ExitCode, ExitStatus};

use leasehold::{Error, ErrorKind};

/// The command line cannot be understood (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The store cannot be reached, or does not serve us (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The lock was not obtained in time (`EX_TEMPFAIL`).
pub(crate) const NOT_OBTAINED: u8 = 75;
/// The lease was lost while the command ran (`EX_PROTOCOL`).
pub(crate) const LOST: u8 = 76;
/// The command cannot be executed, as shells say it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command is not found, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;

/// Why the command ends without success, and how.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Prints why, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("leasehold: {}", self.message);
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::WrongType => USAGE,
            ErrorKind::LeaseLost => LOST,
            ErrorKind::Timeout => NOT_OBTAINED,
            _ => UNAVAILABLE,
        };
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message += &format!(": {cause}");
            source = cause.source();
        }
        Self { code, message }
    }
}

/// Prints what clap has to say: help and versions are a success, all else is bad usage.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // If that cannot be printed, the exit code still tells.
    drop(error.print());
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// The child's own exit code, or 128 and the signal that ended it.
pub(crate) fn of_child(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;

    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
