//! The guards of held locks.

use std::future::poll_fn;
use std::slice;
use std::task::Poll;
use std::time::Duration;

use leasehold::election::Leadership;
use leasehold::{Error, LeaseState, LockGuard, LossReason, MultiGuard};

use crate::key::Key;

/// Locks that are held.
#[derive(Debug)]
pub(crate) enum Held {
    One(LockGuard),
    Leader(Leadership),
    Several(MultiGuard),
}

impl Held {
    /// One guard per key.
    pub(crate) fn guards(&self) -> &[LockGuard] {
        match self {
            Self::One(guard) => slice::from_ref(guard),
            Self::Leader(leadership) => slice::from_ref(leadership),
            Self::Several(guards) => guards.guards(),
        }
    }

    /// The guard of a key that is held.
    pub(crate) fn guard_of(&self, key: &Key) -> &LockGuard {
        let guard = self.guards().iter().find(|guard| guard.key() == key.as_lock_key());
        guard.expect("there is a guard for each key that was asked for")
    }

    /// How long until the first deadline.
    pub(crate) fn remaining(&self) -> Duration {
        self.guards().iter().map(LockGuard::remaining).min().unwrap_or_default()
    }

    /// Why the first lost lock was lost.
    pub(crate) fn lost_for(&self) -> Option<LossReason> {
        self.guards().iter().find_map(|guard| match guard.state() {
            LeaseState::Lost(reason) => Some(reason),
            LeaseState::Held | LeaseState::Unconfirmed => None,
        })
    }

    /// Waits until one of the locks is lost.
    pub(crate) async fn lost(&self) {
        match self {
            Self::One(guard) => drop(guard.lost().await),
            Self::Leader(leadership) => drop(leadership.lost().await),
            Self::Several(guards) => drop(guards.lost().await),
        }
    }

    /// Waits until a holder of one of the keys is asked to finish early.
    pub(crate) async fn asked(&self) {
        let mut asked: Vec<_> =
            self.guards().iter().map(|guard| Box::pin(guard.revocation_requested())).collect();
        poll_fn(|cx| {
            let mut was_asked = false;
            asked.retain_mut(|request| match request.as_mut().poll(cx) {
                Poll::Ready(requested) => {
                    was_asked |= requested;
                    false
                }
                Poll::Pending => true,
            });
            if was_asked { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Leader(leadership) => leadership.resign().await,
            Self::Several(guards) => guards.release().await,
        }
    }
}
