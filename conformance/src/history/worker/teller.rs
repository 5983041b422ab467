//! Sends the reports of a process.

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::pipe::fcntl_setpipe_size;
use tokio::sync::oneshot;

use crate::history::event::{EventKind, now};
use crate::history::line::{Line, Order, Said, text};

/// The largest pipe that an unprivileged process may create, so that a slow campaign does not delay
/// clients.
const PIPE: usize = 1 << 20;

/// Writes the reports of a process to its standard output. A line in the pipe is not lost if the
/// process is killed.
#[derive(Debug)]
pub(super) struct Teller {
    numbers: AtomicU64,
    lines: Mutex<u64>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The requests that wait for a reply from the resource, by hold.
    waiting: Mutex<HashMap<u64, oneshot::Sender<u64>>>,
    is_finishing: AtomicBool,
}

impl Teller {
    pub(super) fn new() -> Self {
        // A smaller pipe works too.
        let _ = fcntl_setpipe_size(stdout(), PIPE);
        let state = Arc::<State>::default();
        let listener = Arc::clone(&state);
        thread::spawn(move || listener.listen());
        Self { numbers: AtomicU64::new(1), lines: Mutex::new(0), state }
    }

    /// Returns a number that is unique among the calls and holds of this process.
    pub(super) fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.state.is_finishing.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, kind: EventKind) {
        self.tell_at(now(), kind);
    }

    pub(super) fn tell_at(&self, at: Duration, kind: EventKind) {
        self.say(Said::Event { at, kind });
    }

    /// Sends a request to the resource, and waits until it has completed.
    pub(super) async fn ask(&self, hold: u64, request: Said) -> u64 {
        let (sender, done) = oneshot::channel();
        self.state.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(hold, sender);
        self.say(request);
        done.await.expect("the resource answers")
    }

    fn say(&self, said: Said) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = text(&Line { n: *lines, said });
        *lines += 1;
        let mut output = stdout().lock();
        let written = output.write_all(line.as_bytes()).and_then(|()| output.flush());
        // An error means that the campaign has ended, so this process is about to exit.
        drop(written);
    }
}

impl State {
    /// Handles replies from the resource, the order to finish, and the end of the campaign.
    fn listen(&self) {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let order = serde_json::from_str(&line).expect("parents and children share the type");
            match order {
                Order::Done { hold, value } => {
                    let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    let waiter = waiting.remove(&hold).expect("it asked");
                    // Work that was dropped does not need the reply.
                    let _ = waiter.send(value);
                }
                Order::Finish => self.is_finishing.store(true, Ordering::Relaxed),
            }
        }
        exit(1);
    }
}
