//! The locks that tasks ask for.

use std::slice;
use std::time::Duration;

use fastrand::Rng;
use leasehold_conformance::history::run::Kind;
use leasehold_core::election::Leadership;
use leasehold_core::{
    Error, LockClient, LockGuard, LockOptions, MultiGuard, TryLockError, WriteGuard,
};

/// The keys of a simulation. Few, so that callers meet.
pub(crate) const KEYS: [&str; 8] =
    ["mutex-0", "mutex-1", "reentrant", "rw", "semaphore", "election", "striped/0", "striped/1"];

pub(crate) const MUTEXES: [&str; 2] = [KEYS[0], KEYS[1]];
pub(crate) const ELECTION: &str = KEYS[5];

const REENTRANT: &str = KEYS[2];
const RW: &str = KEYS[3];
const SEMAPHORE: &str = KEYS[4];
const STRIPED: &str = "striped";

/// The segments of the striped lock, each of which is a key.
const SEGMENTS: u32 = 2;

/// The permits of the semaphore.
const PERMITS: u32 = 3;

/// The number of readers that a reader-writer lock admits in the record, which is more than a simulation has.
const READERS: u32 = 1_000;

/// Calls the form of an acquisition that has so much patience.
macro_rules! ask {
    ($patience:ident, $lock:ident, $once:ident, $within:ident, $unlimited:ident $(, $with:expr)?) => {
        match $patience {
            Patience::Once => or_none($lock.$once($($with)?).await)?,
            Patience::For(wait) => or_none($lock.$within($($with,)? wait).await)?,
            Patience::Unlimited => Some($lock.$unlimited($($with)?).await?),
        }
    };
}

/// Returns `None` if the lock was busy.
fn or_none<T>(tried: Result<T, TryLockError>) -> Result<Option<T>, Error> {
    match tried {
        Ok(guard) => Ok(Some(guard)),
        Err(error) => error.into_busy().map(|_busy| None),
    }
}

/// A lock that a task asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    Mutex(&'static str),
    Both,
    Reentrant,
    Reader,
    Writer,
    Permits(u32),
    Leader,
    Segment,
}

/// How long a task waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Once,
    For(Duration),
    Unlimited,
}

/// The leases of one acquisition.
pub(crate) enum Taken {
    One(LockGuard),
    Several(MultiGuard),
    Writer(WriteGuard),
    Leader(Leadership),
}

impl Taken {
    pub(crate) fn guards(&self) -> &[LockGuard] {
        match self {
            Self::One(guard) => slice::from_ref(guard),
            Self::Several(guard) => guard.guards(),
            Self::Writer(guard) => slice::from_ref(guard),
            Self::Leader(leadership) => slice::from_ref(leadership),
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Leader(leadership) => leadership.resign().await,
        }
    }
}

impl Wanted {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..17) {
            0..6 => Self::Mutex(MUTEXES[0]),
            6 => Self::Mutex(MUTEXES[1]),
            7 => Self::Both,
            8..10 => Self::Reentrant,
            10..12 => Self::Reader,
            12 => Self::Writer,
            13 => Self::Permits(rng.u32(1..=PERMITS)),
            14 => Self::Leader,
            _ => Self::Segment,
        }
    }

    /// The number of permits of the key. `None` if each guard has all of them.
    pub(crate) fn limit(self) -> Option<u32> {
        match self {
            Self::Reader => Some(READERS),
            Self::Permits(_) => Some(PERMITS),
            _ => None,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Mutex(_) | Self::Segment => Kind::Mutex,
            Self::Both => Kind::Multi,
            Self::Reentrant => Kind::Reentrant,
            Self::Reader => Kind::Reader,
            Self::Writer => Kind::Writer,
            Self::Permits(_) => Kind::Permit,
            Self::Leader => Kind::Leader,
        }
    }

    /// The key, or the first key.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Mutex(key) => key,
            Self::Both => MUTEXES[0],
            Self::Reentrant => REENTRANT,
            Self::Reader | Self::Writer => RW,
            Self::Permits(_) => SEMAPHORE,
            Self::Leader => ELECTION,
            Self::Segment => STRIPED,
        }
    }

    /// Takes the lock, if it is to be had with so much patience.
    pub(crate) async fn take(
        self,
        client: &LockClient,
        options: LockOptions,
        patience: Patience,
    ) -> Result<Option<Taken>, Error> {
        Ok(match self {
            Self::Mutex(key) => {
                let mutex = client.mutex(key)?.with_options(options)?;
                ask!(patience, mutex, try_lock, try_lock_for, lock).map(Taken::One)
            }
            Self::Both => {
                let both = client.multi_lock().with_options(options)?;
                let both = both.mutexes([MUTEXES[1], MUTEXES[0]])?;
                ask!(patience, both, try_lock, try_lock_for, lock).map(Taken::Several)
            }
            Self::Reentrant => {
                let mutex = client.reentrant_mutex(REENTRANT)?.with_options(options)?;
                ask!(patience, mutex, try_lock, try_lock_for, lock).map(Taken::One)
            }
            Self::Reader => {
                let lock = client.rw_lock(RW)?.with_options(options)?;
                ask!(patience, lock, try_read, try_read_for, read).map(Taken::One)
            }
            Self::Writer => {
                let lock = client.rw_lock(RW)?.with_options(options)?;
                ask!(patience, lock, try_write, try_write_for, write).map(Taken::Writer)
            }
            Self::Permits(permits) => {
                let permit = client.semaphore(SEMAPHORE, PERMITS)?.with_options(options)?;
                ask!(patience, permit, try_acquire, try_acquire_for, acquire, permits)
                    .map(Taken::One)
            }
            Self::Leader => {
                let election = client.election(ELECTION)?.with_options(options)?;
                ask!(patience, election, try_campaign, try_campaign_for, campaign, "elected")
                    .map(Taken::Leader)
            }
            Self::Segment => {
                let striped = client.striped(STRIPED, SEGMENTS)?.with_options(options)?;
                ask!(patience, striped, try_lock, try_lock_for, lock)
                    .map(|guard| Taken::One(guard.into_guard()))
            }
        })
    }
}
