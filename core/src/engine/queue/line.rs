//! The line for one key: the caller with the turn, and the callers behind it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use super::waiter::{Messages, Waiter};
use crate::clock::Instant;
use crate::contract::backend::Share;
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::engine::request::LockRequest;
use crate::options::LockOptions;

/// A lease that a caller of this process holds, as the callers behind it see it.
pub(crate) trait Held: Debug + Send + Sync + 'static {
    /// The lease in the hand of one of its holders.
    type Guard: Debug + Send;

    /// The holder at `now`.
    fn holder(&self, now: Instant) -> Holder;

    /// Whether the caller's own task took it.
    fn was_taken_by_caller(&self) -> bool;
}

/// The callers of this process that want one key, or hold it. Each waits for an `N`, and they hold it by an `H`.
///
/// It serves callers of one kind, those that want the whole key or those that want units. A caller of the other kind asks the
/// store by itself, which tells the kinds apart.
#[derive(Debug)]
pub(super) struct Line<H, N> {
    pub(super) stand: Stand<H>,
    /// How much of the key the caller with the turn asks for, or holds.
    share: Share,
    /// How many callers ask the store without the turn, and wait.
    pub(super) beside: usize,
    /// The callers without a right to ask, in the order of their tickets.
    pub(super) waiters: Waiters<N>,
    /// Waiters with smaller tickets were here when the key was last known to be held.
    seen_held: u64,
    /// Waiters with smaller tickets were here when the holder's grant arrived. Its spare tokens are for these waiters alone.
    granted_with: u64,
}

/// The latest that the caller with the turn knows of the key.
#[derive(Debug)]
pub(super) enum Stand<H> {
    /// No caller has the turn.
    Free,
    /// The store has not answered yet.
    Asking,
    /// Others hold it, and the caller with the turn waits for them.
    Refused(Option<Box<Told>>),
    /// The store does not answer.
    Out(Box<Outage>),
    /// The caller with the turn holds it, alone.
    Held(Weak<H>),
}

/// The only caller that wants a key: all that is known of it.
#[derive(Debug, Default)]
pub(super) enum Alone<H> {
    /// The store has not answered yet.
    #[default]
    Asks,
    Holds(Weak<H>),
}

/// The holder that the store named in a refusal.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) holder: Holder,
    pub(super) at: Instant,
}

/// The holder of a key, as far as this process knows.
#[derive(Debug)]
pub(super) enum Known<H> {
    Nothing,
    Here(Weak<H>),
    There(Box<Told>),
}

/// A store that does not answer.
#[derive(Debug)]
pub(super) struct Outage {
    since: Instant,
    /// The failure of the last attempt.
    pub(super) error: Error,
}

/// A caller's place in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(pub(super) u64);

/// A caller that asked [once](super::Asker::once) and comes back for its place in line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return {
    pub(crate) ticket: Ticket,
    /// The store said that others hold the key.
    pub(crate) refused: bool,
}

/// How a caller joins a line.
#[derive(Debug)]
pub(super) enum Joined<H, N> {
    Turn,
    /// Beside the caller with the turn, once.
    Once,
    Beside,
    Alone,
    Held(Known<H>),
    /// It waits for messages.
    Line(Messages<N>),
    TooMany,
    /// The client was shut down.
    Closed,
}

/// Waiters with their tickets. New ones nearly always come last and the first leaves first, at less cost than in a tree.
pub(super) type Waiters<N> = VecDeque<(u64, Waiter<N>)>;

/// The waiters, with their tickets, that may ask beside the caller with the turn.
pub(super) type LetIn<N> = Vec<(u64, Waiter<N>)>;

impl<H, N> Line<H, N> {
    /// That of the only caller.
    pub(super) fn of_one(alone: Alone<H>) -> Self {
        let stand = match alone {
            Alone::Asks => Stand::Asking,
            Alone::Holds(hold) => Stand::Held(hold),
        };
        Self { stand, ..Self::default() }
    }

    /// The only caller, if there is one that asks for the whole key or holds it.
    pub(super) fn alone(&self) -> Option<Alone<H>> {
        if !self.share.is_whole() || !self.is_deserted() {
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
        let is_other_kind = self.is_taken() && self.share.is_whole() != request.share.is_whole();
        if request.wait.is_once() {
            return match self.stand {
                Stand::Free => self.give_turn(request.share),
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
            return self.give_turn(request.share);
        }
        if back.is_none() && self.waiters.is_empty() && self.may_ask_beside(request) {
            self.beside += 1;
            return Joined::Once;
        }
        self.stand_in_line(request, ticket)
    }

    fn give_turn(&mut self, share: Share) -> Joined<H, N> {
        (self.stand, self.share) = (Stand::Asking, share);
        Joined::Turn
    }

    fn stand_in_line(&mut self, request: &LockRequest<'_>, ticket: u64) -> Joined<H, N> {
        let (waiter, messages) = Waiter::new(request, self.outage_since().is_some());
        let place = self.waiters.partition_point(|(before, _)| *before < ticket);
        self.waiters.insert(place, (ticket, waiter));
        Joined::Line(messages)
    }

    /// Takes the waiter with this ticket out of the line, if it is there still.
    pub(super) fn leave(&mut self, ticket: u64) {
        if let Ok(place) = self.waiters.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            self.waiters.remove(place);
        }
    }

    fn is_taken(&self) -> bool {
        !matches!(self.stand, Stand::Free)
    }

    /// How many callers ask for the key, or wait.
    fn callers(&self) -> usize {
        let asks = matches!(self.stand, Stand::Asking | Stand::Refused(_) | Stand::Out(_));
        usize::from(asks) + self.beside + self.waiters.len()
    }

    /// Whether a refusal of the caller with the turn would be one of this caller too, and a grant leaves room: so neither passes
    /// the other by asking at the same time.
    fn may_ask_beside(&self, request: &LockRequest<'_>) -> bool {
        let is_asking = matches!(self.stand, Stand::Asking);
        is_asking && request.share == self.share && !self.share.is_exclusive()
    }

    /// Takes the turn from the caller that has it, for the first in line.
    pub(super) fn pass_on(&mut self) -> Option<Waiter<N>> {
        if matches!(self.stand, Stand::Held(_) | Stand::Refused(_)) {
            self.seen_held = self.after_last();
            self.stand = Stand::Asking;
        }
        let Some((_, next)) = self.waiters.pop_front() else {
            self.stand = Stand::Free;
            return None;
        };
        self.share = next.share();
        Some(next)
    }

    /// All waiters have smaller tickets.
    fn after_last(&self) -> u64 {
        self.waiters.back().map_or(0, |(last, _)| last + 1)
    }

    /// Takes waiters out of the line, up to so many, that may ask beside the caller with the turn.
    pub(super) fn let_in(&mut self, count: usize) -> LetIn<N> {
        let mut let_in = LetIn::new();
        while let_in.len() < count
            && let Some((_, first)) = self.waiters.front()
            && matches!(self.stand, Stand::Asking)
        {
            if first.share() != self.share || self.share.is_exclusive() {
                break;
            }
            self.beside += 1;
            let_in.extend(self.waiters.pop_front());
        }
        let_in
    }

    /// Notes the grant of `hold` to the caller with the turn.
    pub(super) fn granted(&mut self, hold: Weak<H>) {
        self.stand = Stand::Held(hold);
        self.granted_with = self.after_last();
    }

    /// Takes the first waiter out of the line if it would take over a lease that was taken with `options`.
    ///
    /// A caller that came after the grant arrived gets no token of the grant. If the process was copied in the meantime, for example by a
    /// snapshot of its machine, both copies have the same spare tokens, and no copy can notice the other one.
    pub(super) fn next_taker(&mut self, options: &Arc<LockOptions>) -> Option<Waiter<N>> {
        let (ticket, next) = self.waiters.front()?;
        if *ticket >= self.granted_with || !next.takes_over(options) {
            return None;
        }
        self.waiters.pop_front().map(|(_, next)| next)
    }

    /// Notes that an attempt failed; gives back since when the store does not answer, and the waiters to be told if that is news.
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

    /// The holder, as far as the caller with the turn knows.
    pub(super) fn known(&self) -> Known<H> {
        match &self.stand {
            Stand::Held(hold) => Known::Here(Weak::clone(hold)),
            Stand::Refused(Some(told)) => Known::There(told.clone()),
            Stand::Free | Stand::Asking | Stand::Refused(None) | Stand::Out(_) => Known::Nothing,
        }
    }

    /// Whether the key was held at some time while this waiter was in line, and is for all that is known.
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
            share: Share::Whole,
            beside: 0,
            waiters: Waiters::new(),
            seen_held: 0,
            granted_with: 0,
        }
    }
}

impl<H: Held> Known<H> {
    /// Whether the caller's own task took it. Not to be called while the lines are locked, either.
    pub(super) fn was_taken_by_caller(&self) -> bool {
        match self {
            Self::Here(hold) => hold.upgrade().is_some_and(|hold| hold.was_taken_by_caller()),
            Self::Nothing | Self::There(_) => false,
        }
    }

    /// The holder at `now`. Not to be called while the lines are locked, since it looks into the hold.
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
