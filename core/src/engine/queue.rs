//! Stage 2: how a caller comes to ask the store, among the callers of this process.
//!
//! Callers that want one key stand in line here, first come, first served, so that a process sends one contender to the
//! store, however many of its tasks want the key. The caller with the *turn* asks on behalf of all and reports the store's
//! answers to the [`Line`], so that the callers behind it share a refusal, an outage and the end of both. A holder may leave
//! the next caller its lease along with the turn.

mod asker;
mod line;
mod waiting;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::{Arc, Weak};

pub(crate) use self::asker::{Asker, Return, Turn};
use self::asker::{Beside, Ticket};
use self::line::{Joined, LetIn, Line, Stand};
pub(crate) use self::line::{Waiter, Wish};
use self::waiting::Waiting;
use crate::clock::{Clock, Instant};
use crate::contract::backend::Operation;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::engine::hold::Hold;
use crate::engine::tries::Tries;
use crate::engine::wait::{Wait, closed};
use crate::locks::guard::LockGuard;
use crate::sync::{Mutex, get_mut, lock};

/// The lines of all keys. It keeps nothing for a key that no caller here holds or wants.
///
/// One mutex serves all keys. An acquisition and its release lock it three times and take 0.33 µs of it in all (release build, one
/// core), which is enough for three million a second; it is never locked while a waker runs. A line with waiters has a mutex of its own, and a
/// hand-over goes there directly.
#[derive(Debug)]
pub(crate) struct LocalQueue {
    lines: Mutex<Lines>,
    max_waiters: usize,
}

#[derive(Debug, Default)]
struct Lines {
    by_key: HashMap<LockKey, Slot>,
    of_all: OfAll,
}

/// The part that all lines have in common.
#[derive(Debug, Default)]
struct OfAll {
    next_ticket: u64,
    is_closed: bool,
}

/// The line of one key.
#[derive(Debug)]
enum Slot {
    /// One caller holds the whole key and no other wants it: the only line that most keys have for longer than a round trip.
    HeldAlone(Weak<Hold>),
    /// It stays here for as long as a caller shares it.
    Line(SharedLine),
}

/// A line, with the callers that come to it without the map.
type SharedLine = Arc<Mutex<Line>>;

impl Slot {
    fn as_line(&mut self) -> &mut SharedLine {
        if let Self::HeldAlone(hold) = self {
            *self = Self::Line(Arc::new(Mutex::new(Line::held(mem::take(hold)))));
        }
        match self {
            Self::Line(line) => line,
            Self::HeldAlone(_) => unreachable!("it was made a line just now"),
        }
    }
}

/// Does something with a line. One that no caller shares needs no look at its mutex.
fn with_line<R>(shared: &mut SharedLine, work: impl FnOnce(&mut Line) -> R) -> R {
    if let Some(line) = Arc::get_mut(shared) {
        return work(get_mut(line));
    }
    work(&mut lock(shared))
}

/// The answer to a caller that came for a key.
#[derive(Debug)]
pub(crate) enum Next {
    /// Ask the store.
    Ask(Asker),
    /// The lease of the holder before, and with it the turn.
    Guard(LockGuard),
    /// Others hold the key: one of them, if that is known.
    Held(Option<Holder>),
}

/// The outcome of coming for a key.
enum Joining<'a> {
    Done(Next),
    Line(Waiting<'a>),
}

impl LocalQueue {
    pub(crate) fn new(max_waiters: usize) -> Self {
        Self { lines: Mutex::default(), max_waiters }
    }

    /// Waits until the caller may ask the store, is handed a lease, or knows that others hold the key, at the end of its wait or its
    /// attempts.
    ///
    /// A call that makes one attempt never waits here. It is answered at once if the key is known to be held, by this process or
    /// by the store's last answer to the caller with the turn. Otherwise it asks the store itself: as long as that answer is
    /// outstanding, or was a failure, no other way tells a held key from an outage.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooManyWaiters`] at once. An outage's error, if the store has not answered the caller with the turn for
    /// [`outage_wait`](crate::LockOptions::outage_wait) since this caller came, or when `wait` ends.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the place in line is lost, and a turn or lease that was just given is passed on.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        key: &LockKey,
        wish: &Wish,
        back: Option<Return>,
        wait: Wait,
        tries: &mut Tries,
        clock: &dyn Clock,
    ) -> Result<Next, Error> {
        if wait.is_once() && !wish.share.is_whole() {
            // Beside a caller that waits for many units there may be some for a smaller request: the store knows.
            return Ok(Next::Ask(Asker::Alone));
        }
        match self.join(key, wish, back, wait, clock)? {
            Joining::Done(next) => Ok(next),
            Joining::Line(waiting) => {
                waiting.wait(wish.options.outage_wait, wait, tries, clock).await
            }
        }
    }

    /// Takes a place in line, unless the caller need not wait for the answer.
    fn join<'a>(
        self: &'a Arc<Self>,
        key: &'a LockKey,
        wish: &Wish,
        back: Option<Return>,
        wait: Wait,
        clock: &dyn Clock,
    ) -> Result<Joining<'a>, Error> {
        let max = self.max_waiters;
        let join = |line: &mut Line, all: &mut OfAll| {
            let ticket = back.map_or(all.next_ticket, |back| back.ticket.0);
            all.next_ticket += u64::from(back.is_none());
            let joined = if all.is_closed {
                Joined::Closed
            } else {
                line.join(wish, ticket, back, wait, max)
            };
            (ticket, joined)
        };
        let is_in_line = |(_, joined): &(u64, Joined)| matches!(joined, Joined::Line(..));
        let ((ticket, joined), line) = self.at_shared(key, join, is_in_line);
        let beside =
            |once| Asker::Beside(Beside { queue: Arc::clone(self), key: key.clone(), once });
        let asker = match joined {
            Joined::Held(known) => {
                return Ok(Joining::Done(Next::Held(known.holder(clock.now()))));
            }
            Joined::Line(next, outage) => {
                let line = line.expect("a caller in line shares it");
                return Ok(Joining::Line(Waiting {
                    line,
                    key,
                    ticket,
                    next,
                    outage,
                    has_left: false,
                }));
            }
            Joined::Closed => return Err(closed()),
            Joined::TooMany => {
                let message = format!("{max} callers of this process ask or wait for it already");
                return Err(Error::new(ErrorKind::TooManyWaiters, message)
                    .with_operation(Operation::Acquire)
                    .with_key(key));
            }
            Joined::Turn => Asker::Turn(Turn::new(Arc::clone(self), key.clone())),
            Joined::Once => beside(Some(Ticket(ticket))),
            Joined::Beside => beside(None),
            Joined::Alone => Asker::Alone,
        };
        Ok(Joining::Done(Next::Ask(asker)))
    }

    /// Ends all waits in line, and lets no further caller in.
    pub(crate) fn close(&self) {
        let mut lines = lock(&self.lines);
        lines.of_all.is_closed = true;
        let in_line = lines.by_key.values_mut().filter_map(|slot| match slot {
            Slot::Line(line) => Some(mem::take(&mut lock(line).waiters)),
            Slot::HeldAlone(_) => None,
        });
        let waiters: Vec<_> = in_line.collect();
        drop(lines);
        // That wakes them.
        drop(waiters);
    }

    /// The holder of `key`, as far as the caller with the turn knows.
    ///
    /// # Errors
    ///
    /// That of the store that does not answer the caller with the turn, if there is such a caller.
    pub(crate) fn last_known(&self, key: &LockKey, now: Instant) -> Result<Option<Holder>, Error> {
        let known = self.at(key, |line| match &line.stand {
            Stand::Out(outage) => Err(outage.error.repeated()),
            _ => Ok(line.known()),
        })?;
        Ok(known.holder(now))
    }

    /// Whether the caller's own task took the lock that is in the way.
    pub(crate) fn is_taken_by_caller(&self, key: &LockKey) -> bool {
        self.at(key, |line| line.known()).was_taken_by_caller()
    }

    /// Passes the turn on to the first in line, and lets so many more ask beside it.
    fn pass_on(self: Arc<Self>, key: LockKey, beside: usize) {
        let mut turn = Turn::new(self, key);
        loop {
            let Some((queue, key)) = &turn.of else { return };
            let (next, let_in) = queue.at(key, |line| (line.pass_on(), line.let_in(beside)));
            queue.tell(key, let_in);
            let Some(next) = next else {
                turn.of = None;
                return;
            };
            match next.sender.send(Next::Ask(Asker::Turn(turn))) {
                Err(Next::Ask(Asker::Turn(refused))) => turn = refused,
                _ => return,
            }
        }
    }

    /// Lets callers that were in line ask the store beside the caller with the turn.
    fn tell(self: &Arc<Self>, key: &LockKey, let_in: LetIn) {
        for (ticket, waiter) in let_in {
            let once = Some(Ticket(ticket));
            let beside = Beside { queue: Arc::clone(self), key: key.clone(), once };
            // A waiter that has left meanwhile drops it, and is counted no more.
            drop(waiter.sender.send(Next::Ask(Asker::Beside(beside))));
        }
    }

    /// Does something with the line of `key`; all that wakes a task comes after.
    fn at<R>(&self, key: &LockKey, work: impl FnOnce(&mut Line) -> R) -> R {
        self.at_shared(key, |line, _| work(line), |_| false).0
    }

    /// The same, and shares the line with the caller if the result `shares` it.
    fn at_shared<R>(
        &self,
        key: &LockKey,
        work: impl FnOnce(&mut Line, &mut OfAll) -> R,
        shares: impl FnOnce(&R) -> bool,
    ) -> (R, Option<SharedLine>) {
        let mut lines = lock(&self.lines);
        let Lines { by_key, of_all } = &mut *lines;
        match by_key.entry(key.clone()) {
            Entry::Vacant(place) => {
                let mut line = Line::default();
                let result = work(&mut line, of_all);
                if !line.is_unused() {
                    place.insert(Slot::Line(Arc::new(Mutex::new(line))));
                }
                (result, None)
            }
            Entry::Occupied(mut place) => {
                let shared = place.get_mut().as_line();
                let (result, is_unused, alone) = with_line(shared, |line| {
                    (work(line, of_all), line.is_unused(), line.held_alone().cloned())
                });
                let share = shares(&result).then(|| Arc::clone(shared));
                // Callers come to share a line only while the map is locked.
                let is_shared = Arc::strong_count(shared) > 1;
                if is_unused {
                    place.remove();
                } else if let Some(hold) = alone
                    && !is_shared
                {
                    *place.get_mut() = Slot::HeldAlone(hold);
                }
                (result, share)
            }
        }
    }

    /// The line of `key`, unless a caller holds the key and no other wants it.
    fn shared(&self, key: &LockKey) -> Option<SharedLine> {
        match lock(&self.lines).by_key.get(key)? {
            Slot::Line(line) => Some(Arc::clone(line)),
            Slot::HeldAlone(_) => None,
        }
    }

    #[cfg(any(test, feature = "_simulation"))]
    pub(crate) fn len(&self) -> usize {
        lock(&self.lines).by_key.len()
    }
}
