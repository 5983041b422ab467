//! The wall clock of one server, which the test sets.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The shim that build.rs builds; the server's calls for the time end there.
const SHIM: &str = concat!(env!("OUT_DIR"), "/clock.so");

/// Where the shim expects the first setting, and how long one is.
const SETTINGS: u64 = 8;
const SETTING: u64 = 16;

/// The wall clock of a server (Linux only). The server's timers and monotonic clock are not
/// changed.
///
/// A change is in force when the method returns: a server reads its clock anew for each command.
#[derive(Debug)]
pub struct ServerClock {
    path: PathBuf,
    file: File,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Which of the two settings in the file is in force.
    current: u8,
    /// How far the clock is ahead of the machine's; if it does not run, of 1970.
    nanos: i64,
    runs: bool,
}

/// Whether a server's clock goes by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pace {
    /// As fast as the machine's.
    Running,
    /// Not at all: only the test moves it.
    Still,
}

impl ServerClock {
    /// Creates a clock that shows the time of the machine; its file is in `folder`.
    pub(crate) fn new(folder: &Path, pace: Pace) -> Self {
        let path = folder.join("clock");
        let file = File::create(&path).expect("temporary folders can be written");
        file.set_len(SETTINGS + 2 * SETTING).expect("temporary files can be written");
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().expect("the clock is set");
        let runs = pace == Pace::Running;
        let state = State { current: 0, nanos: if runs { 0 } else { nanos(since_1970) }, runs };
        let clock = Self { path, file, state: Mutex::new(state) };
        clock.change_by(0);
        clock
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        self.change_by(nanos(by));
    }

    /// Moves it back.
    pub fn set_back(&self, by: Duration) {
        self.change_by(-nanos(by));
    }

    /// Has a server that `command` starts go by it.
    pub(crate) fn rule(&self, command: &mut Command) {
        command.env("LD_PRELOAD", SHIM).env("LEASEHOLD_CLOCK", &self.path);
    }

    fn change_by(&self, nanos: i64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.nanos += nanos;
        state.current ^= 1;
        let mut setting = i64::from(state.runs).to_ne_bytes().to_vec();
        setting.extend(state.nanos.to_ne_bytes());
        self.write(SETTINGS + SETTING * u64::from(state.current), &setting);
        self.write(0, &[state.current]);
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).expect("temporary files can be written");
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).expect("clocks are set by less than 292 years")
}
