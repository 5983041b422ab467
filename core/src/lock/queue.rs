//! Stage 2: our turn among the callers of this process.
//!
//! Callers that want one key queue here, first come first served, so that a process sends one
//! contender to the store, however many of its tasks want the key. Who has held it may leave the next one
//! its lease along with the turn.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock::{self, Clock};
use crate::error::{Error, ErrorKind, Operation};
use crate::key::LockKey;
use crate::lock::Wait;
use crate::lock::guard::LockGuard;
use crate::options::LockOptions;
use crate::owner::OwnerId;
use crate::sync::{Mutex, lock};

/// The queues of all keys. It keeps nothing for a key that nobody here holds or wants.
#[derive(Debug)]
pub(crate) struct LocalQueue {
    keys: Mutex<HashMap<LockKey, Waiters>>,
    max_waiters: usize,
}

/// Those behind the one who has the turn, if there ever was one: for most keys there is not. A waiter that has gone leaves
/// a closed sender.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "there is one for each key that is held, and most are empty"
)]
struct Waiters(Option<Box<VecDeque<Waiter>>>);

/// A caller that waits for its turn.
#[derive(Debug)]
pub(crate) struct Waiter {
    wish: Wish,
    sender: oneshot::Sender<Next>,
}

/// Which lease a caller would take over from the one before, instead of asking the store for its own.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// With these options; `None` if it must be its own.
    pub(crate) options: Option<Arc<LockOptions>>,
    pub(crate) owner: Option<OwnerId>,
}

/// What comes to a caller that has waited.
#[derive(Debug)]
pub(crate) enum Next {
    /// It may ask the store.
    Turn(Turn),
    /// The lease of the one before, and with it the turn.
    Guard(LockGuard),
}

/// The right to ask the store for a key, on behalf of this process. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn(Option<(Arc<LocalQueue>, LockKey)>);

impl LocalQueue {
    pub(crate) fn new(max_waiters: usize) -> Self {
        Self { keys: Mutex::default(), max_waiters }
    }

    /// Waits for our turn; `None` if it did not come within `wait`.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the place in the queue is lost, and a turn that was just given is passed on.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        key: &LockKey,
        wish: Wish,
        wait: Wait,
        clock: &dyn Clock,
    ) -> Result<Option<Next>, Error> {
        let Some(joined) = self.join(key, wish, wait)? else {
            return Ok(None);
        };
        let waiting = match joined {
            Joined::Turn(turn) => return Ok(Some(Next::Turn(turn))),
            Joined::Waiting(waiting) => waiting,
        };
        let next = clock::until(clock, wait.end(), waiting).await;
        let next = next.map(|next| next.expect("a turn is passed on for as long as anybody waits"));
        // A runtime that was stalled may tell of it before it tells that the time is over, and there is none left to ask the store.
        Ok(next.filter(|next| matches!(next, Next::Guard(_)) || clock.now() < wait.end()))
    }

    fn join(
        self: &Arc<Self>,
        key: &LockKey,
        wish: Wish,
        wait: Wait,
    ) -> Result<Option<Joined>, Error> {
        let mut keys = lock(&self.keys);
        let Some(waiters) = keys.get_mut(key) else {
            keys.insert(key.clone(), Waiters::default());
            return Ok(Some(Joined::Turn(Turn(Some((Arc::clone(self), key.clone()))))));
        };
        if matches!(wait, Wait::No) {
            return Ok(None);
        }
        let waiters = waiters.0.get_or_insert_default();
        if waiters.len() >= self.max_waiters {
            waiters.retain(|waiter| !waiter.sender.is_closed());
        }
        if waiters.len() >= self.max_waiters {
            let message =
                format!("{} callers of this process wait for it already", self.max_waiters);
            return Err(Error::new(ErrorKind::TooManyWaiters, message)
                .with_operation(Operation::Acquire)
                .with_key(key));
        }
        let (sender, receiver) = oneshot::channel();
        waiters.push_back(Waiter { wish, sender });
        Ok(Some(Joined::Waiting(receiver)))
    }

    /// Gives the turn to the first who still waits, or to nobody.
    fn pass_on(self: Arc<Self>, key: LockKey) {
        let mut turn = Turn(Some((self, key)));
        loop {
            let Some((queue, key)) = &turn.0 else { return };
            let Some(next) = queue.next(key) else {
                turn.0 = None;
                return;
            };
            match next.sender.send(Next::Turn(turn)) {
                Err(Next::Turn(refused)) => turn = refused,
                Ok(()) | Err(Next::Guard(_)) => return,
            }
        }
    }

    fn next(&self, key: &LockKey) -> Option<Waiter> {
        let mut keys = lock(&self.keys);
        // Most often nobody waits, and nothing is to be left.
        let (key, mut waiters) = keys.remove_entry(key)?;
        let next = waiters.0.as_mut().and_then(|waiters| waiters.pop_front());
        if next.is_some() {
            keys.insert(key, waiters);
        }
        next
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.keys).len()
    }
}

enum Joined {
    Turn(Turn),
    Waiting(oneshot::Receiver<Next>),
}

impl Turn {
    /// Takes the next caller out of the queue, if it would take over a lease that was taken with `options`.
    ///
    /// One that would not is passed by nobody.
    pub(crate) fn next_who_takes_over(&self, options: &Arc<LockOptions>) -> Option<Waiter> {
        let (queue, key) = self.0.as_ref()?;
        let mut keys = lock(&queue.keys);
        let waiters = keys.get_mut(key)?.0.as_mut()?;
        let wanted = waiters.front()?.wish.options.as_ref()?;
        let fits = Arc::ptr_eq(wanted, options) || wanted.ask_for_the_same_lease(options);
        if fits { waiters.pop_front() } else { None }
    }
}

impl Waiter {
    pub(crate) fn owner(&self) -> Option<OwnerId> {
        self.wish.owner
    }

    /// Gives it the lease; back if it has gone.
    pub(crate) fn give(self, guard: LockGuard) -> Result<(), LockGuard> {
        match self.sender.send(Next::Guard(guard)) {
            Err(Next::Guard(refused)) => Err(refused),
            Ok(()) | Err(Next::Turn(_)) => Ok(()),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((queue, key)) = self.0.take() {
            queue.pass_on(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::clock::{Instant, TokioClock};

    fn queue(max_waiters: usize) -> (Arc<LocalQueue>, LockKey) {
        (Arc::new(LocalQueue::new(max_waiters)), LockKey::new("k").unwrap())
    }

    const FOR_EVER: Wait = Wait::Until(Instant::FAR_FUTURE);

    /// Waits for the right to ask the store.
    async fn turn(
        queue: &Arc<LocalQueue>,
        key: &LockKey,
        wait: Wait,
        clock: &dyn Clock,
    ) -> Result<Option<Turn>, Error> {
        let wish = Wish { options: None, owner: None };
        Ok(queue.turn(key, wish, wait, clock).await?.map(|next| match next {
            Next::Turn(turn) => turn,
            Next::Guard(guard) => panic!("nobody wants {guard:?}"),
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_the_order_of_asking() {
        let (queue, key) = queue(10);
        let clock = TokioClock::new();
        let first = turn(&queue, &key, FOR_EVER, &clock).await.unwrap().unwrap();
        let mut second = Box::pin(turn(&queue, &key, FOR_EVER, &clock));
        let mut third = Box::pin(turn(&queue, &key, FOR_EVER, &clock));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());

        drop(first);

        assert!((&mut third).now_or_never().is_none());
        let second = second.await.unwrap().unwrap();
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        assert!(third.await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_leaves_is_passed_over_even_with_the_turn_in_hand() {
        let (queue, key) = queue(10);
        let clock = TokioClock::new();
        let first = turn(&queue, &key, FOR_EVER, &clock).await.unwrap().unwrap();
        let mut second = Box::pin(turn(&queue, &key, FOR_EVER, &clock));
        let mut third = Box::pin(turn(&queue, &key, FOR_EVER, &clock));
        let mut fourth = Box::pin(turn(&queue, &key, FOR_EVER, &clock));
        for waiter in [&mut second, &mut third, &mut fourth] {
            assert!(waiter.now_or_never().is_none());
        }

        drop(second);
        drop(first);
        drop(third);

        assert!(fourth.await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_waited_for_no_longer_than_asked() {
        let (queue, key) = queue(10);
        let clock = TokioClock::new();
        let _first = turn(&queue, &key, FOR_EVER, &clock).await.unwrap().unwrap();

        assert!(turn(&queue, &key, Wait::No, &clock).await.unwrap().is_none());
        let deadline = clock.now() + Duration::from_secs(5);
        assert!(turn(&queue, &key, Wait::Until(deadline), &clock).await.unwrap().is_none());
        assert_eq!(clock.now(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_limited_and_those_who_left_do_not_count() {
        let (queue, key) = queue(1);
        let clock = TokioClock::new();
        let _first = turn(&queue, &key, FOR_EVER, &clock).await.unwrap().unwrap();
        let mut second = Box::pin(turn(&queue, &key, FOR_EVER, &clock));
        assert!((&mut second).now_or_never().is_none());

        let refused = turn(&queue, &key, FOR_EVER, &clock).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooManyWaiters);

        drop(second);
        assert!(turn(&queue, &key, FOR_EVER, &clock).now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_keys_that_nobody_wants() {
        let (queue, key) = queue(10);
        let clock = TokioClock::new();
        let first = turn(&queue, &key, FOR_EVER, &clock).await.unwrap().unwrap();
        assert!(turn(&queue, &key, FOR_EVER, &clock).now_or_never().is_none());
        assert_eq!(queue.len(), 1);

        drop(first);

        assert_eq!(queue.len(), 0);
    }
}
