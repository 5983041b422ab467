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
pub(crate) trait Held: Debug + Send + Sync + 'static {
    /// The guard through which a holder owns the lease.
    type Guard: Debug + Send;

    fn holder(&self, now: Instant) -> Holder;

    /// Returns whether the current task acquired the lease.
    fn was_taken_by_caller(&self) -> bool;
}

/// The callers in this process that request or hold one key. Each waiting caller waits for an `N`,
/// and `H` is a held lease.
///
/// A queue serves callers of one kind at a time: callers that request the whole key, or callers
/// that request units. A caller of the other kind sends its requests independently, and the store
/// distinguishes the two kinds.
#[derive(Debug)]
pub(super) struct Line<H, N> {
    pub(super) stand: Stand<H>,
    /// The mode that the caller with the turn requests or holds.
    mode: Mode,
    /// The number of waiting callers that send requests without the turn.
    pub(super) beside: usize,
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
pub(super) enum Stand<H> {
    /// No caller has the turn.
    Free,
    /// The store has not replied yet.
    Asking,
    /// Another client holds the key, and the caller with the turn is waiting for the key.
    Refused(Option<Box<Told>>),
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
pub(super) struct Told {
    pub(super) holder: Holder,
    pub(super) at: Instant,
}

/// What this process knows about the holder of a key.
#[derive(Debug)]
pub(super) enum Known<H> {
    Nothing,
    Here(Weak<H>),
    There(Box<Told>),
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

/// A caller that sent [one request](super::Asker::once) and returns to its position in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return {
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
    Beside,
    Alone,
    Held(Known<H>),
    /// The caller waits for messages.
    Line(Messages<N>),
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

impl<H, N> Line<H, N> {
    /// Creates the queue of a single caller.
    pub(super) fn of_one(alone: Alone<H>) -> Self {
        let stand = match alone {
            Alone::Asks => Stand::Asking,
            Alone::Holds(hold) => Stand::Held(hold),
        };
        Self { stand, ..Self::default() }
    }

    /// Returns the only caller if a single caller requests or holds the whole key.
    pub(super) fn alone(&self) -> Option<Alone<H>> {
        if !self.mode.is_mutex() || !self.is_deserted() {
            return None;
        }
        match &self.stand {
            Stand::Asking => Some(Alone::Asks),
            Stand::Held(hold) => Some(Alone::Holds(Weak::clone(hold))),
            Stand::Free | Stand::Refused(_) | Stand::Out(_) => None,
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        matches!(self.stand, Stand::Free) && self.is_deserted()
    }

    fn is_deserted(&self) -> bool {
        self.beside == 0 && self.waiters.is_empty()
    }

    pub(super) fn join(
        &mut self,
        request: &LockRequest<'_>,
        ticket: u64,
        back: Option<Return>,
        max: usize,
    ) -> Joined<H, N> {
        let is_other_kind = self.is_taken() && self.mode.is_mutex() != request.mode.is_mutex();
        if request.wait.is_once() {
            return match self.stand {
                Stand::Free => self.give_turn(request.mode),
                Stand::Held(_) | Stand::Refused(_) if !is_other_kind => Joined::Held(self.known()),
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
            self.beside += 1;
            return Joined::Beside;
        }
        if !self.is_taken() {
            return self.give_turn(request.mode);
        }
        if back.is_none() && self.waiters.is_empty() && self.may_ask_beside(request) {
            self.beside += 1;
            return Joined::Once;
        }
        self.stand_in_line(request, ticket)
    }

    fn give_turn(&mut self, mode: Mode) -> Joined<H, N> {
        (self.stand, self.mode) = (Stand::Asking, mode);
        Joined::Turn
    }

    fn stand_in_line(&mut self, request: &LockRequest<'_>, ticket: u64) -> Joined<H, N> {
        let (waiter, messages) = Waiter::new(request, self.outage_since().is_some());
        let place = self.waiters.partition_point(|(before, _)| *before < ticket);
        self.waiters.insert(place, (ticket, waiter));
        Joined::Line(messages)
    }

    /// Removes the waiter with this ticket from the queue, if it is still there.
    pub(super) fn leave(&mut self, ticket: u64) {
        if let Ok(place) = self.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            self.waiters.remove(place);
        }
    }

    fn is_taken(&self) -> bool {
        !matches!(self.stand, Stand::Free)
    }

    /// Returns the number of callers that are requesting or waiting for the key.
    fn callers(&self) -> usize {
        let asks = matches!(self.stand, Stand::Asking | Stand::Refused(_) | Stand::Out(_));
        usize::from(asks) + self.beside + self.waiters.len()
    }

    /// Returns whether this caller may send a request at the same time as the caller with the turn
    /// without overtaking it. If one request is rejected, the other would also be rejected, and a
    /// grant leaves further permits free.
    fn may_ask_beside(&self, request: &LockRequest<'_>) -> bool {
        let is_asking = matches!(self.stand, Stand::Asking);
        is_asking && request.mode == self.mode && !self.mode.is_exclusive()
    }

    /// Passes the turn to the first caller in the queue.
    pub(super) fn pass_on(&mut self) -> Option<Waiter<N>> {
        if matches!(self.stand, Stand::Held(_) | Stand::Refused(_)) {
            self.seen_held = self.after_last();
            self.stand = Stand::Asking;
        }
        let Some((_, next)) = self.waiters.pop_front() else {
            self.stand = Stand::Free;
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
            && matches!(self.stand, Stand::Asking)
        {
            if first.mode() != self.mode || self.mode.is_exclusive() {
                break;
            }
            self.beside += 1;
            let_in.extend(self.waiters.pop_front());
        }
        let_in
    }

    /// Records the grant of `hold` to the caller with the turn.
    pub(super) fn granted(&mut self, hold: Weak<H>) {
        self.stand = Stand::Held(hold);
        self.granted_with = self.after_last();
    }

    /// Removes the first waiter from the queue if it accepts a lease that was acquired with
    /// `options`.
    ///
    /// A caller that arrived after the grant does not get a token from that grant. If the process
    /// was copied in the meantime, for example by a snapshot of its machine, both copies have the
    /// same spare tokens, and neither copy can detect the other copy.
    pub(super) fn next_taker(&mut self, options: &Arc<LockOptions>) -> Option<Waiter<N>> {
        let (ticket, next) = self.waiters.front()?;
        if *ticket >= self.granted_with || !next.takes_over(options) {
            return None;
        }
        self.waiters.pop_front().map(|(_, next)| next)
    }

    /// Records a failed attempt. Returns the start of the outage, and the waiters to notify if the
    /// outage has just started.
    pub(super) fn fail(&mut self, since: Instant, error: &Error) -> (Instant, Vec<Waiter<N>>) {
        let before = self.outage_since();
        let since = before.map_or(since, |before| before.min(since));
        self.stand = Stand::Out(Box::new(Outage { since, error: error.repeated() }));
        let told = self.waiters.iter().filter(|_| before.is_none());
        (since, told.map(|(_, waiter)| waiter.clone()).collect())
    }

    pub(super) fn outage_since(&self) -> Option<Instant> {
        match &self.stand {
            Stand::Out(outage) => Some(outage.since),
            Stand::Free | Stand::Asking | Stand::Refused(_) | Stand::Held(_) => None,
        }
    }

    /// Returns what the caller with the turn knows about the holder.
    pub(super) fn known(&self) -> Known<H> {
        match &self.stand {
            Stand::Held(hold) => Known::Here(Weak::clone(hold)),
            Stand::Refused(Some(told)) => Known::There(told.clone()),
            Stand::Free | Stand::Asking | Stand::Refused(None) | Stand::Out(_) => Known::Nothing,
        }
    }

    /// Returns whether the key was held at some time while this waiter was queued, and may still be
    /// held.
    pub(super) fn was_seen_held_by(&self, ticket: u64) -> bool {
        match self.stand {
            Stand::Held(_) | Stand::Refused(_) => true,
            Stand::Free | Stand::Asking => ticket < self.seen_held,
            Stand::Out(_) => false,
        }
    }
}

impl<H, N> Default for Line<H, N> {
    fn default() -> Self {
        Self {
            stand: Stand::Free,
            mode: Mode::Exclusive,
            beside: 0,
            waiters: Waiters::new(),
            seen_held: 0,
            granted_with: 0,
        }
    }
}

impl<H: Held> Known<H> {
    /// Returns whether the current task acquired the lease. Do not call this method while the
    /// queues are locked, because this method locks the hold.
    pub(super) fn was_taken_by_caller(&self) -> bool {
        match self {
            Self::Here(hold) => hold.upgrade().is_some_and(|hold| hold.was_taken_by_caller()),
            Self::Nothing | Self::There(_) => false,
        }
    }

    /// Returns the holder at `now`. Do not call this method while the queues are locked, because
    /// this method locks the hold.
    pub(super) fn holder(self, now: Instant) -> Option<Holder> {
        match self {
            Self::Nothing => None,
            Self::Here(hold) => hold.upgrade().map(|hold| hold.holder(now)),
            Self::There(told) => {
                let Told { holder, at } = *told;
                Some(holder.later(now.since(at)))
            }
        }
    }
}
