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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use leasehold_core::LockKey;
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;

    use super::*;
    use crate::client::{Access, Protocol};
    use crate::error::ServerError;
    use crate::fake::Fake;
    use crate::layout::Layout;
    use crate::line::Role;
    use crate::reply::Reply;
    use crate::shared::Shared;
    use crate::watch::News;

    const TIMEOUT: Duration = Duration::from_millis(500);
    const SLOW: Duration = Duration::from_millis(10);

    /// The group of one server, which takes its time, and refuses what is named `bad`.
    fn group() -> (Arc<Group<Fake>>, Fake) {
        let fake = Fake::default();
        fake.serve("h:1", |words| match words[0].as_str() {
            "CLIENT" => Some(Ok(Reply::Other)),
            _ if words[3].contains("bad") => Some(Err(ServerError::new("OOM", "no memory"))),
            _ => Some(Ok(Reply::Int(1))),
        });
        fake.delay("h:1", SLOW);
        let news = Arc::new(News::new(Layout::default()));
        let shared = Shared::new(fake.clone(), TIMEOUT, news, true, Protocol::Resp3);
        let line = Line::new(Fake::address(1), Access::default(), Role::Store, &shared);
        (Group::new(&line), fake)
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn call(name: &str) -> Call {
        Call::inspect(&Layout::default(), &LockKey::new(name).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_come_meanwhile_leave_together() {
        let (group, fake) = group();
        group.line.connect().await.unwrap();
        let calls: Vec<Call> = (0..10).map(|n| call(&format!("k{n}"))).collect();

        for reply in join_all(calls.iter().map(|call| group.run(call))).await {
            assert_eq!(reply.unwrap(), Ok(Reply::Int(1)));
        }

        // One to ask for news.
        assert_eq!(fake.round_trips(), [1, 1, 9]);
        assert!(group.state().waiting.is_empty() && !group.state().departs);
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_goes_at_once_and_alone() {
        let (group, fake) = group();
        for _ in 0..3 {
            group.run(&call("k")).await.unwrap().unwrap();
        }

        assert_eq!(fake.round_trips(), [1, 1, 1, 1]);
        assert_eq!(group.state().alone, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_leave_together_than_may() {
        let (group, fake) = group();
        let calls: Vec<Call> = (0..300).map(|n| call(&format!("k{n}"))).collect();

        join_all(calls.iter().map(|call| group.run(call))).await;

        assert_eq!(fake.round_trips().iter().sum::<usize>(), 301);
        assert_eq!(fake.round_trips().into_iter().max(), Some(MAX_CALLS));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_fails_alone() {
        let (group, _fake) = group();
        let calls = ["a", "bad", "c", "bad", "e"].map(call);

        let replies = join_all(calls.iter().map(|call| group.run(call))).await;

        let refused: Vec<bool> = replies.into_iter().map(|reply| reply.unwrap().is_err()).collect();
        assert_eq!(refused, [false, true, false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_breaks_tells_all() {
        let (group, fake) = group();
        group.line.connect().await.unwrap();
        let calls = ["a", "b", "c"].map(call);
        fake.remove("h:1");

        let replies = join_all(calls.iter().map(|call| group.run(call))).await;

        for reply in replies {
            let kind = reply.unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Indeterminate | ErrorKind::Unavailable), "{kind:?}");
        }
        assert!(!group.state().departs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_polled_no_more_keeps_nobody_waiting() {
        let (group, _fake) = group();
        group.line.connect().await.unwrap();
        let (stuck, other) = (call("stuck"), call("other"));
        let mut stuck = Box::pin(group.run(&stuck));
        assert!((&mut stuck).now_or_never().is_none());

        group.run(&other).await.unwrap().unwrap();

        stuck.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_while_waiting_is_not_sent() {
        let (group, fake) = group();
        group.line.connect().await.unwrap();
        let calls = ["first", "second", "gone", "stays"].map(call);
        let mut waiting: Vec<_> = calls.iter().map(|call| Box::pin(group.run(call))).collect();
        for call in &mut waiting {
            assert!(call.now_or_never().is_none());
        }

        drop(waiting.remove(2));
        join_all(waiting).await;

        assert_eq!(fake.round_trips(), [1, 1, 2]);
    }

    #[test]
    fn a_runtime_that_ends_tells_those_who_wait() {
        let (group, _fake) = group();
        let (first, second, third) = (call("first"), call("second"), call("third"));
        let ends = runtime();
        let mut alone = Box::pin(group.run(&first));
        let mut waits = Box::pin(group.run(&second));
        ends.block_on(async {
            assert!((&mut alone).now_or_never().is_none());
            assert!((&mut waits).now_or_never().is_none());
            yield_now().await;
        });
        drop(ends);

        let other = runtime();
        let told = other.block_on(waits);
        drop(alone);

        assert_eq!(told.unwrap_err().kind(), ErrorKind::Indeterminate);
        assert_eq!(other.block_on(group.run(&third)).unwrap(), Ok(Reply::Int(1)));
    }
}
