//! Reports of a process on its beliefs.

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_simulation::{Event, EventKind};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::line::{Line, Received, text};

type Waiting = Mutex<HashMap<u64, oneshot::Sender<()>>>;

/// Writes the beliefs of a process to its standard output: a line that is in the pipe outlives the process.
#[derive(Debug)]
pub(super) struct Teller {
    process: u32,
    holds: AtomicU64,
    /// The writes that wait for an answer of the resource.
    waiting: Arc<Waiting>,
}

impl Teller {
    pub(super) fn new(process: u32) -> Self {
        let waiting = Arc::<Waiting>::default();
        let listener = Arc::clone(&waiting);
        thread::spawn(move || listen(&listener));
        Self { process, holds: AtomicU64::new(1), waiting }
    }

    pub(super) fn next_hold(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn tell(&self, at: Duration, hold: u64, kind: EventKind) {
        say(&Line::Event(Event { at, process: self.process, hold, kind }));
    }

    /// Writes to the resource, and waits until that has received it.
    pub(super) async fn write(&self, hold: u64, key: &str, token: u64) {
        let (sender, received) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(hold, sender);
        say(&Line::Write { hold, key: key.to_owned(), token });
        received.await.expect("the resource answers");
    }
}

fn say(line: &impl Serialize) {
    let mut output = stdout().lock();
    let said = output.write_all(text(line).as_bytes()).and_then(|()| output.flush());
    // Without a parent, this process is about to end.
    drop(said);
}

/// Hears of the resource, and of the parent's end.
fn listen(waiting: &Waiting) {
    for line in stdin().lock().lines().map_while(Result::ok) {
        let received: Received =
            serde_json::from_str(&line).expect("parents and children share the type");
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiter = waiting.remove(&received.hold).expect("it wrote");
        // A task that has left need not know.
        let _ = waiter.send(());
    }
    exit(1);
}
