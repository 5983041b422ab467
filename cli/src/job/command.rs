//! The process that becomes the command.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command};

use crate::exit::{self, Failure};
use crate::job::cgroup;
use crate::job::helper::{self, Helper};

/// Environment variables that contain the id of the process that should read them.
const ADDRESSED: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];

/// Settings for the process that becomes the command.
#[derive(Debug)]
pub(super) struct Preparation<'a> {
    /// The process id of `leasehold`. Variables that contain this id are meant for the command.
    pub(super) supervisor: i32,
    /// The process id of the guardian, if the command must not outlive the guardian.
    pub(super) guardian: Option<i32>,
    pub(super) cgroup: Option<&'a Path>,
}

impl Preparation<'_> {
    /// Returns the process that will become `command`.
    pub(super) fn start(&self, command: &[OsString]) -> Command {
        let mut start = Helper::Command.start();
        start.arg(self.supervisor.to_string());
        start.arg(self.guardian.map_or_else(String::new, |guardian| guardian.to_string()));
        start.arg(self.cgroup.map_or(OsStr::new(""), Path::as_os_str));
        start.args(command);
        start
    }
}

/// Becomes the command. `words` are the arguments that [`Preparation::start`] sets. Returns only on failure.
pub(super) fn run(words: &[OsString]) -> Failure {
    let [supervisor, guardian, cgroup, command @ ..] = words else { return not_for_users() };
    let Some(program) = command.first() else { return not_for_users() };
    if !cgroup.is_empty()
        && let Err(error) = cgroup::join(Path::new(cgroup))
    {
        // The guardian can also find and signal the processes through `/proc`.
        tracing::debug!("cannot join the command's control group: {error}");
    }
    if let Some(guardian) = guardian.to_str().and_then(|guardian| guardian.parse().ok()) {
        match helper::die_with(guardian) {
            Ok(true) => {}
            Ok(false) => return Failure::new(exit::LOST, "the guardian has exited"),
            Err(error) => {
                return Failure::new(
                    exit::UNSUPERVISED,
                    format!("cannot supervise the command: {error}"),
                );
            }
        }
    }
    let mut start = Command::new(program);
    start.args(&command[1..]);
    for name in ADDRESSED.into_iter().filter(|name| env::var_os(name).as_ref() == Some(supervisor))
    {
        start.env(name, process::id().to_string());
    }
    not_started(program, &start.exec())
}

fn not_for_users() -> Failure {
    Failure::usage("this subcommand is internal to `leasehold run`")
}

/// The reason why a command could not be started, with the exit code that a shell would use.
fn not_started(command: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    Failure::new(
        code,
        format!("cannot run {}: {error}", crate::key::escape(command.as_encoded_bytes())),
    )
}
