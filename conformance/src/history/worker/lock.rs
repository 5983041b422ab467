//! The locks that the tasks of all processes share.

use std::time::Duration;

use leasehold_core::election::{Election, Leadership};
use leasehold_core::{
    Error, ErrorKind, LockClient, LockGuard, LockOptions, MultiGuard, MultiLock, Mutex,
    ReentrantMutex, RwLock, Semaphore, TryLockError, WriteGuard,
};

use crate::history::run::Kind;

/// All keys.
pub(super) const KEYS: [&str; 14] = [
    "hot/1",
    "hot/2",
    "hot/3",
    "hot/4",
    "warm/1",
    "warm/2",
    "warm/3",
    "warm/4",
    "fair/1",
    "fair/2",
    "reentrant",
    "document",
    "permits",
    "leader",
];

/// The two keys that some callers acquire together.
const PAIR: [&str; 2] = ["warm/1", "warm/2"];

pub(super) const PERMITS: u32 = 3;

/// The number of permits of a reader-writer lock in the record. The record counts a writer as all
/// readers.
const READERS: u32 = 32;

/// A lock, and how often it is chosen relative to the other locks.
pub(super) struct Lock {
    name: &'static str,
    kind: Kind,
    weight: u32,
    way: Way,
}

enum Way {
    Mutex(Mutex),
    Reentrant(ReentrantMutex),
    RwLock(RwLock),
    Semaphore(Semaphore),
    MultiLock(MultiLock),
    Election(Election),
}

impl Lock {
    /// Returns all locks that the store supports.
    pub(super) fn all(client: &LockClient) -> Vec<Self> {
        let mutex = |name| client.mutex(name).map(Way::Mutex);
        let document = || client.rw_lock("document").map(Way::RwLock);
        let pair = || client.multi_lock().mutexes(PAIR).map(Way::MultiLock);
        let all = [
            ("hot/1", Kind::Mutex, 4, mutex("hot/1")),
            ("hot/2", Kind::Mutex, 4, mutex("hot/2")),
            ("hot/3", Kind::Mutex, 4, mutex("hot/3")),
            ("hot/4", Kind::Mutex, 4, mutex("hot/4")),
            ("warm/1", Kind::Mutex, 1, mutex("warm/1")),
            ("warm/2", Kind::Mutex, 1, mutex("warm/2")),
            ("warm/3", Kind::Mutex, 1, mutex("warm/3")),
            ("warm/4", Kind::Mutex, 1, mutex("warm/4")),
            ("fair/1", Kind::Fair, 2, mutex("fair/1")),
            ("fair/2", Kind::Fair, 2, mutex("fair/2")),
            (
                "reentrant",
                Kind::Reentrant,
                2,
                client.reentrant_mutex("reentrant").map(Way::Reentrant),
            ),
            ("document", Kind::Reader, 3, document()),
            ("document", Kind::Writer, 1, document()),
            ("permits", Kind::Permit, 4, client.semaphore("permits", PERMITS).map(Way::Semaphore)),
            (PAIR[0], Kind::Multi, 1, pair()),
            ("leader", Kind::Leader, 2, client.election("leader").map(Way::Election)),
        ];
        let possible = all.into_iter().filter_map(|(name, kind, weight, way)| match way {
            Ok(way) => Some(Self { name, kind, weight, way }),
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            Err(error) => panic!("{error}"),
        });
        possible.filter(|lock| lock.with(LockOptions::new()).is_ok()).collect()
    }

    /// Returns the key, or the first key.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight
    }

    /// Returns the total number of permits of the key.
    pub(super) fn limit(&self) -> u32 {
        match self.kind {
            Kind::Permit => PERMITS,
            Kind::Reader | Kind::Writer => READERS,
            _ => 1,
        }
    }

    /// Returns the number of permits of a guard.
    pub(super) fn units(&self, guard: &LockGuard) -> u32 {
        match self.kind {
            Kind::Permit => guard.units(),
            Kind::Writer => READERS,
            _ => 1,
        }
    }

    /// Returns the mutex, if this lock is a plain mutex.
    pub(super) fn as_mutex(&self) -> Option<Mutex> {
        match &self.way {
            Way::Mutex(mutex) if self.kind == Kind::Mutex => Some(mutex.clone()),
            _ => None,
        }
    }

    /// Waits for the lock or for some permits, for at most `patience`.
    pub(super) async fn take(
        &self,
        options: LockOptions,
        patience: Duration,
        permits: u32,
    ) -> Result<Option<Guards>, Error> {
        or_none(match self.with(options)? {
            Way::Mutex(mutex) => mutex.try_lock_for(patience).await.map(Guards::One),
            Way::Reentrant(mutex) => match mutex.try_lock_for(patience).await {
                Ok(outer) => Ok(Guards::Nested(or_none(mutex.try_lock().await)?, outer)),
                Err(error) => Err(error),
            },
            Way::RwLock(lock) if self.kind == Kind::Reader => {
                lock.try_read_for(patience).await.map(Guards::One)
            }
            Way::RwLock(lock) => lock.try_write_for(patience).await.map(Guards::Writer),
            Way::Semaphore(semaphore) => {
                semaphore.try_acquire_for(permits, patience).await.map(Guards::One)
            }
            Way::MultiLock(lock) => lock.try_lock_for(patience).await.map(Guards::Many),
            Way::Election(election) => {
                election.try_campaign_for("a leader", patience).await.map(Guards::Leader)
            }
        })
    }

    fn with(&self, options: LockOptions) -> Result<Way, Error> {
        let options = options.fair(self.kind == Kind::Fair);
        Ok(match &self.way {
            Way::Mutex(mutex) => Way::Mutex(mutex.clone().with_options(options)?),
            Way::Reentrant(mutex) => Way::Reentrant(mutex.clone().with_options(options)?),
            Way::RwLock(lock) => Way::RwLock(lock.clone().with_options(options)?),
            Way::Semaphore(semaphore) => Way::Semaphore(semaphore.clone().with_options(options)?),
            Way::MultiLock(lock) => Way::MultiLock(lock.clone().with_options(options)?),
            Way::Election(election) => Way::Election(election.clone().with_options(options)?),
        })
    }
}

/// Converts a busy lock to `None`.
fn or_none<T>(tried: Result<T, TryLockError>) -> Result<Option<T>, Error> {
    match tried {
        Ok(guard) => Ok(Some(guard)),
        Err(error) => error.into_busy().map(|_busy| None),
    }
}

/// The guards of a call.
pub(super) enum Guards {
    One(LockGuard),
    /// The inner guard and the outer guard. The inner guard is missing if the lease was lost before
    /// it could be acquired.
    Nested(Option<LockGuard>, LockGuard),
    Writer(WriteGuard),
    Leader(Leadership),
    Many(MultiGuard),
}

impl Guards {
    /// Returns the guards that are reported separately. Guards of one owner with the same token are
    /// reported once.
    pub(super) fn all(&self) -> Vec<&LockGuard> {
        match self {
            Self::One(guard) => vec![guard],
            Self::Nested(inner, outer) => {
                let apart = inner.iter().filter(|inner| inner.token() != outer.token());
                apart.chain([outer]).collect()
            }
            Self::Writer(guard) => vec![guard],
            Self::Leader(guard) => vec![guard],
            Self::Many(guard) => guard.guards().iter().collect(),
        }
    }

    pub(super) async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Nested(inner, outer) => {
                if let Some(inner) = inner {
                    inner.release().await?;
                }
                outer.release().await
            }
            Self::Writer(guard) => guard.release().await,
            Self::Leader(guard) => guard.resign().await,
            Self::Many(guard) => guard.release().await,
        }
    }
}
