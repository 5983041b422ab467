//! The locks that the command line names, and the guards of held locks.

use std::future::poll_fn;
use std::slice;
use std::task::Poll;
use std::time::Duration;

use leasehold::election::Leadership;
use leasehold::{
    Error, LeaseState, LockClient, LockGuard, LossReason, MultiGuard, MultiLock, Mutex, RwLock,
    Semaphore, TryLockError, WriteGuard,
};

use crate::args::LockArgs;
use crate::exit::Failure;
use crate::key::Key;
use crate::obtain::Wait;

/// The lock that is wanted.
#[derive(Debug)]
pub(crate) enum Wanted {
    Mutex(Mutex),
    Permit(Semaphore),
    Read(RwLock),
    Write(RwLock),
    Several(MultiLock),
}

impl Wanted {
    pub(crate) fn of(client: &LockClient, keys: &[Key], args: &LockArgs) -> Result<Self, Failure> {
        let options = args.options(client)?;
        let (key, args) = (keys[0].as_lock_key(), &args.lock_type);
        Ok(match (args.permits, args.read, args.write) {
            _ if keys.len() > 1 => {
                let several = keys.iter().map(Key::as_lock_key).try_fold(
                    client.multi_lock(),
                    |several, key| match (args.permits, args.read, args.write) {
                        (Some(limit), ..) => several.permits(key, 1, limit),
                        (None, true, _) => several.read(key),
                        (None, _, true) => several.write(key),
                        (None, false, false) => several.mutex(key),
                    },
                )?;
                Self::Several(several.with_options(options)?)
            }
            (Some(limit), ..) => Self::Permit(client.semaphore(key, limit)?.with_options(options)?),
            (None, true, _) => Self::Read(client.rw_lock(key)?.with_options(options)?),
            (None, _, true) => Self::Write(client.rw_lock(key)?.with_options(options)?),
            (None, false, false) => Self::Mutex(client.mutex(key)?.with_options(options)?),
        })
    }

    /// Waits for the lock within `wait`. Returns [`TryLockError::Busy`] if other clients hold it for longer.
    pub(crate) async fn obtain(&self, wait: Wait) -> Result<Held, TryLockError> {
        match wait {
            Wait::None => self.try_lock().await,
            Wait::For(wait) => self.try_lock_for(wait).await,
            Wait::Forever => Ok(self.lock().await?),
        }
    }

    async fn lock(&self) -> Result<Held, Error> {
        match self {
            Self::Mutex(mutex) => mutex.lock().await.map(Held::One),
            Self::Permit(semaphore) => semaphore.acquire(1).await.map(Held::One),
            Self::Read(lock) => lock.read().await.map(Held::One),
            Self::Write(lock) => lock.write().await.map(WriteGuard::into_guard).map(Held::One),
            Self::Several(locks) => locks.lock().await.map(Held::Several),
        }
    }

    async fn try_lock(&self) -> Result<Held, TryLockError> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock().await.map(Held::One),
            Self::Permit(semaphore) => semaphore.try_acquire(1).await.map(Held::One),
            Self::Read(lock) => lock.try_read().await.map(Held::One),
            Self::Write(lock) => lock.try_write().await.map(WriteGuard::into_guard).map(Held::One),
            Self::Several(locks) => locks.try_lock().await.map(Held::Several),
        }
    }

    async fn try_lock_for(&self, wait: Duration) -> Result<Held, TryLockError> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock_for(wait).await.map(Held::One),
            Self::Permit(semaphore) => semaphore.try_acquire_for(1, wait).await.map(Held::One),
            Self::Read(lock) => lock.try_read_for(wait).await.map(Held::One),
            Self::Write(lock) => {
                lock.try_write_for(wait).await.map(WriteGuard::into_guard).map(Held::One)
            }
            Self::Several(locks) => locks.try_lock_for(wait).await.map(Held::Several),
        }
    }
}

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
