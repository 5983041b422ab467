//! The campaign's view of a client process.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::history::event::{EventKind, now};
use crate::history::line::{Order, Plan, text};
use crate::history::record::Record;

/// The command that starts a client process, which is this program with different arguments.
///
/// [`Population::start`](super::population::Population::start) takes an argument of this type.
#[derive(Clone, Debug)]
pub struct Program {
    /// The arguments that make the program call [`worker::run`](crate::history::worker::run).
    pub args: Vec<String>,
    /// Returns the Unix group ID (GID) under which the process in the given slot runs. This
    /// function is necessary only if a firewall must distinguish the processes by their group IDs.
    pub group_of: Option<fn(usize) -> u32>,
}

/// A client process, which is killed when this value is dropped.
///
/// A [`Population`](super::population::Population) starts and stops these processes.
#[derive(Debug)]
pub struct Process {
    number: u32,
    child: Child,
    orders: mpsc::UnboundedSender<Order>,
    listening: JoinHandle<()>,
    record: Arc<Record>,
}

impl Process {
    /// Starts the process of a slot. The plan is sent through a pipe, because the URL in the plan
    /// may contain a password.
    pub fn start(plan: &Plan, program: &Program, place: usize, record: &Arc<Record>) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program has a path"));
        command.args(&program.args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        if let Some(group_of) = program.group_of {
            command.gid(group_of(place));
        }
        record.add(plan.process, EventKind::Started);
        let mut child = command.spawn().expect("this program can be started again");
        let mut input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let (orders, mut given) = mpsc::unbounded_channel();
        let plan_line = text(plan);
        tokio::spawn(async move {
            drop(input.write_all(plan_line.as_bytes()).await);
            while let Some(order) = given.recv().await {
                // A killed process does not need the order, so an error is ignored.
                drop(input.write_all(text(&order).as_bytes()).await);
            }
        });
        let listening =
            tokio::spawn(listen(plan.process, output, orders.clone(), Arc::clone(record)));
        Self { number: plan.process, child, orders, listening, record: Arc::clone(record) }
    }

    /// Returns the number of the process.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Pauses the process at an arbitrary point. Returns when it is paused.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        if let Some(id) = self.id() {
            let still = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            // If the process has exited, awaiting it later returns the error.
            let _ = waitid(WaitId::Pid(id), still);
        }
    }

    /// Resumes the process.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process, and waits until all of its output is recorded.
    pub async fn kill(mut self) {
        let at = now();
        self.signal(Signal::KILL);
        let status = self.child.wait().await.expect("a child can be waited for");
        // A process that had already failed does not count as killed.
        if status.signal() == Some(9) {
            self.record.add_at(at, self.number, EventKind::Killed);
        } else {
            self.record.add(self.number, EventKind::Ended);
        }
        self.listening.await.expect("listening does not panic");
    }

    /// Makes the process finish its work, and waits until the process has exited.
    pub async fn finish(mut self, within: Duration) {
        // A process that has failed cannot receive the order.
        drop(self.orders.send(Order::Finish));
        if timeout(within, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            drop(self.child.wait().await);
        }
        self.listening.await.expect("listening does not panic");
        self.record.add(self.number, EventKind::Ended);
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id() {
            // A child process keeps its ID until it is awaited. An error means that the process has
            // exited, and awaiting it later returns the error.
            let _ = kill_process(id, signal);
        }
    }

    fn id(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id()?.try_into().ok()?)
    }
}

async fn listen(
    process: u32,
    output: ChildStdout,
    orders: mpsc::UnboundedSender<Order>,
    record: Arc<Record>,
) {
    let mut lines = BufReader::with_capacity(1 << 16, output).lines();
    // The last line may end in the middle of a character.
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(order) = record.hear(process, &line) {
            drop(orders.send(order));
        }
    }
}
