//! Group commit: calls that come while others are under way leave together, in one round trip.
//!
//! A call that finds hardly any under way is sent at once, by its caller. The others are sent by tasks, each of which takes all that
//! have come since the last round trip began. They wait for no caller: one that has stopped polling keeps nobody from being served.
//!
//! Whoever gives up an acquisition releases it, in case it was granted. So what was asked for first is sent first, and what has
//! to be sent once more is not if its caller has gone.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;

use crate::batch::{self, Batch, Form, MAX_CALLS, Outcome, unfinished};
use crate::call::Call;
use crate::client::{Client, Received, Request, Run};
use crate::line::{Current, Line};

/// As many round trips as keep both sides busy: while the server does what is in one, we read the replies of the other.
const AT_ONCE: usize = 2;

/// As many bytes leave together as a connection takes at once, or one call.
const MAX_BYTES: usize = 128 * 1024;

/// The calls that go to one server.
pub(crate) struct Group<C: Client> {
    line: Arc<Line<C>>,
    /// How calls are sent at first.
    form: Form,
    /// Whoever sends holds it while it takes and sends: what was taken first is sent first, and what was taken before its caller gave
    /// up is sent before what that asks for next.
    order: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many callers are under way by themselves.
    alone: usize,
    /// How many tasks send those who wait.
    tasks: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    call: Call,
    form: Form,
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
    pub(crate) fn new(line: &Arc<Line<C>>, form: Form) -> Arc<Self> {
        let (order, state) = (Mutex::default(), Mutex::default());
        Arc::new(Self { line: Arc::clone(line), form, order, state })
    }

    /// Runs `call`: at once if hardly anything else is under way, or else with those that wait as well.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The call may then have been sent or not, and is not sent later than what its caller asks for next.
    pub(crate) async fn run(self: &Arc<Self>, call: &Call) -> Result<Received, Error> {
        match self.depart(call) {
            Way::Alone(_alone) => {
                let requests = [Request::ByHash(Run::one(&call))];
                let run = batch::run(&self.line, requests, Duration::ZERO);
                let [received] = in_order(&self.order, run).await?;
                Ok(received)
            }
            Way::Together(reply) => reply.await.unwrap_or_else(|_gone| Err(abandoned())),
        }
    }

    fn depart<'a>(self: &'a Arc<Self>, call: &Call) -> Way<'a, C> {
        let mut state = self.state();
        let runtime = match Handle::try_current() {
            Ok(runtime) if state.alone + state.tasks >= AT_ONCE => runtime,
            _ => {
                state.alone += 1;
                return Way::Alone(Alone(self));
            }
        };
        let (reply, receiver) = oneshot::channel();
        state.waiting.push_back(Waiting { call: call.clone(), form: self.form, reply });
        if state.tasks < AT_ONCE {
            state.tasks += 1;
            drop(state);
            runtime.spawn(Departures(Some(Arc::clone(self))).run());
        }
        Way::Together(receiver)
    }

    /// Sends those that leave next, and tells them what came of it. `false` if nobody waits: then the task is to end, and there may
    /// be another from then on.
    async fn send_next(&self, current: &Current<C::Link>) -> bool {
        let next = self.next();
        if next.is_empty() {
            return false;
        }
        let calls = next.iter().map(|waiting| (&waiting.call, waiting.form));
        match Batch::new(calls).send(&self.line, current).await {
            Ok(outcomes) => self.tell(next, outcomes),
            Err(error) => {
                for waiting in next {
                    waiting.tell(Err(error.repeated()));
                }
            }
        }
        true
    }

    /// Those that leave next. None if nobody waits, and then there is a task less.
    fn next(&self) -> Vec<Waiting> {
        let mut state = self.state();
        let mut next = Vec::with_capacity(state.waiting.len().min(MAX_CALLS));
        let (mut given_up, mut bytes) = (Vec::new(), 0);
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
        if next.is_empty() {
            state.tasks -= 1;
        }
        drop(state);
        // Not locked any more: what ends with them may wake others.
        drop(given_up);
        next
    }

    /// Tells each what came of its call, or sends it once more, before all others.
    fn tell(&self, sent: Vec<Waiting>, outcomes: Vec<Outcome>) {
        let mut again = Vec::new();
        for (waiting, outcome) in sent.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Received(received) => waiting.tell(Ok(received)),
                Outcome::Again(form) => again.push(Waiting { form, ..waiting }),
            }
        }
        let mut state = self.state();
        again.into_iter().rev().for_each(|waiting| state.waiting.push_front(waiting));
    }

    /// There is a task less, because of `error`. The last one tells those who wait, since nobody sends them any more.
    fn give_up(&self, error: &Error) {
        let mut state = self.state();
        state.tasks -= 1;
        let left = if state.tasks == 0 { mem::take(&mut state.waiting) } else { VecDeque::new() };
        drop(state);
        for waiting in left {
            let was_sent = waiting.form != self.form;
            waiting.tell(Err(if was_sent { unfinished() } else { error.repeated() }));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn tell(self, outcome: Result<Received, Error>) {
        // Who has gone meanwhile knows that it may have been done.
        drop(self.reply.send(outcome));
    }
}

impl<C: Client> Drop for Alone<'_, C> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

/// A task that sends those who wait, until nobody does.
struct Departures<C: Client>(Option<Arc<Group<C>>>);

impl<C: Client> Departures<C> {
    async fn run(mut self) {
        while let Some(group) = &self.0 {
            match group.line.current().await {
                Ok(current) if in_order(&group.order, group.send_next(&current)).await => {}
                Ok(_nobody_waits) => self.0 = None,
                Err(error) => {
                    group.give_up(&error);
                    self.0 = None;
                }
            }
        }
    }
}

/// The runtime may end under it.
impl<C: Client> Drop for Departures<C> {
    fn drop(&mut self) {
        if let Some(group) = &self.0 {
            let message = "the runtime that was to send it has ended";
            group.give_up(&Error::new(ErrorKind::Unavailable, message));
        }
    }
}

/// Runs `future`, the beginning of it with `order` locked.
async fn in_order<F: Future>(order: &Mutex<()>, future: F) -> F::Output {
    // Unconstrained, since a beginning that was put off would have sent nothing.
    let mut future = pin!(unconstrained(future));
    let begun = poll_fn(|context| {
        let _order = order.lock().unwrap_or_else(PoisonError::into_inner);
        Poll::Ready(future.as_mut().poll(context))
    });
    match begun.await {
        Poll::Ready(output) => output,
        Poll::Pending => future.await,
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
    use leasehold_core::clock::SystemClock;
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
        (group_of(&fake), fake)
    }

    fn group_of(fake: &Fake) -> Arc<Group<Fake>> {
        let news = Arc::new(News::new(Layout::default()));
        let clock = Arc::new(SystemClock);
        let shared = Shared::new(fake.clone(), TIMEOUT, clock, news, true, Protocol::Resp3);
        let line = Line::new(Fake::address(1), Access::default(), Role::Store, &shared);
        Group::new(&line, Form::TOGETHER)
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    impl Group<Fake> {
        fn is_idle(&self) -> bool {
            let state = self.state();
            state.waiting.is_empty() && state.alone == 0 && state.tasks == 0
        }
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
        assert_eq!(fake.round_trips(), [1, 1, 1, 8]);
        assert!(group.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_goes_at_once_and_alone() {
        let (group, fake) = group();
        for _ in 0..3 {
            group.run(&call("k")).await.unwrap().unwrap();
        }

        assert_eq!(fake.round_trips(), [1, 1, 1, 1]);
        assert!(group.is_idle());
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
    async fn a_refused_call_fails_alone() {
        let (group, _fake) = group();
        let calls = ["a", "bad", "c", "bad", "e"].map(call);

        let replies = join_all(calls.iter().map(|call| group.run(call))).await;

        let refused: Vec<bool> = replies.into_iter().map(|reply| reply.unwrap().is_err()).collect();
        assert_eq!(refused, [false, true, false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_break_is_told_to_all() {
        let (group, fake) = group();
        group.line.connect().await.unwrap();
        let calls = ["a", "b", "c"].map(call);
        fake.remove("h:1");

        let replies = join_all(calls.iter().map(|call| group.run(call))).await;

        for reply in replies {
            let kind = reply.unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::Indeterminate | ErrorKind::Unavailable), "{kind:?}");
        }
        assert!(group.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_are_polled_no_more_keep_nobody_waiting() {
        let (group, fake) = group();
        let calls = ["first", "second", "third", "fourth"].map(call);
        let mut stuck: Vec<_> = calls.iter().map(|call| Box::pin(group.run(call))).collect();
        for call in &mut stuck {
            assert!(call.now_or_never().is_none());
        }

        group.run(&call("other")).await.unwrap().unwrap();

        // To ask for news; those who waited, while the connection was made; the first two never got as far.
        assert_eq!(fake.round_trips(), [1, 3]);
        for reply in join_all(stuck).await {
            reply.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_given_up_while_waiting_is_not_sent() {
        let (group, fake) = group();
        group.line.connect().await.unwrap();
        let calls = ["first", "second", "third", "gone", "fourth"].map(call);
        let mut waiting: Vec<_> = calls.iter().map(|call| Box::pin(group.run(call))).collect();
        for call in &mut waiting {
            assert!(call.now_or_never().is_none());
        }

        drop(waiting.remove(3));
        join_all(waiting).await;

        assert_eq!(fake.round_trips(), [1, 1, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_given_up_meanwhile_is_not_sent_once_more() {
        let (group, fake) = group();
        group.line.connect().await.unwrap();
        fake.serve("h:1", |_words| Some(Err(ServerError::new("NOSCRIPT", "No matching script."))));
        let calls = ["first", "second", "stays", "gone"].map(call);
        let mut waiting: Vec<_> = calls.iter().map(|call| Box::pin(group.run(call))).collect();
        for call in &mut waiting {
            assert!(call.now_or_never().is_none());
        }
        tokio::time::sleep(SLOW / 2).await;

        drop(waiting.remove(3));
        join_all(waiting).await;

        // The first two; both others; the first two in full; and one of the others.
        assert_eq!(fake.round_trips(), [1, 1, 1, 2, 1, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_sends_at_a_time() {
        let fake = Fake::default();
        fake.serve("h:1", |_words| Some(Ok(Reply::Other)));
        let group = group_of(&fake);
        group.line.connect().await.unwrap();
        let (sending, others_wait) = (Arc::downgrade(&group), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&others_wait);
        // It replies while it is sent to.
        fake.serve("h:1", move |words| {
            let group = sending.upgrade().unwrap();
            seen.lock().unwrap().push((words[3].clone(), group.order.try_lock().is_err()));
            (!words[3].contains("hangs")).then_some(Ok(Reply::Int(1)))
        });

        let calls = ["hangs", "hangs-too"].map(call);
        let mut alone: Vec<_> = calls.iter().map(|call| Box::pin(group.run(call))).collect();
        for call in &mut alone {
            assert!(call.now_or_never().is_none());
        }
        group.run(&call("together")).await.unwrap().unwrap();

        let expected = ["lock:hangs", "lock:hangs-too", "lock:together"];
        assert_eq!(*others_wait.lock().unwrap(), expected.map(|name| (name.to_owned(), true)));
    }

    #[test]
    fn a_runtime_that_ends_tells_those_who_wait() {
        let (group, _fake) = group();
        let calls = ["first", "second", "sent", "sent too", "waits"].map(call);
        let ends = runtime();
        let mut told: Vec<_> = calls.iter().map(|call| Box::pin(group.run(call))).collect();
        ends.block_on(async {
            group.line.connect().await.unwrap();
            for call in &mut told[..4] {
                assert!(call.now_or_never().is_none());
            }
            // Now they are sent, by both tasks or one.
            yield_now().await;
            assert!((&mut told[4]).now_or_never().is_none());
        });
        drop(ends);

        let other = runtime();
        let told = other.block_on(join_all(told.drain(2..)));
        let told: Vec<_> =
            told.into_iter().map(|told| told.map_err(|error| error.kind())).collect();

        let (sent, waits) = (ErrorKind::Indeterminate, ErrorKind::Unavailable);
        assert_eq!(told, [Err(sent), Err(sent), Err(waits)]);
        assert_eq!(other.block_on(group.run(&call("next"))).unwrap(), Ok(Reply::Int(1)));
    }
}
