//! The queue for one key: the caller that may send requests to the store, and the callers behind
//! that caller.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use super::waiter::{Messages, Waiter};
use crate::clock::Instant;
use crate::contract::backend::Mode;
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::engine::request::LockRequest;
use crate::options::LockOptions;

/// A lease held by a caller in this process, as seen by the callers behind it.
pub(crate) trait HeldLease: Debug + Send + Sync + 'static {
    /// The guard through which a holder owns the lease.
    type Guard: Debug + Send;

    fn holder(&self, now: Instant) -> Holder;

    /// Returns whether the current task acquired the lease.
    fn was_acquired_by_caller(&self) -> bool;
}

/// The callers in this process that request or hold one key. Each waiting caller waits for an `N`,
/// and `H` is a held lease.
///
/// A queue serves callers of one kind at a time: callers that request the whole key, or callers
/// that request units. A caller of the other kind sends its requests independently, and the store
/// distinguishes the two kinds.
#[derive(Debug)]
pub(super) struct KeyQueue<H, N> {
    pub(super) status: KeyStatus<H>,
    /// The mode that the caller with the turn requests or holds.
    mode: Mode,
    /// The number of waiting callers that send requests without the turn.
    pub(super) parallel: usize,
    /// The callers that may not send requests to the store, sorted by ticket.
    pub(super) waiters: Waiters<N>,
    /// All waiters with smaller tickets were queued when the key was last known to be held.
    seen_held: u64,
    /// All waiters with smaller tickets were queued when the holder's grant arrived. Only these
    /// waiters may get the grant's spare tokens.
    granted_with: u64,
}

/// The latest information that the caller with the turn has about the key.
#[derive(Debug)]
pub(super) enum KeyStatus<H> {
    /// No caller has the turn.
    Free,
    /// The store has not replied yet.
    Asking,
    /// Another client holds the key, and the caller with the turn is waiting for the key.
    Refused(Option<Box<ReportedHolder>>),
    /// The store does not respond.
    Out(Box<Outage>),
    /// The caller with the turn holds the key exclusively.
    Held(Weak<H>),
}

/// The state of the only caller for a key.
#[derive(Debug, Default)]
pub(super) enum Alone<H> {
    /// The store has not replied yet.
    #[default]
    Asks,
    Holds(Weak<H>),
}

/// The holder that the store reported when it rejected a request.
#[derive(Clone, Debug)]
pub(super) struct ReportedHolder {
    pub(super) holder: Holder,
    pub(super) at: Instant,
}

/// What this process knows about the holder of a key.
#[derive(Debug)]
pub(super) enum KnownHolder<H> {
    Nothing,
    Here(Weak<H>),
    There(Box<ReportedHolder>),
}

/// An outage of the store.
#[derive(Debug)]
pub(super) struct Outage {
    since: Instant,
    /// The error from the last attempt.
    pub(super) error: Error,
}

/// A caller's position in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(pub(super) u64);

/// A caller that sent [one request](super::StoreAccess::once) and returns to its position in the
/// queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requeue {
    pub(crate) ticket: Ticket,
    /// Whether the store reported that another client holds the key.
    pub(crate) refused: bool,
}

/// How a caller joins the queue.
#[derive(Debug)]
pub(super) enum Joined<H, N> {
    Turn,
    /// The caller sends one request at the same time as the caller with the turn.
    Once,
    Parallel,
    Alone,
    Held(KnownHolder<H>),
    /// The caller waits for messages.
    Queued(Messages<N>),
    TooMany,
    /// The client was shut down.
    Closed,
}

/// Waiters with their tickets. New waiters are nearly always added at the end, and the first waiter
/// leaves first, so a deque is faster than a tree.
pub(super) type Waiters<N> = VecDeque<(u64, Waiter<N>)>;

/// The waiters that may send requests at the same time as the caller with the turn, with their
/// tickets.
pub(super) type LetIn<N> = Vec<(u64, Waiter<N>)>;

impl<H, N> KeyQueue<H, N> {
    /// Creates the queue of a single caller.
    pub(super) fn of_one(alone: Alone<H>) -> Self {
        let status = match alone {
            Alone::Asks => KeyStatus::Asking,
            Alone::Holds(record) => KeyStatus::Held(record),
        };
        Self { status, ..Self::default() }
    }

    /// Returns the only caller if a single caller requests or holds the whole key.
    pub(super) fn alone(&self) -> Option<Alone<H>> {
        if !self.mode.is_mutex() || !self.is_deserted() {
            return None;
        }
        match &self.status {
            KeyStatus::Asking => Some(Alone::Asks),
            KeyStatus::Held(record) => Some(Alone::Holds(Weak::clone(record))),
            KeyStatus::Free | KeyStatus::Refused(_) | KeyStatus::Out(_) => None,
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        matches!(self.status, KeyStatus::Free) && self.is_deserted()
    }

    fn is_deserted(&self) -> bool {
        self.parallel == 0 && self.waiters.is_empty()
    }

    pub(super) fn join(
        &mut self,
        request: &LockRequest<'_>,
        ticket: u64,
        back: Option<Requeue>,
        max: usize,
    ) -> Joined<H, N> {
        let is_other_kind = self.is_taken() && self.mode.is_mutex() != request.mode.is_mutex();
        if request.wait.is_once() {
            return match self.status {
                KeyStatus::Free => self.give_turn(request.mode),
                KeyStatus::Held(_) | KeyStatus::Refused(_) if !is_other_kind => {
                    Joined::Held(self.known())
                }
                _ => Joined::Alone,
            };
        }
        if back.is_none() && self.callers() >= max {
            return Joined::TooMany;
        }
        if back.is_some_and(|back| back.refused) {
            self.seen_held = self.seen_held.max(ticket + 1);
        }
        if request.options.fair || is_other_kind {
            self.parallel += 1;
            return Joined::Parallel;
        }
        if !self.is_taken() {
            return self.give_turn(request.mode);
        }
        if back.is_none() && self.waiters.is_empty() && self.may_ask_beside(request) {
            self.parallel += 1;
            return Joined::Once;
        }
        self.add_waiter(request, ticket)
    }

    fn give_turn(&mut self, mode: Mode) -> Joined<H, N> {
        (self.status, self.mode) = (KeyStatus::Asking, mode);
        Joined::Turn
    }

    fn add_waiter(&mut self, request: &LockRequest<'_>, ticket: u64) -> Joined<H, N> {
        let (waiter, messages) = Waiter::new(request, self.outage_since().is_some());
        let place = self.waiters.partition_point(|(before, _)| *before < ticket);
        self.waiters.insert(place, (ticket, waiter));
        Joined::Queued(messages)
    }

    /// Removes the waiter with this ticket from the queue, if it is still there.
    pub(super) fn leave(&mut self, ticket: u64) {
        if let Ok(place) = self.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            self.waiters.remove(place);
        }
    }

    fn is_taken(&self) -> bool {
        !matches!(self.status, KeyStatus::Free)
    }

    /// Returns the number of callers that are requesting or waiting for the key.
    fn callers(&self) -> usize {
        let asks =
            matches!(self.status, KeyStatus::Asking | KeyStatus::Refused(_) | KeyStatus::Out(_));
        usize::from(asks) + self.parallel + self.waiters.len()
    }

    /// Returns whether this caller may send a request at the same time as the caller with the turn
    /// without overtaking it. If one request is rejected, the other would also be rejected, and a
    /// grant leaves further permits free.
    fn may_ask_beside(&self, request: &LockRequest<'_>) -> bool {
        let is_asking = matches!(self.status, KeyStatus::Asking);
        is_asking && request.mode == self.mode && !self.mode.is_exclusive()
    }

    /// Passes the turn to the first caller in the queue.
    pub(super) fn pass_on(&mut self) -> Option<Waiter<N>> {
        if matches!(self.status, KeyStatus::Held(_) | KeyStatus::Refused(_)) {
            self.seen_held = self.after_last();
            self.status = KeyStatus::Asking;
        }
        let Some((_, next)) = self.waiters.pop_front() else {
            self.status = KeyStatus::Free;
            return None;
        };
        self.mode = next.mode();
        Some(next)
    }

    /// Returns a number that is larger than the tickets of all waiters.
    fn after_last(&self) -> u64 {
        self.waiters.back().map_or(0, |(last, _)| last + 1)
    }

    /// Removes up to `count` waiters from the queue. The removed waiters may then send requests at
    /// the same time as the caller with the turn.
    pub(super) fn let_in(&mut self, count: usize) -> LetIn<N> {
        let mut let_in = LetIn::new();
        while let_in.len() < count
            && let Some((_, first)) = self.waiters.front()
            && matches!(self.status, KeyStatus::Asking)
        {
            if first.mode() != self.mode || self.mode.is_exclusive() {
                break;
            }
            self.parallel += 1;
            let_in.extend(self.waiters.pop_front());
        }
        let_in
    }

    /// Records the grant of `record` to the caller with the turn.
    pub(super) fn granted(&mut self, record: Weak<H>) {
        self.status = KeyStatus::Held(record);
        self.granted_with = self.after_last();
    }

    /// Removes the first waiter from the queue if it accepts a lease that was acquired with
    /// `options`.
    ///
    /// A caller that arrived after the grant does not get a token from that grant. If the process
    /// was copied in the meantime, for example by a snapshot of its machine, both copies have the
    /// same spare tokens, and neither copy can detect the other copy.
    pub(super) fn next_acceptor(&mut self, options: &Arc<LockOptions>) -> Option<Waiter<N>> {
        let (ticket, next) = self.waiters.front()?;
        if *ticket >= self.granted_with || !next.accepts(options) {
            return None;
        }
        self.waiters.pop_front().map(|(_, next)| next)
    }

    /// Records a failed attempt. Returns the start of the outage, and the waiters to notify if the
    /// outage has just started.
    pub(super) fn fail(&mut self, since: Instant, error: &Error) -> (Instant, Vec<Waiter<N>>) {
        let before = self.outage_since();
        let since = before.map_or(since, |before| before.min(since));
        self.status = KeyStatus::Out(Box::new(Outage { since, error: error.repeated() }));
        let told = self.waiters.iter().filter(|_| before.is_none());
        (since, told.map(|(_, waiter)| waiter.clone()).collect())
    }

    pub(super) fn outage_since(&self) -> Option<Instant> {
        match &self.status {
            KeyStatus::Out(outage) => Some(outage.since),
            KeyStatus::Free | KeyStatus::Asking | KeyStatus::Refused(_) | KeyStatus::Held(_) => {
                None
            }
        }
    }

    /// Returns what the caller with the turn knows about the holder.
    pub(super) fn known(&self) -> KnownHolder<H> {
        match &self.status {
            KeyStatus::Held(record) => KnownHolder::Here(Weak::clone(record)),
            KeyStatus::Refused(Some(told)) => KnownHolder::There(told.clone()),
            KeyStatus::Free | KeyStatus::Asking | KeyStatus::Refused(None) | KeyStatus::Out(_) => {
                KnownHolder::Nothing
            }
        }
    }

    /// Returns whether the key was held at some time while this waiter was queued, and may still be
    /// held.
    pub(super) fn was_seen_held_by(&self, ticket: u64) -> bool {
        match self.status {
            KeyStatus::Held(_) | KeyStatus::Refused(_) => true,
            KeyStatus::Free | KeyStatus::Asking => ticket < self.seen_held,
            KeyStatus::Out(_) => false,
        }
    }
}

impl<H, N> Default for KeyQueue<H, N> {
    fn default() -> Self {
        Self {
            status: KeyStatus::Free,
            mode: Mode::Exclusive,
            parallel: 0,
            waiters: Waiters::new(),
            seen_held: 0,
            granted_with: 0,
        }
    }
}

impl<H: HeldLease> KnownHolder<H> {
    /// Returns whether the current task acquired the lease. Do not call this method while the
    /// queues are locked, because this method locks the lease's record.
    pub(super) fn was_acquired_by_caller(&self) -> bool {
        match self {
            Self::Here(record) => {
                record.upgrade().is_some_and(|record| record.was_acquired_by_caller())
            }
            Self::Nothing | Self::There(_) => false,
        }
    }

    /// Returns the holder at `now`. Do not call this method while the queues are locked, because
    /// this method locks the lease's record.
    pub(super) fn holder(self, now: Instant) -> Option<Holder> {
        match self {
            Self::Nothing => None,
            Self::Here(record) => record.upgrade().map(|record| record.holder(now)),
            Self::There(told) => {
                let ReportedHolder { holder, at } = *told;
                Some(holder.later(now.since(at)))
            }
        }
    }
}
