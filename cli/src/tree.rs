//! The processes that a command has started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper,
};

/// All processes that stem from this one, but for those that it had when the tree was planted.
///
/// This process adopts children whose parents end, so a process cannot leave the tree: neither by a session or a group of its own, nor by
/// the end of its parent.
#[derive(Debug)]
pub(crate) struct Tree {
    strangers: BTreeSet<i32>,
}

/// A process, as `/proc` shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Process {
    pid: i32,
    parent: i32,
    state: u8,
    threads: u32,
    /// In ticks since the machine's start: another process of the same id has another.
    started: u64,
}

impl Tree {
    /// From now on, processes that this one starts belong to the tree.
    pub(crate) fn plant() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let own = getpid().as_raw_nonzero().get();
        let strangers = all()?.into_iter().filter(|it| it.parent == own).map(|it| it.pid);
        Ok(Self { strangers: strangers.collect() })
    }

    /// Whether any process of it has not ended yet.
    pub(crate) fn is_alive(&self) -> io::Result<bool> {
        Ok(!self.processes()?.is_empty())
    }

    /// Sends a signal to all of them, parents first, and wakes those that are stopped, so that they can act upon it.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        for process in self.processes()? {
            process.send(signal);
            if process.state == b'T' {
                process.send(Signal::CONT);
            }
        }
        Ok(())
    }

    /// The living ones, parents before their children.
    fn processes(&self) -> io::Result<Vec<Process>> {
        let mut children = BTreeMap::<i32, Vec<Process>>::new();
        for process in all()? {
            if !self.strangers.contains(&process.pid) {
                children.entry(process.parent).or_default().push(process);
            }
        }
        let mut found = children.remove(&getpid().as_raw_nonzero().get()).unwrap_or_default();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            found.extend(children.remove(&process.pid).unwrap_or_default());
            next += 1;
        }
        // One that has ended still has children to be followed.
        found.retain(|process| !process.has_ended());
        Ok(found)
    }
}

impl Process {
    /// Whether it is only there for its parent to know. One whose first thread has ended looks the same, but for the others.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Sends a signal to this very process. One that has just ended needs none.
    fn send(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // Its id may belong to another by now, but not after this: the descriptor is that of the one that was found.
        if Self::read(self.pid).is_some_and(|now| now.started == self.started) {
            let _ = pidfd_send_signal(&process, signal);
        }
    }

    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads `1 (name) S 0 …`. A name may hold blanks and parentheses.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        Some(Self {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// All processes of this machine that we may see.
fn all() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            found.extend(Process::read(pid));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_any_name_is_read() {
        let fields = "T 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0";
        let expected = Process { pid: 9, parent: 7, state: b'T', threads: 1, started: 4242 };

        for name in ["sh", "a) S 1 (b", "two words"] {
            assert_eq!(Process::parse(9, &format!("9 ({name}) {fields}")), Some(expected));
        }
    }

    #[test]
    fn process_whose_first_thread_has_ended_is_alive() {
        let ended = Process { pid: 9, parent: 7, state: b'Z', threads: 1, started: 4242 };

        assert!(ended.has_ended());
        assert!(!Process { threads: 2, ..ended }.has_ended());
    }
}
