//! The processes of one database server: the first one, and its children.
//!
//! PostgreSQL has a child for each connection. The children have process groups of their own, and go on while the first process stands
//! still.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::Process;

#[derive(Debug)]
pub(super) struct Processes {
    first: Process,
    folder: PathBuf,
    /// Names the shared memory of the server in a folder.
    segment: fn(&Path) -> Option<String>,
}

impl Processes {
    /// Starts the server. `segment` names the shared memory of the server in a folder.
    pub(super) fn spawn(
        mut command: Command,
        folder: &Path,
        log: &Path,
        segment: fn(&Path) -> Option<String>,
    ) -> Self {
        let first = Process::spawn(&mut command, log).expect("the server can be started");
        Self { first, folder: folder.to_owned(), segment }
    }

    pub(super) fn id(&self) -> u32 {
        self.first.id()
    }

    pub(super) fn exited(&mut self) -> bool {
        self.first.exited().is_some()
    }

    /// Stops all processes, and returns once they stand still.
    pub(super) fn pause(&self) {
        // The process that creates children is paused first.
        self.first.pause();
        self.signal_children(Signal::STOP, &['T', 'Z']);
    }

    pub(super) fn resume(&self) {
        self.signal_children(Signal::CONT, &[]);
        self.first.resume();
    }

    /// Kills all processes at once, and removes the shared memory that they leave to the machine.
    pub(super) fn kill(&mut self) {
        self.first.pause();
        self.signal_children(Signal::KILL, &['Z']);
        self.first.kill();
        if let Some(segment) = (self.segment)(&self.folder) {
            let mut remove = Command::new("ipcrm");
            let removed = remove.args(["-m", &segment]).stderr(Stdio::null()).status();
            // It objects if the segment has gone with the server.
            removed.expect("ipcrm of util-linux can be started");
        }
    }

    /// Has the first process shut down in order, and waits until it has.
    pub(super) fn shut_down(&mut self, signal: Signal) {
        self.first.end(signal);
    }

    /// Sends a signal to all children. If `states` is not empty, waits until each child is in one
    /// of these states.
    ///
    /// The first process must be paused, so that it neither creates nor reaps children and their
    /// IDs remain valid.
    fn signal_children(&self, signal: Signal, states: &[char]) {
        let children = children(self.id());
        for child in children.iter().filter_map(|child| Pid::from_raw(*child)) {
            // An error means that it has ended.
            let _ = kill_process(child, signal);
        }
        let waits = |child: &i32| state(*child).is_some_and(|state| !states.contains(&state));
        while !states.is_empty() && children.iter().any(waits) {
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A signal takes microseconds, on a busy machine some milliseconds.
const PAUSE: Duration = Duration::from_millis(1);

fn children(parent: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

fn state(process: i32) -> Option<char> {
    stat(process).map(|(state, _)| state)
}

/// A process's state and its parent.
fn stat(process: i32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before is in brackets, and may contain some.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
