//! A process that works on the store, as the one that started it sees it.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::line::{Line, Plan, Received, text};
use crate::now;
use crate::record::Record;

/// A process. It is killed when dropped.
pub(crate) struct Process {
    number: u32,
    child: Child,
    listening: JoinHandle<()>,
    record: Arc<Record>,
}

impl Process {
    pub(crate) fn start(plan: &Plan, record: &Arc<Record>) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program has a path"))
            .args(["--child", text(plan).trim_end()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program can be started again");
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let listening = tokio::spawn(listen(plan.process, output, input, Arc::clone(record)));
        Self { number: plan.process, child, listening, record: Arc::clone(record) }
    }

    /// Stops it, wherever it is, until it is told to go on.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and waits until all is recorded that it said.
    pub(crate) async fn kill(mut self) {
        self.record.killed(self.number, now());
        self.signal(Signal::KILL);
        let status = self.child.wait().await.expect("a child can be waited for");
        assert_eq!(status.signal(), Some(9), "process {} has failed", self.number);
        self.listening.await.expect("listening does not panic");
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let id = id.expect("it was not waited for");
        // An unreaped child keeps its id. An error means that it has ended, which is found when it is waited for.
        let _ = kill_process(id, signal);
    }
}

async fn listen(process: u32, output: ChildStdout, mut input: ChildStdin, record: Arc<Record>) {
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await.expect("a child's output can be read") {
        // The last line may be half, if its process was killed.
        match serde_json::from_str(&line) {
            Ok(Line::Event(event)) => record.add(event),
            Ok(Line::Write { hold, key, token }) => {
                record.write(process, hold, key, token);
                // A process that was killed need not know.
                drop(input.write_all(text(&Received { hold }).as_bytes()).await);
            }
            Err(_half) => {}
        }
    }
}
