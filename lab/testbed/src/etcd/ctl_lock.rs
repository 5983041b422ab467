//! `etcdctl lock`, which goes on until it is ended.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use super::Etcd;
use super::ctl::CTL_WAIT;

/// An `etcdctl lock` that runs: it waits for a lock, and then holds it. It is killed when dropped, and its lease goes on then.
#[derive(Debug)]
pub struct CtlLock {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Etcd {
    /// Starts `etcdctl lock` for a lock.
    ///
    /// # Panics
    ///
    /// If the program is missing.
    pub fn ctl_lock(&self, name: &str) -> CtlLock {
        let mut command = self.ctl_command(&["lock", name]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("etcdctl can be started");
        let output = child.stdout.take().expect("it was asked for");
        CtlLock { child, output: BufReader::new(output).lines() }
    }
}

impl CtlLock {
    /// Waits until it holds the lock, and returns its key.
    ///
    /// # Panics
    ///
    /// If it does not after ten seconds, or ends.
    pub async fn granted(&mut self) -> String {
        let line = timeout(CTL_WAIT, self.output.next_line()).await.expect("it is granted in time");
        line.expect("it can be read").expect("it has not ended")
    }

    /// Asks it to end and waits until it has. It gives the lock back, or its place in line.
    ///
    /// # Panics
    ///
    /// If it has not after ten seconds.
    pub async fn end(mut self) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        // An unreaped child keeps its pid, so the signal can hit no other process.
        let _ = kill_process(id.expect("it was not waited for"), Signal::TERM);
        drop(timeout(CTL_WAIT, self.child.wait()).await.expect("it ends in time"));
    }
}
