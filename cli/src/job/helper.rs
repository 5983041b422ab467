//! The helper processes of `leasehold`. They run the same program, and their first argument tells which helper they are.

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
    /// Shows whether a signal was sent only to `leasehold`.
    Canary,
    /// Becomes the command.
    Command,
}

impl Helper {
    const ALL: [Self; 3] = [Self::Guardian, Self::Canary, Self::Command];

    /// Returns the kind of helper if this process is one.
    pub(super) fn of_this_process() -> Option<Self> {
        let word = env::args_os().nth(1)?;
        Self::ALL.into_iter().find(|helper| word == helper.word())
    }

    /// Returns the command line of the helper. The caller adds its arguments, followed by the words of the command.
    ///
    /// Signals that are sent by process name should reach the right processes. `pkill leasehold` must not match a helper, so helpers have
    /// another name. `pkill -f report.sh` must match all processes of the command, so helpers have the words of the command.
    pub(super) fn start(self) -> Command {
        let mut command = Command::new("/proc/self/exe");
        let loader = loader_arguments();
        if loader.is_empty() {
            command.arg0(self.name());
        }
        command.args(loader).arg(self.word());
        command
    }

    /// Sets the name of this process. Without this, its name would be `exe`, from `/proc/self/exe`.
    pub(super) fn name_this_process(self) {
        let name = CString::new(self.name()).expect("no helper's name contains a zero byte");
        // Only people and tools such as pkill use the name.
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

/// Asks the kernel to kill this process when `parent` exits. Returns `false` if `parent` has already exited, because then no signal will
/// follow.
pub(super) fn die_with(parent: i32) -> rustix::io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(getppid().map(Pid::as_raw_nonzero).is_some_and(|actual| actual.get() == parent))
}

/// The arguments of the loader if one runs this program, as in `ld.so /usr/bin/leasehold run …`. In that case `/proc/self/exe` is the loader.
fn loader_arguments() -> Vec<OsString> {
    let all = fs::read("/proc/self/cmdline").unwrap_or_default();
    let all: Vec<_> = all.split_inclusive(|byte| *byte == 0).collect();
    // The kernel's list starts with the words of the loader, which are missing from the arguments that Rust sees.
    let before = all.len().saturating_sub(env::args_os().len());
    let words = all.iter().skip(1).take(before);
    words.map(|word| OsString::from_vec(word.strip_suffix(&[0]).unwrap_or(word).to_vec())).collect()
}
