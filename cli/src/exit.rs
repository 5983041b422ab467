//! How the command ends.

use std::error::Error as _;
use std::process::{ExitCode, ExitStatus};

use leasehold::backend::Operation;
use leasehold::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::out;

/// The command line cannot be understood (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The key is in use as another kind of lock, or the data of the store cannot be used (`EX_DATAERR`).
pub(crate) const DATA: u8 = 65;
/// The store cannot be reached, or does not answer in time (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The system refuses what the supervision of a command needs (`EX_OSERR`).
pub(crate) const UNSUPERVISED: u8 = 71;
/// The lock file cannot be created, or the store grants no locks until an operator acts (`EX_CANTCREAT`).
pub(crate) const CANNOT_CREATE: u8 = 73;
/// The result cannot be written (`EX_IOERR`).
pub(crate) const NOT_WRITTEN: u8 = 74;
/// The lock was not obtained in time (`EX_TEMPFAIL`).
pub(crate) const NOT_OBTAINED: u8 = 75;
/// The lease was lost while the command ran (`EX_PROTOCOL`).
pub(crate) const LOST: u8 = 76;
/// The store refuses the user, the password or the rights (`EX_NOPERM`).
pub(crate) const DENIED: u8 = 77;
/// The lease was lost, and a process of the command is still running.
pub(crate) const STILL_RUNNING: u8 = 79;
/// The command cannot be executed, as shells say it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command is not found, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;

/// The exit codes that all verbs share, for their help.
pub(crate) const HELP: &str = "\
Exit status:
  64   the command line makes no sense
  65   the key is in use as another kind of lock, or the store's data cannot be used
  69   the store cannot be reached, or does not answer in time
  71   the operating system refuses what is needed to supervise the command
  73   the lock file cannot be created, or the store is full or read-only
  74   the result cannot be written
  75   the lock is busy
  76   the lease was lost
  77   the store refuses the user, the password or the rights
  79   the lease was lost, and a process of the command is still running";

/// Why the command ends without success, and how.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    details: Value,
    passes: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Value::Null, passes: false }
    }

    /// A signal ended the wait, and its sender knows.
    pub(crate) fn signal(signal: rustix::process::Signal) -> Self {
        Self::new(128 + u8::try_from(signal.as_raw()).unwrap_or(0), "")
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// Adds facts for programs, as an object.
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }

    /// Adds to the reason what the user may do.
    #[cfg(feature = "sqlite")]
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        self.message += &format!("; {remedy}");
        self
    }

    /// Whether the same may succeed later by itself.
    pub(crate) fn passes(&self) -> bool {
        self.passes
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Says why, and gives the exit code. A quiet command says nothing about a lock that is busy.
    pub(crate) fn report(self) -> ExitCode {
        let style = out::style();
        if self.message.is_empty() {
            return ExitCode::from(self.code);
        }
        if style.json {
            let mut told = json!({ "error": self.message, "exit_code": self.code });
            if let (Some(told), Value::Object(details)) = (told.as_object_mut(), self.details) {
                told.extend(details);
            }
            out::raw(&format!("{told}\n"));
        } else if !(style.quiet && self.code == NOT_OBTAINED) {
            out::raw(&format!("leasehold: {}\n", self.message));
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            // A lock file cannot be there. From other stores, this means that the URL names a server of another kind.
            ErrorKind::Unsupported
                if (error.operation(), error.backend())
                    == (Some(Operation::Connect), Some("sqlite")) =>
            {
                CANNOT_CREATE
            }
            ErrorKind::Invalid | ErrorKind::Unsupported => USAGE,
            ErrorKind::WrongType | ErrorKind::Unexpected => DATA,
            ErrorKind::Refused => CANNOT_CREATE,
            ErrorKind::Denied => DENIED,
            ErrorKind::LeaseLost => LOST,
            ErrorKind::Timeout => NOT_OBTAINED,
            _ => UNAVAILABLE,
        };
        let passes = error.kind() == ErrorKind::Unavailable;
        Self { passes, ..Self::new(code, with_causes(&error)) }
    }
}

/// An error and its causes, each of which says something that those before did not.
pub(crate) fn with_causes(error: &Error) -> String {
    let mut message = error.to_string();
    let mut last = message.clone();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        // Some errors repeat the text of their cause, and some causes, behind a number, that of their error.
        if !message.contains(&said) && !said.ends_with(&last) {
            message += &format!(": {said}");
            last = said;
        }
        source = cause.source();
    }
    message
}

/// Prints a message of clap: help and versions are a success, all else is bad usage.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let help = error.render();
        let help = if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
            help.ansi().to_string()
        } else {
            help.to_string()
        };
        let printed = out::print(help.as_bytes());
        return printed.map_or_else(Failure::report, |()| ExitCode::SUCCESS);
    }
    // If that cannot be printed, the exit code still tells.
    drop(error.print());
    ExitCode::from(USAGE)
}

/// The child's own exit code, or 128 and the signal that ended it.
pub(crate) fn of_child(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;

    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
