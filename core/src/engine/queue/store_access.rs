//! The turn: the right to send requests for one key to the store on behalf of this process. When a
//! caller has finished, its turn passes to the next caller of the key.

use std::sync::Arc;

use super::key_queue::{HeldLease, KeyStatus, LetIn, ReportedHolder, Ticket};
use super::key_queues::{self, SharedKeyQueue};
use super::waiter::Waiter;
use crate::clock::Instant;
use crate::contract::backend::Mode;
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::options::LockOptions;
use crate::sync::lock;

/// The queues of callers, each of which waits for its [`Next`].
pub(super) type KeyQueues<H> = key_queues::KeyQueues<H, Next<H>>;

/// The result for a caller that requested a key.
#[derive(Debug)]
pub(crate) enum Next<H: HeldLease> {
    /// The caller may send requests to the store.
    Ask(StoreAccess<H>),
    /// The lease of the previous holder, together with the turn.
    Guard(H::Guard),
    /// Another client holds the key. The holder is included if it is known.
    Held(Option<Holder>),
}

/// How a caller sends requests to the store.
#[derive(Debug)]
pub(crate) enum StoreAccess<H: HeldLease> {
    /// On behalf of this process, until the caller is granted a lease or gives up.
    Turn(Turn<H>),
    /// Without the turn, as one of the waiting callers.
    Parallel(Parallel<H>),
    /// Independently of the queue, like a caller in a different process.
    Alone,
}

/// The right to request a key from the store on behalf of this process. Dropping this value passes
/// the right to the next caller.
#[derive(Debug)]
pub(crate) struct Turn<H: HeldLease> {
    of: Option<(Arc<KeyQueues<H>>, LockKey)>,
    /// The queue behind this caller. Set when [`has_queue`](Self::has_queue) first finds a queue.
    queue: Option<SharedKeyQueue<H, Next<H>>>,
}

/// A caller that sends requests to the store without the turn. The caller counts as a waiter until
/// this value is dropped.
#[derive(Debug)]
pub(crate) struct Parallel<H: HeldLease> {
    pub(super) queues: Arc<KeyQueues<H>>,
    pub(super) key: LockKey,
    /// Set if the caller sends one request, at the same time as the caller with the turn and for an
    /// equal share. If the key is held, the caller returns to the queue.
    pub(super) once: Option<Ticket>,
}

impl<H: HeldLease> StoreAccess<H> {
    /// Returns the position of a caller that makes one attempt and then returns to the queue.
    pub(crate) fn once(&self) -> Option<Ticket> {
        match self {
            Self::Parallel(parallel) => parallel.once,
            Self::Turn(_) | Self::Alone => None,
        }
    }

    /// Notifies the queued callers that another client holds the key. `at` is the time when the
    /// store reported the holder.
    pub(crate) fn refused(&self, holder: Option<&Holder>, at: Instant) {
        if let Some((queues, key)) = self.turn() {
            let told = holder.map(|holder| Box::new(ReportedHolder { holder: holder.clone(), at }));
            queues.at(key, |queue| queue.status = KeyStatus::Refused(told));
        }
    }

    /// Notifies the queued callers that the store has not replied since `since`. Returns the start
    /// of the outage, which may be earlier.
    pub(crate) fn failed(&self, since: Instant, error: &Error) -> Instant {
        let Some((queues, key)) = self.turn() else { return since };
        let (since, told) = queues.at(key, |queue| queue.fail(since, error));
        told.into_iter().for_each(Waiter::report_outage);
        since
    }

    /// Leaves the queue after a grant of `mode` and records the lease. An exclusive lease keeps
    /// the turn until the lease ends.
    ///
    /// After any other grant, the turn goes to the next caller, and each grant allows two queued
    /// callers to send requests. If there are enough permits, many callers are served in a few
    /// round trips. If there are no permits left, the only extra cost is one request.
    pub(crate) fn granted(self, mode: Mode, record: &Arc<H>, give: impl FnOnce(Option<Turn<H>>)) {
        match self {
            Self::Turn(turn) if mode.is_exclusive() => {
                let queue = turn.of.clone();
                give(Some(turn));
                if let Some((queues, key)) = queue {
                    queues.at(&key, |queue| queue.granted(Arc::downgrade(record)));
                }
                return;
            }
            Self::Turn(mut turn) => {
                if let Some((queues, key)) = turn.of.take() {
                    queues.pass_on(key, 1);
                }
            }
            Self::Parallel(Parallel { once: None, .. }) | Self::Alone => {}
            Self::Parallel(parallel) => {
                let Parallel { queues, key, .. } = &parallel;
                queues.tell(key, queues.at(key, |queue| queue.let_in(2)));
            }
        }
        give(None);
    }

    fn turn(&self) -> Option<&(Arc<KeyQueues<H>>, LockKey)> {
        match self {
            Self::Turn(turn) => turn.of.as_ref(),
            Self::Parallel(_) | Self::Alone => None,
        }
    }
}

impl<H: HeldLease> Turn<H> {
    pub(super) fn new(queues: Arc<KeyQueues<H>>, key: LockKey) -> Self {
        Self { of: Some((queues, key)), queue: None }
    }

    /// Returns whether other callers in this process are requesting the key or have requested it
    /// recently.
    pub(crate) fn has_queue(&mut self) -> bool {
        if self.queue.is_none()
            && let Some((queues, key)) = &self.of
        {
            self.queue = queues.shared(key);
        }
        self.queue.is_some()
    }

    /// Removes the next caller from the queue if it accepts a lease that was acquired with
    /// `options`.
    ///
    /// A caller that does not accept the lease is never overtaken.
    pub(crate) fn next_acceptor(&mut self, options: &Arc<LockOptions>) -> Option<Waiter<Next<H>>> {
        lock(self.queue.as_ref()?).next_acceptor(options)
    }
}

impl<H: HeldLease> KeyQueues<H> {
    /// Passes the turn to the first caller in the queue, and also allows up to `parallel` further
    /// callers to send requests.
    fn pass_on(self: Arc<Self>, key: LockKey, parallel: usize) {
        let mut turn = Turn::new(self, key);
        loop {
            let Some((queues, key)) = &turn.of else { return };
            let (next, let_in) = queues.at(key, |queue| (queue.pass_on(), queue.let_in(parallel)));
            queues.tell(key, let_in);
            let Some(next) = next else {
                turn.of = None;
                return;
            };
            match next.send(Next::Ask(StoreAccess::Turn(turn))) {
                Err(Next::Ask(StoreAccess::Turn(refused))) => turn = refused,
                _ => return,
            }
        }
    }

    /// Allows queued callers to send requests at the same time as the caller with the turn.
    fn tell(self: &Arc<Self>, key: &LockKey, let_in: LetIn<Next<H>>) {
        for (ticket, waiter) in let_in {
            let once = Some(Ticket(ticket));
            let parallel = Parallel { queues: Arc::clone(self), key: key.clone(), once };
            // If the waiter has left, it drops the message, which also removes the waiter from the
            // count.
            drop(waiter.send(Next::Ask(StoreAccess::Parallel(parallel))));
        }
    }
}

impl<H: HeldLease> Waiter<Next<H>> {
    /// Hands the lease off to this caller. Returns the guard if the caller is gone.
    pub(crate) fn give(self, guard: H::Guard) -> Result<(), H::Guard> {
        match self.send(Next::Guard(guard)) {
            Err(Next::Guard(refused)) => Err(refused),
            Ok(()) | Err(Next::Ask(_) | Next::Held(_)) => Ok(()),
        }
    }
}

impl<H: HeldLease> Drop for Turn<H> {
    fn drop(&mut self) {
        if let Some((queues, key)) = self.of.take().filter(|_| !flaw!("dropped-turn-lost")) {
            queues.pass_on(key, 0);
        }
    }
}

impl<H: HeldLease> Drop for Parallel<H> {
    fn drop(&mut self) {
        self.queues.at(&self.key, |queue| queue.parallel -= 1);
    }
}
