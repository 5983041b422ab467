//! The helper processes of `leasehold`: the same program, told apart by its first argument. They are not subcommands: no user starts them.

use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// A helper process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Helper {
    /// Ends the command if `leasehold` cannot.
    Guardian,
    /// Shows whether a signal was sent to `leasehold` alone.
    Canary,
    /// Becomes the command.
    Command,
}

impl Helper {
    const ALL: [Self; 3] = [Self::Guardian, Self::Canary, Self::Command];

    /// The helper that this process is, if its first argument says so.
    pub(super) fn of_this_process() -> Option<Self> {
        let word = env::args_os().nth(1)?;
        Self::ALL.into_iter().find(|helper| word == helper.word())
    }

    /// This program as the helper. The caller adds its arguments, and at last the command and its words.
    ///
    /// The helper's name keeps away signals that are meant for `leasehold` only, as of `pkill leasehold`. The words of the command let those
    /// come that are meant for all its processes, as of `pkill -f report.sh`.
    pub(super) fn start(self) -> Command {
        let mut command = Command::new("/proc/self/exe");
        let loader = loader_arguments();
        if loader.is_empty() {
            command.arg0(self.name());
        }
        command.args(loader).arg(self.word());
        command
    }

    /// Gives this process the name of the helper: the kernel named it after `/proc/self/exe`.
    pub(super) fn name_this_process(self) {
        let name = CString::new(self.name()).expect("the name has no zero byte");
        // The name is for people and for tools like pkill.
        let _ = rustix::thread::set_name(&name);
    }

    fn word(self) -> &'static str {
        match self {
            Self::Guardian => "__guardian",
            Self::Canary => "__canary",
            Self::Command => "__command",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Guardian => "lease-guardian",
            Self::Canary => "lease-canary",
            Self::Command => "lease-command",
        }
    }
}

/// Has the system kill this process when `parent` exits. Returns `false` if `parent` has exited already, so that no signal will come.
pub(super) fn die_with(parent: i32) -> rustix::io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(getppid().map(Pid::as_raw_nonzero).is_some_and(|actual| actual.get() == parent))
}

/// The arguments before our own, if a loader runs this program (`ld.so /usr/bin/leasehold run …`): then `/proc/self/exe` is the loader.
fn loader_arguments() -> Vec<OsString> {
    let all = fs::read("/proc/self/cmdline").unwrap_or_default();
    let all: Vec<_> = all.split_inclusive(|byte| *byte == 0).collect();
    // As many as there are before our own name, which a loader leaves out of our arguments; the loader's own name is one of them.
    let before = all.len().saturating_sub(env::args_os().len());
    let words = all.iter().skip(1).take(before);
    words.map(|word| OsString::from_vec(word.strip_suffix(&[0]).unwrap_or(word).to_vec())).collect()
}
