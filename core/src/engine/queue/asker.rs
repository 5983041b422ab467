//! The right to ask the store, and its ends.

use std::sync::Arc;

use super::line::{Stand, Told, Waiter};
use super::{LocalQueue, SharedLine};
use crate::clock::Instant;
use crate::contract::backend::Share;
use crate::contract::error::Error;
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::engine::hold::Hold;
use crate::options::LockOptions;
use crate::sync::lock;

/// The way in which a caller asks the store.
#[derive(Debug)]
pub(crate) enum Asker {
    /// On behalf of this process, until it is granted or gives up.
    Turn(Turn),
    /// Without the turn, as one of the callers that wait.
    Beside(Beside),
    /// By itself, like a caller of another process.
    Alone,
}

/// A caller's place in the order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(pub(super) u64);

/// A caller that asked [once](Asker::once) and comes back for its place in line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return {
    pub(crate) ticket: Ticket,
    /// The store said that others hold the key.
    pub(crate) refused: bool,
}

/// The right to ask the store for a key, on behalf of this process. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(super) of: Option<(Arc<LocalQueue>, LockKey)>,
    /// The line behind it, once there was one at a hand-over.
    line: Option<SharedLine>,
}

/// A caller that asks the store without the turn. It counts as a waiter until it is dropped.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(super) queue: Arc<LocalQueue>,
    pub(super) key: LockKey,
    /// It asks once, at the same time as the caller with the turn and for the same share. A refusal sends it back into the line.
    pub(super) once: Option<Ticket>,
}

impl Asker {
    /// The place in line of a caller that makes one attempt and then comes back.
    pub(crate) fn once(&self) -> Option<Ticket> {
        match self {
            Self::Beside(beside) => beside.once,
            Self::Turn(_) | Self::Alone => None,
        }
    }

    /// Tells the callers behind that others hold the key, one of which the store named `at` that time.
    pub(crate) fn refused(&self, holder: Option<&Holder>, at: Instant) {
        if let Some((queue, key)) = self.turn() {
            let told = holder.map(|holder| Box::new(Told { holder: holder.clone(), at }));
            queue.at(key, |line| line.stand = Stand::Refused(told));
        }
    }

    /// Tells the callers behind that the store does not answer, and has not since then; gives back since when it did not answer
    /// the callers before either.
    pub(crate) fn failed(&self, since: Instant, error: &Error) -> Instant {
        let Some((queue, key)) = self.turn() else { return since };
        let (since, begins) = queue.at(key, |line| line.fail(since, error));
        if let Some(begins) = begins {
            begins.notify_waiters();
        }
        since
    }

    /// Gives up the caller's part in the line, after a grant of `share`, and files the lease. An exclusive one keeps the turn until it ends.
    ///
    /// Where others may come in beside the lease, it is their turn now. Each grant lets two of those in line ask, so that a
    /// crowd that finds room is served in a few round trips, and a crowd that finds none costs one request more than it must.
    pub(crate) fn granted(
        self,
        share: Share,
        file: impl FnOnce(Option<Turn>) -> Arc<Hold>,
    ) -> Arc<Hold> {
        match self {
            Self::Turn(turn) if share.is_exclusive() => {
                let line = turn.of.clone();
                let hold = file(Some(turn));
                if let Some((queue, key)) = line {
                    let held = Stand::Held(Arc::downgrade(&hold));
                    queue.at(&key, |line| line.stand = held);
                }
                return hold;
            }
            Self::Turn(mut turn) => {
                if let Some((queue, key)) = turn.of.take() {
                    queue.pass_on(key, 1);
                }
            }
            Self::Beside(Beside { once: None, .. }) | Self::Alone => {}
            Self::Beside(beside) => {
                let Beside { queue, key, .. } = &beside;
                queue.tell(key, queue.at(key, |line| line.let_in(2)));
            }
        }
        file(None)
    }

    fn turn(&self) -> Option<&(Arc<LocalQueue>, LockKey)> {
        match self {
            Self::Turn(turn) => turn.of.as_ref(),
            Self::Beside(_) | Self::Alone => None,
        }
    }
}

impl Turn {
    pub(super) fn new(queue: Arc<LocalQueue>, key: LockKey) -> Self {
        Self { of: Some((queue, key)), line: None }
    }

    /// Takes the next caller out of the line, if it would take over a lease that was taken with `options`.
    ///
    /// No caller passes one that would not.
    pub(crate) fn next_taker(&mut self, options: &Arc<LockOptions>) -> Option<Waiter> {
        if self.line.is_none() {
            let (queue, key) = self.of.as_ref()?;
            self.line = queue.shared(key);
        }
        lock(self.line.as_ref()?).next_taker(options)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((queue, key)) = self.of.take() {
            queue.pass_on(key, 0);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.queue.at(&self.key, |line| line.beside -= 1);
    }
}
