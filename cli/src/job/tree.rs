//! The processes that a command has started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, Mode, OFlags, open, openat, readlinkat};
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
    pidfd_send_signal, set_child_subreaper, waitid,
};

use crate::job::link::Survivor;
use crate::signals::{TOGETHER, signal_set};

/// A busy machine may delay the time at which this process notices a signal by this many nanoseconds.
const NOTICED_WITHIN: u64 = TOGETHER.as_nanos() as u64;

/// All descendants of this process, except the descendants that it had before.
///
/// When the parent of a descendant exits, this process becomes the new parent. Therefore a process cannot leave the tree, not even by
/// creating a session or a process group.
#[derive(Debug)]
pub(super) struct Tree {
    table: Table,
    /// The process id and the start time of each descendant that existed before.
    strangers: BTreeSet<(i32, u64)>,
}

/// A process, as `/proc` shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Process {
    pid: i32,
    name: String,
    parent: i32,
    state: u8,
    threads: u32,
    /// In clock ticks since the machine started. Distinguishes this process from a later process with the same id.
    started: u64,
}

impl Tree {
    /// Creates a tree of the processes that this process starts after this call.
    ///
    /// # Errors
    ///
    /// Fails if `/proc` shows another PID namespace, or if no file descriptor is free.
    pub(super) fn plant() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let mut tree = Self { table: Table::open()?, strangers: BTreeSet::new() };
        // Reading the whole process table takes longer than everything else that a command needs.
        if has_children() {
            let earlier = tree.processes()?;
            tree.strangers = earlier.iter().map(|process| (process.pid, process.started)).collect();
        }
        Ok(tree)
    }

    /// Sends a signal to all processes of the tree, parents first. Resumes stopped processes, so that they can react to the signal.
    ///
    /// Returns the processes to which the signal could not be sent.
    pub(super) fn signal(&mut self, signal: Signal) -> io::Result<Vec<Survivor>> {
        let mut unreached = Vec::new();
        for process in self.processes()? {
            let mut sent = process.send(&mut self.table, signal);
            if process.state == b'T' {
                sent = sent.and(process.send(&mut self.table, Signal::CONT));
            }
            if let Err(error) = sent {
                unreached.push(process.survivor(Some(error)));
            }
        }
        Ok(unreached)
    }

    /// Sends a signal to the processes that [`Reach::Missed`](super::Reach::Missed) describes.
    ///
    /// Returns the processes to which the signal could not be sent.
    pub(super) fn signal_missed(
        &mut self,
        signal: Signal,
        since: u64,
    ) -> io::Result<Vec<Survivor>> {
        let mut unreached = Vec::new();
        // A process that handles the signal may start others in reaction to it, such as a cleanup,
        // before this process has noticed the signal. Parents come before their children.
        let mut reacting = BTreeSet::new();
        for process in self.processes()? {
            let may_react = reacting.contains(&process.parent);
            let sent_at = if may_react { since.saturating_sub(NOTICED_WITHIN) } else { since };
            if process.started < ticks(sent_at) && self.table.is_ended_by(process.pid, signal) {
                let sent = process.send(&mut self.table, signal);
                unreached.extend(sent.err().map(|error| process.survivor(Some(error))));
            } else {
                reacting.insert(process.pid);
            }
        }
        Ok(unreached)
    }

    /// The processes that have not exited.
    pub(super) fn running(&mut self) -> io::Result<Vec<Survivor>> {
        Ok(self.processes()?.iter().map(|process| process.survivor(None)).collect())
    }

    /// The processes that have not exited, parents before their children.
    fn processes(&mut self) -> io::Result<Vec<Process>> {
        let mut children = BTreeMap::<i32, Vec<Process>>::new();
        for process in self.table.all()? {
            if !self.strangers.contains(&(process.pid, process.started)) {
                children.entry(process.parent).or_default().push(process);
            }
        }
        let mut found = children.remove(&getpid().as_raw_nonzero().get()).unwrap_or_default();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            found.extend(children.remove(&process.pid).unwrap_or_default());
            next += 1;
        }
        // Zombies are removed last, because they can have running children.
        found.retain(|process| !process.has_exited());
        Ok(found)
    }
}

/// The process table in `/proc`. It can be read even if this process has no free file descriptor.
#[derive(Debug)]
struct Table {
    directory: Dir,
    /// A reserve that is closed for a moment if no other descriptor is free.
    spare: Option<OwnedFd>,
}

impl Table {
    fn open() -> io::Result<Self> {
        let directory = open("/proc", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let own = readlinkat(&directory, "self", Vec::new()).unwrap_or_default();
        if own.to_str().ok().and_then(|own| own.parse().ok())
            != Some(getpid().as_raw_nonzero().get())
        {
            return Err(io::Error::other(
                "/proc does not show the processes of this PID namespace; mount a /proc for it, \
                 for example with unshare --mount-proc",
            ));
        }
        let spare = directory.try_clone()?;
        Ok(Self { directory: Dir::new(directory)?, spare: Some(spare) })
    }

    /// All processes that this user may see.
    fn all(&mut self) -> io::Result<Vec<Process>> {
        self.directory.rewind();
        let mut pids = Vec::new();
        while let Some(entry) = self.directory.read() {
            pids.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
        }
        Ok(pids.into_iter().filter_map(|pid| self.read(pid)).collect())
    }

    fn read(&mut self, pid: i32) -> Option<Process> {
        Process::parse(pid, &self.read_file(&format!("{pid}/stat"))?)
    }

    /// Whether a process would exit if it received a signal, because it neither catches nor ignores nor blocks the signal.
    fn is_ended_by(&mut self, pid: i32, signal: Signal) -> bool {
        let status = self.read_file(&format!("{pid}/status")).unwrap_or_default();
        let handled = ["SigCgt:", "SigIgn:", "SigBlk:"];
        let handled = handled.map(|field| signal_set(&status, field).unwrap_or(u64::MAX));
        handled.iter().all(|set| set & (1 << (signal.as_raw() - 1)) == 0)
    }

    fn read_file(&mut self, path: &str) -> Option<String> {
        let mut text = String::new();
        File::from(self.open_file(path).ok()?).read_to_string(&mut text).ok()?;
        if self.spare.is_none() {
            self.spare = self.directory.fd().ok().and_then(|fd| fd.try_clone_to_owned().ok());
        }
        Some(text)
    }

    fn open_file(&mut self, path: &str) -> rustix::io::Result<OwnedFd> {
        let open = |table: &Self| {
            openat(table.directory.fd()?, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        match open(self) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.spare = None;
                open(self)
            }
            opened => opened,
        }
    }
}

impl Process {
    /// Whether the process has exited and only waits for its parent to notice. If only the first thread has exited, the state is the same,
    /// but there are other threads.
    fn has_exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Sends a signal to this process, but never to a later process with the same id. Succeeds if the process has just exited.
    fn send(&self, table: &mut Table, signal: Signal) -> Result<(), Errno> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let descriptor = pidfd_open(pid, PidfdFlags::empty());
        // If the start time is unchanged, the descriptor belongs to this process.
        if table.read(self.pid).is_none_or(|now| now.started != self.started) {
            return Ok(());
        }
        let sent = match descriptor {
            Ok(descriptor) => pidfd_send_signal(&descriptor, signal),
            Err(error) => Err(error),
        };
        // Some sandboxes refuse both calls, and `pidfd_open` needs a free descriptor.
        match sent.or_else(|_| kill_process(pid, signal)) {
            Err(Errno::SRCH) => Ok(()),
            sent => sent,
        }
    }

    fn survivor(&self, refused: Option<Errno>) -> Survivor {
        Survivor::new(self.pid, &self.name, refused)
    }

    /// Reads `1 (name) S 0 …`. A name may contain blanks and parentheses.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (name, rest) = stat.rsplit_once(") ")?;
        let (_, name) = name.split_once('(')?;
        let fields: Vec<&str> = rest.split(' ').collect();
        Some(Self {
            pid,
            name: name.to_owned(),
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns whether this process has children. A process without children has no descendants, because orphans become children of a
/// subreaper.
fn has_children() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// Converts a time of the boot clock from nanoseconds to clock ticks.
fn ticks(nanoseconds: u64) -> u64 {
    u64::try_from(u128::from(nanoseconds) * u128::from(clock_ticks_per_second()) / 1_000_000_000)
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(name: &str) -> Process {
        Process { pid: 9, name: name.to_owned(), parent: 7, state: b'T', threads: 1, started: 4242 }
    }

    #[test]
    fn a_process_of_any_name_is_read() {
        let fields = "T 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0";

        for name in ["sh", "a) S 1 (b", "two words"] {
            let read = Process::parse(9, &format!("9 ({name}) {fields}"));
            assert_eq!(read, Some(process(name)));
        }
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_alive() {
        let ended = Process { state: b'Z', ..process("sh") };

        assert!(ended.has_exited());
        assert!(!Process { threads: 2, ..ended }.has_exited());
    }
}
