//! The right to ask the store, and its ends.

use std::sync::Arc;

use super::line::{Held, LetIn, Stand, Ticket, Told};
use super::lines::{self, SharedLine};
use super::waiter::Waiter;
use crate::clock::Instant;
use crate::contract::backend::Share;
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::options::LockOptions;
use crate::sync::lock;

/// The lines of callers, each of which waits for its [`Next`].
pub(super) type Lines<H> = lines::Lines<H, Next<H>>;

/// The answer to a caller that came for a key.
#[derive(Debug)]
pub(crate) enum Next<H: Held> {
    /// Ask the store.
    Ask(Asker<H>),
    /// The lease of the holder before, and with it the turn.
    Guard(H::Guard),
    /// Others hold the key: one of them, if that is known.
    Held(Option<Holder>),
}

/// The way in which a caller asks the store.
#[derive(Debug)]
pub(crate) enum Asker<H: Held> {
    /// On behalf of this process, until it is granted or gives up.
    Turn(Turn<H>),
    /// Without the turn, as one of the callers that wait.
    Beside(Beside<H>),
    /// By itself, like a caller of another process.
    Alone,
}

/// The right to ask the store for a key, on behalf of this process. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn<H: Held> {
    of: Option<(Arc<Lines<H>>, LockKey)>,
    /// The line behind it, once there [was one](Self::has_line) at a hand-over.
    line: Option<SharedLine<H, Next<H>>>,
}

/// A caller that asks the store without the turn. It counts as a waiter until it is dropped.
#[derive(Debug)]
pub(crate) struct Beside<H: Held> {
    pub(super) lines: Arc<Lines<H>>,
    pub(super) key: LockKey,
    /// It asks once, at the same time as the caller with the turn and for the same share. A refusal sends it back into the line.
    pub(super) once: Option<Ticket>,
}

impl<H: Held> Asker<H> {
    /// The place in line of a caller that makes one attempt and then comes back.
    pub(crate) fn once(&self) -> Option<Ticket> {
        match self {
            Self::Beside(beside) => beside.once,
            Self::Turn(_) | Self::Alone => None,
        }
    }

    /// Tells the callers behind that others hold the key, one of which the store named `at` that time.
    pub(crate) fn refused(&self, holder: Option<&Holder>, at: Instant) {
        if let Some((lines, key)) = self.turn() {
            let told = holder.map(|holder| Box::new(Told { holder: holder.clone(), at }));
            lines.at(key, |line| line.stand = Stand::Refused(told));
        }
    }

    /// Tells the callers behind that the store does not answer, and has not since then; gives back since when it did not answer
    /// the callers before either.
    pub(crate) fn failed(&self, since: Instant, error: &Error) -> Instant {
        let Some((lines, key)) = self.turn() else { return since };
        let (since, told) = lines.at(key, |line| line.fail(since, error));
        told.into_iter().for_each(Waiter::tell_of_outage);
        since
    }

    /// Gives up the caller's part in the line, after a grant of `share`, and files the lease. An exclusive one keeps the turn until it ends.
    ///
    /// Where others may come in beside the lease, it is their turn now. Each grant lets two of those in line ask, so that a
    /// crowd that finds room is served in a few round trips, and a crowd that finds none costs one request more than it must.
    pub(crate) fn granted(
        self,
        share: Share,
        file: impl FnOnce(Option<Turn<H>>) -> Arc<H>,
    ) -> Arc<H> {
        match self {
            Self::Turn(turn) if share.is_exclusive() => {
                let line = turn.of.clone();
                let hold = file(Some(turn));
                if let Some((lines, key)) = line {
                    lines.at(&key, |line| line.granted(Arc::downgrade(&hold)));
                }
                return hold;
            }
            Self::Turn(mut turn) => {
                if let Some((lines, key)) = turn.of.take() {
                    lines.pass_on(key, 1);
                }
            }
            Self::Beside(Beside { once: None, .. }) | Self::Alone => {}
            Self::Beside(beside) => {
                let Beside { lines, key, .. } = &beside;
                lines.tell(key, lines.at(key, |line| line.let_in(2)));
            }
        }
        file(None)
    }

    fn turn(&self) -> Option<&(Arc<Lines<H>>, LockKey)> {
        match self {
            Self::Turn(turn) => turn.of.as_ref(),
            Self::Beside(_) | Self::Alone => None,
        }
    }
}

impl<H: Held> Turn<H> {
    pub(super) fn new(lines: Arc<Lines<H>>, key: LockKey) -> Self {
        Self { of: Some((lines, key)), line: None }
    }

    /// Whether other callers of this process want the key, or did so lately.
    pub(crate) fn has_line(&mut self) -> bool {
        if self.line.is_none()
            && let Some((lines, key)) = &self.of
        {
            self.line = lines.shared(key);
        }
        self.line.is_some()
    }

    /// Takes the next caller out of the line, if it would take over a lease that was taken with `options`.
    ///
    /// No caller passes one that would not.
    pub(crate) fn next_taker(&mut self, options: &Arc<LockOptions>) -> Option<Waiter<Next<H>>> {
        lock(self.line.as_ref()?).next_taker(options)
    }
}

impl<H: Held> Lines<H> {
    /// Passes the turn on to the first in line, and lets so many more ask beside it.
    fn pass_on(self: Arc<Self>, key: LockKey, beside: usize) {
        let mut turn = Turn::new(self, key);
        loop {
            let Some((lines, key)) = &turn.of else { return };
            let (next, let_in) = lines.at(key, |line| (line.pass_on(), line.let_in(beside)));
            lines.tell(key, let_in);
            let Some(next) = next else {
                turn.of = None;
                return;
            };
            match next.send(Next::Ask(Asker::Turn(turn))) {
                Err(Next::Ask(Asker::Turn(refused))) => turn = refused,
                _ => return,
            }
        }
    }

    /// Lets callers that were in line ask the store beside the caller with the turn.
    fn tell(self: &Arc<Self>, key: &LockKey, let_in: LetIn<Next<H>>) {
        for (ticket, waiter) in let_in {
            let once = Some(Ticket(ticket));
            let beside = Beside { lines: Arc::clone(self), key: key.clone(), once };
            // A waiter that has left meanwhile drops it, and is counted no more.
            drop(waiter.send(Next::Ask(Asker::Beside(beside))));
        }
    }
}

impl<H: Held> Waiter<Next<H>> {
    /// Gives it the lease; back if it has gone.
    pub(crate) fn give(self, guard: H::Guard) -> Result<(), H::Guard> {
        match self.send(Next::Guard(guard)) {
            Err(Next::Guard(refused)) => Err(refused),
            Ok(()) | Err(Next::Ask(_) | Next::Held(_)) => Ok(()),
        }
    }
}

impl<H: Held> Drop for Turn<H> {
    fn drop(&mut self) {
        if let Some((lines, key)) = self.of.take() {
            lines.pass_on(key, 0);
        }
    }
}

impl<H: Held> Drop for Beside<H> {
    fn drop(&mut self) {
        self.lines.at(&self.key, |line| line.beside -= 1);
    }
}
