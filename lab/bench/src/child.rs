//! Other processes: this program once more, with a plan on its command line.
//!
//! A child connects, says that it is ready, waits for the word and reports in one line. It ends when its parent closes its
//! input, also by ending itself.

use std::env;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::{ExitCode, Stdio, exit};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use crate::args::Args;

const READY: &str = "ready";
const GO: &str = "go";

/// A scenario that uses child processes.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum PlannedScenario {
    HandOver,
    Crowd,
    Held,
}

/// A child, as its parent sees it. It is killed when dropped.
pub(crate) struct Child {
    process: Process,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a child with a plan of the scenario, and waits until the child is ready.
    pub(crate) async fn start(
        workers: &Workers,
        scenario: PlannedScenario,
        plan: &impl Serialize,
    ) -> Self {
        let plan = serde_json::to_string(&(scenario, plan)).expect("plans are plain data");
        let mut process = Command::new(env::current_exe().expect("this program has a path"))
            .args(["--workers", &workers.0.to_string(), "--child", &plan])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program can be started again");
        let input = process.stdin.take().expect("it is piped");
        let output = process.stdout.take().expect("it is piped");
        let mut child = Self { process, input, output: BufReader::new(output).lines() };
        assert_eq!(child.line().await, READY);
        child
    }

    /// Gives the word.
    pub(crate) async fn go(&mut self) {
        let word = format!("{GO}\n");
        self.input.write_all(word.as_bytes()).await.expect("the child waits for it");
    }

    /// Waits for its report, and until it has ended.
    pub(crate) async fn report<T: DeserializeOwned>(mut self) -> T {
        let line = self.line().await;
        drop(self.input);
        self.process.wait().await.expect("a child can be waited for");
        serde_json::from_str(&line).expect("children report in the type that parents read")
    }

    async fn line(&mut self) -> String {
        let line = self.output.next_line().await.expect("the child's output can be read");
        line.expect("a child that fails says why on standard error")
    }
}

/// How many threads the runtimes of children have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workers(usize);

impl Workers {
    pub(crate) fn of(args: &Args) -> Self {
        Self(args.workers)
    }
}

/// The word of the parent, to a child.
pub(crate) struct Word(oneshot::Receiver<()>);

impl Word {
    /// Tells the parent that all is ready, and waits for its word.
    pub(crate) async fn wait(self) {
        say(READY);
        // Without a parent, this process is about to end.
        self.0.await.unwrap_or_else(|_gone| exit(1));
    }
}

/// Carries out a plan, and reports the result to the parent.
pub(crate) async fn run<P, F>(plan: Value, work: impl FnOnce(P, Word) -> F) -> ExitCode
where
    P: DeserializeOwned,
    F: Future<Output: Serialize + Send> + Send + 'static,
{
    let plan = serde_json::from_value(plan).expect("parents and children share the type of plans");
    // In a task, as in the parent.
    let report = tokio::spawn(work(plan, listen()));
    match report.await {
        Ok(report) => say(&serde_json::to_string(&report).expect("reports are plain data")),
        Err(_panicked) => exit(1),
    }
    // Held locks die with their store. To give them back would take longer than the measurement.
    exit(0)
}

fn say(line: &str) {
    let mut output = stdout().lock();
    // Without a parent, the line has no reader.
    drop(writeln!(output, "{line}").and_then(|()| output.flush()));
}

/// Hears the parent's word, and its end.
fn listen() -> Word {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut word = Some(sender);
        for line in stdin().lock().lines().map_while(Result::ok) {
            if let (GO, Some(word)) = (line.as_str(), word.take()) {
                let _ = word.send(());
            }
        }
        exit(1);
    });
    Word(receiver)
}
