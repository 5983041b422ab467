//! The locks that the command line names.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args as ClapArgs;
use leasehold::{
    Error, LockClient, LockOptions, MultiLock, Mutex, RwLock, Semaphore, TryLockError, WriteGuard,
};

use crate::exit::Failure;
use crate::held::Held;
use crate::key::Key;
use crate::lease::{self, LeaseArgs};
use crate::obtain::{Wait, WaitArgs};

/// The options for the lock that is wanted.
#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) lock_type: TypeArgs,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Description of the holder, shown by `leasehold status` and to waiting callers.
    ///
    /// [default: host name and process ID]
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_DESCRIPTION")]
    pub(crate) description: Option<String>,
}

/// The options for the type of the lock, and further locks of that type.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Lock type (default: a mutex)")]
pub(crate) struct TypeArgs {
    /// Acquire one of N permits, so that at most N commands run at a time. All commands that use the lock must specify the same N.
    #[arg(long, value_name = "N", conflicts_with_all = ["read", "write"])]
    pub(crate) permits: Option<u32>,

    /// Acquire the lock for reading, shared with other readers.
    #[arg(long, conflicts_with = "write")]
    pub(crate) read: bool,

    /// Acquire the lock for writing, exclusively.
    #[arg(long)]
    pub(crate) write: bool,

    /// Also acquire this lock, with the same lock type. This option may be given more than once, and the order does not matter. The command
    /// runs only when all locks are held.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) also: Vec<OsString>,
}

impl LockArgs {
    pub(crate) fn options(&self, client: &LockClient) -> Result<LockOptions, Failure> {
        let options = self.lease.options(client, &self.wait)?;
        Ok(match &self.description {
            Some(text) => options.description(lease::description(text, "--description")?),
            None => options,
        })
    }

    /// `key`, and all keys that should be held with it.
    pub(crate) fn keys(&self, key: &OsString) -> Result<Vec<Key>, Failure> {
        let names = [key].into_iter().chain(&self.lock_type.also);
        Ok(names.map(|name| Key::new(name)).collect::<Result<_, _>>()?)
    }
}

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
