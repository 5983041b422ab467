//! Group commit: calls that come while another one is under way leave together, in one round trip.
//!
//! A call that finds nobody under way is sent at once, by its caller. The others are sent by a task, which takes all that have come
//! since its last round trip. It waits for no caller: one that has stopped polling keeps nobody from being served.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::call::Call;
use crate::client::{Client, Received};
use crate::line::Line;
use crate::server::{call_all, spread};

/// As many calls leave together as keep a server from others for a millisecond or so.
const MAX_CALLS: usize = 128;

/// As many bytes leave together as a connection takes at once, or one call.
const MAX_BYTES: usize = 128 * 1024;

/// The calls that go to one server.
pub(crate) struct Group<C: Client> {
    line: Arc<Line<C>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many callers are under way by themselves.
    alone: usize,
    /// Whether the task is there that sends those who wait.
    departs: bool,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    call: Call,
    reply: oneshot::Sender<Result<Received, Error>>,
}

/// How a call goes.
enum Way<'a, C: Client> {
    Alone(Alone<'a, C>),
    Together(oneshot::Receiver<Result<Received, Error>>),
}

/// A caller under way by itself.
struct Alone<'a, C: Client>(&'a Group<C>);

impl<C: Client> Group<C> {
    pub(crate) fn new(line: &Arc<Line<C>>) -> Arc<Self> {
        Arc::new(Self { line: Arc::clone(line), state: Mutex::default() })
    }

    /// Runs `call`: at once if nothing else is under way, or else with those that wait as well.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The call may then have been sent or not, and is not sent later than what its caller asks for next.
    pub(crate) async fn run(self: &Arc<Self>, call: &Call) -> Result<Received, Error> {
        match self.depart(call) {
            Way::Alone(_alone) => {
                let mut replies = call_all(&self.line, &[call]).await?;
                Ok(replies.remove(0))
            }
            Way::Together(reply) => reply.await.unwrap_or_else(|_gone| Err(abandoned())),
        }
    }

    fn depart<'a>(self: &'a Arc<Self>, call: &Call) -> Way<'a, C> {
        let mut state = self.state();
        let runtime = match Handle::try_current() {
            Ok(runtime) if state.alone > 0 || state.departs => runtime,
            _ => {
                state.alone += 1;
                return Way::Alone(Alone(self));
            }
        };
        let (reply, receiver) = oneshot::channel();
        state.waiting.push_back(Waiting { call: call.clone(), reply });
        if !mem::replace(&mut state.departs, true) {
            drop(state);
            runtime.spawn(Departures(Some(Arc::clone(self))).run());
        }
        Way::Together(receiver)
    }

    /// Those that leave next; none if nobody waits, and then the task is to end.
    fn next(&self) -> Vec<Waiting> {
        let mut state = self.state();
        let (mut next, mut given_up, mut bytes) = (Vec::new(), Vec::new(), 0);
        while next.len() < MAX_CALLS
            && let Some(first) = state.waiting.front()
        {
            bytes += first.call.size();
            if bytes > MAX_BYTES && !next.is_empty() {
                break;
            }
            let first = state.waiting.pop_front().expect("it was there just now");
            let stays = !first.reply.is_closed();
            if stays { next.push(first) } else { given_up.push(first) }
        }
        state.departs = !next.is_empty();
        drop(state);
        // Not locked any more: what ends with them may wake others.
        drop(given_up);
        next
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Client> Drop for Alone<'_, C> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

/// The task that sends those who wait, until nobody does.
struct Departures<C: Client>(Option<Arc<Group<C>>>);

impl<C: Client> Departures<C> {
    async fn run(mut self) {
        while let Some(group) = &self.0 {
            let together = group.next();
            if together.is_empty() {
                // From now on there may be another task.
                self.0 = None;
                return;
            }
            let calls: Vec<&Call> = together.iter().map(|waiting| &waiting.call).collect();
            let replies = spread(call_all(&group.line, &calls).await, calls.len());
            for (waiting, reply) in together.into_iter().zip(replies) {
                // Who has gone meanwhile knows that it may have been done.
                drop(waiting.reply.send(reply));
            }
        }
    }
}

/// If the runtime ends under it, those who wait are told, and the next one starts another.
impl<C: Client> Drop for Departures<C> {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            let mut state = group.state();
            state.departs = false;
            let left = mem::take(&mut state.waiting);
            drop(state);
            // Not locked any more: it wakes them.
            drop(left);
        }
    }
}

fn abandoned() -> Error {
    Error::new(ErrorKind::Indeterminate, "the runtime that ran it has ended, outcome unknown")
}
