//! Stage 2 of the pipeline: the queue of callers in this process.
//!
//! Callers that request the same key are queued here, first come, first served. One caller at a
//! time has the *turn*: it sends requests to the store for all queued callers, and reports the
//! replies to the [`KeyQueue`]. All queued callers share the information that the key is held or
//! that the store is down. A holder can hand off its lease, and the right to send requests, to the
//! next caller.

mod key_queue;
mod key_queues;
mod store_access;
mod waiter;
mod waiting;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use self::key_queue::{HeldLease, Requeue};
use self::key_queue::{Joined, KeyQueue, KeyStatus, Ticket};
use self::key_queues::OfAll;
use self::store_access::{KeyQueues, Parallel};
pub(crate) use self::store_access::{Next, StoreAccess, Turn};
pub(crate) use self::waiter::Waiter;
use self::waiting::Waiting;
use crate::clock::{Clock, Instant};
use crate::contract::backend::Operation;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::engine::request::LockRequest;
use crate::engine::retry_state::RetryState;

/// The callers in this process, with one queue per key.
#[derive(Debug)]
pub(crate) struct LocalQueue<H: HeldLease> {
    queues: Arc<KeyQueues<H>>,
    max_waiters: usize,
}

/// The result of joining the queue.
enum Joining<'a, H: HeldLease> {
    Done(Next<H>),
    Queued(Waiting<'a, H>),
}

impl<H: HeldLease> LocalQueue<H> {
    pub(crate) fn new(max_waiters: usize) -> Self {
        Self { queues: Arc::default(), max_waiters }
    }

    /// Waits until the caller may send a request to the store or receives a lease. Also returns if
    /// the caller's wait ends or its attempts are used up while another client holds the key.
    ///
    /// A call with a single attempt never waits in this queue. If the key is known to be held, the
    /// call returns immediately. If the key is not known to be held, the call sends its own
    /// request, because only a new reply can distinguish a held key from an outage.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::TooManyWaiters`] immediately if too many callers are waiting. Returns
    /// the error of the outage if the store has not replied for
    /// [`outage_wait`](crate::LockOptions::outage_wait) since this caller arrived, or if the wait
    /// ends during an outage.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position, and any
    /// turn or lease that it has just received goes to the next caller.
    pub(crate) async fn turn(
        &self,
        request: &LockRequest<'_>,
        back: Option<Requeue>,
        retries: &mut RetryState,
        clock: &dyn Clock,
    ) -> Result<Next<H>, Error> {
        let LockRequest { wait, mode, options, .. } = *request;
        if wait.is_once() && !mode.is_mutex() {
            // A small request may succeed while another caller waits for many units, and only the
            // store can decide this.
            return Ok(Next::Ask(StoreAccess::Alone));
        }
        match self.join(request, back, clock)? {
            Joining::Done(next) => Ok(next),
            Joining::Queued(waiting) => {
                waiting.wait(options.outage_wait, wait, retries, clock).await
            }
        }
    }

    /// Joins the queue unless the result is already known.
    fn join<'a>(
        &self,
        request: &LockRequest<'a>,
        back: Option<Requeue>,
        clock: &dyn Clock,
    ) -> Result<Joining<'a, H>, Error> {
        let (key, max) = (request.key, self.max_waiters);
        let join = |queue: &mut KeyQueue<H, Next<H>>, all: &mut OfAll| {
            let ticket = back.map_or(all.next_ticket, |back| back.ticket.0);
            all.next_ticket += u64::from(back.is_none());
            let joined =
                if all.is_closed { Joined::Closed } else { queue.join(request, ticket, back, max) };
            (ticket, joined)
        };
        let is_queued =
            |(_, joined): &(u64, Joined<H, Next<H>>)| matches!(joined, Joined::Queued(..));
        let ((ticket, joined), queue) = self.queues.at_shared(key, join, is_queued);
        let parallel = |once| {
            StoreAccess::Parallel(Parallel {
                queues: Arc::clone(&self.queues),
                key: key.clone(),
                once,
            })
        };
        let access = match joined {
            Joined::Held(known) => {
                return Ok(Joining::Done(Next::Held(known.holder(clock.now()))));
            }
            Joined::Queued(messages) => {
                let queue = queue.expect("a caller in line shares it");
                let has_left = false;
                return Ok(Joining::Queued(Waiting { queue, key, ticket, messages, has_left }));
            }
            Joined::Closed => return Err(Error::closed()),
            Joined::TooMany => {
                let message =
                    format!("{max} callers in this process are already waiting for the lock");
                return Err(Error::new(ErrorKind::TooManyWaiters, message)
                    .with_operation(Operation::Acquire)
                    .with_key(key));
            }
            Joined::Turn => StoreAccess::Turn(Turn::new(Arc::clone(&self.queues), key.clone())),
            Joined::Once => parallel(Some(Ticket(ticket))),
            Joined::Parallel => parallel(None),
            Joined::Alone => StoreAccess::Alone,
        };
        Ok(Joining::Done(Next::Ask(access)))
    }

    /// Ends all waits and rejects further callers.
    pub(crate) fn close(&self) {
        let waiters = self.queues.close().into_iter().flatten();
        waiters.for_each(|(_, waiter)| waiter.close());
    }

    /// Returns the holder of `key`, if the caller with the turn knows it.
    ///
    /// # Errors
    ///
    /// Returns the store's error if the store does not reply to the caller with the turn.
    pub(crate) fn last_known(&self, key: &LockKey, now: Instant) -> Result<Option<Holder>, Error> {
        let known = self.queues.at(key, |queue| match &queue.status {
            KeyStatus::Out(outage) => Err(outage.error.repeated()),
            _ => Ok(queue.known()),
        })?;
        Ok(known.holder(now))
    }

    /// Returns whether the current task itself acquired the lock that it is waiting for.
    pub(crate) fn is_held_by_caller(&self, key: &LockKey) -> bool {
        self.queues.at(key, |queue| queue.known()).was_acquired_by_caller()
    }

    #[cfg(any(test, feature = "_simulation"))]
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }
}
