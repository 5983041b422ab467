//! The exit codes, and the errors that lead to them.

use std::error::Error as _;
use std::process::{ExitCode, ExitStatus};

use leasehold::{Error, ErrorKind};
use serde_json::{Value, json};

/// `EX_USAGE`.
pub(crate) const USAGE: u8 = 64;
/// `EX_DATAERR`.
pub(crate) const DATA: u8 = 65;
/// `EX_UNAVAILABLE`.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `EX_OSERR`.
pub(crate) const UNSUPERVISED: u8 = 71;
/// `EX_CANTCREAT`.
pub(crate) const CANNOT_CREATE: u8 = 73;
/// `EX_IOERR`.
pub(crate) const NOT_WRITTEN: u8 = 74;
/// `EX_TEMPFAIL`.
pub(crate) const BUSY: u8 = 75;
/// `EX_PROTOCOL`.
pub(crate) const LOST: u8 = 76;
/// `EX_NOPERM`.
pub(crate) const DENIED: u8 = 77;
/// `EX_CONFIG`.
pub(crate) const CONFIGURATION: u8 = 78;
pub(crate) const STILL_RUNNING: u8 = 79;
/// As in shells.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// As in shells.
pub(crate) const NOT_FOUND: u8 = 127;

/// What a subcommand does. Each activity includes all activities before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Activity {
    /// It does not connect to a store.
    Prints,
    Connects,
    Locks,
    /// It runs a command while it holds a lock.
    Runs,
}

/// For the help: each code, the first activity that can end with the code, and its meaning.
pub(crate) const MEANINGS: [(u8, Activity, &str); 13] = [
    (USAGE, Activity::Prints, "usage error"),
    (
        DATA,
        Activity::Connects,
        "the lock is in use as another type of lock, or the data in the store\nis unusable",
    ),
    (UNAVAILABLE, Activity::Connects, "the store is unreachable or did not respond in time"),
    (
        UNSUPERVISED,
        Activity::Runs,
        "the operating system does not allow supervision of the command",
    ),
    (
        CANNOT_CREATE,
        Activity::Connects,
        "the store cannot create the lock (missing directory, full disk or\nmemory, read-only, too few replicas)",
    ),
    (NOT_WRITTEN, Activity::Prints, "the result cannot be written"),
    (BUSY, Activity::Locks, "the lock is busy"),
    (LOST, Activity::Locks, "the lock was lost; the command has ended"),
    (DENIED, Activity::Connects, "permission denied by the store or by the file system"),
    (CONFIGURATION, Activity::Prints, "error in the configuration file"),
    (
        STILL_RUNNING,
        Activity::Runs,
        "the lock was lost, and a process of the command is still running",
    ),
    (NOT_EXECUTABLE, Activity::Runs, "the command cannot be executed"),
    (NOT_FOUND, Activity::Runs, "the command was not found"),
];

/// An error message and its exit code.
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

    /// A signal ended the wait. The sender of the signal does not need a message.
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

    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self::new(CONFIGURATION, message)
    }

    /// Replaces the exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Adds advice for the user to the reason.
    #[cfg(feature = "sqlite")]
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        self.message += &format!("; {remedy}");
        self
    }

    /// Whether a later attempt may succeed.
    pub(crate) fn passes(&self) -> bool {
        self.passes
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The message, the exit code and the facts, as one object.
    pub(crate) fn to_json(&self) -> Value {
        let mut told = json!({ "error": self.message, "exit_code": self.code });
        if let (Some(told), Value::Object(details)) = (told.as_object_mut(), &self.details) {
            told.extend(details.clone());
        }
        told
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let passes = error.is_retryable();
        Self { passes, ..Self::new(code_of(&error), with_causes(&error)) }
    }
}

fn code_of(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::WrongType | ErrorKind::Unexpected => DATA,
        ErrorKind::NotWritable | ErrorKind::Refused => CANNOT_CREATE,
        ErrorKind::Denied => DENIED,
        ErrorKind::LeaseLost => LOST,
        ErrorKind::Timeout => BUSY,
        ErrorKind::Indeterminate | ErrorKind::Unavailable => {
            // If the last attempt received no reply, the reply to an earlier attempt is more useful.
            let cause = error.source().and_then(|cause| cause.downcast_ref());
            cause.map_or(UNAVAILABLE, code_of)
        }
        _ => USAGE,
    }
}

/// An error and its causes, unless a cause repeats an earlier text.
pub(crate) fn with_causes(error: &Error) -> String {
    let mut message = error.to_string();
    let mut last = message.clone();
    let mut source = error.source();
    let context = format!("{}: ", message.split(": ").next().unwrap_or_default());
    while let Some(cause) = source {
        let said = cause.to_string();
        let said = said.strip_prefix(&context).map_or(said.clone(), str::to_owned);
        // Some errors contain the text of their cause. Some causes contain the text of their error, after a number.
        if !message.contains(&said) && !said.ends_with(&last) {
            message += &format!(": {said}");
            last = said;
        }
        source = cause.source();
    }
    message
}

/// The exit code of the command, or 128 plus the number of the signal that ended it.
pub(crate) fn of_child(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;

    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
