//! The outcome of an attempt to acquire a key that is not free.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::contract::backend::{Contention, Operation};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;

/// The reason why a `try_` method did not acquire the lock: another owner holds the lock or was
/// waiting for it first.
///
/// The error [`TryLockError::Busy`](crate::TryLockError::Busy) contains a `Busy` value, which
/// includes the holder if the store reports one.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let report = client.mutex("report")?;
/// let held = report.lock().await?;
///
/// let busy = report.try_lock().await.unwrap_err().into_busy()?;
/// assert_eq!(busy.key().as_str(), "report");
/// assert!(busy.to_string().starts_with("\"report\" is held by "));
/// println!("try again in {:?}", busy.remaining());
/// # held.release().await
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Busy {
    key: LockKey,
    holder: Option<Holder>,
}

impl Busy {
    pub(crate) fn new(key: &LockKey, holder: Option<Holder>) -> Self {
        Self { key: key.clone(), holder }
    }

    pub(crate) fn as_told(key: LockKey, contention: &Contention) -> Self {
        Self { key, holder: contention.holder().cloned() }
    }

    /// Updates the times in the refusal to reflect that `time` has passed since the store's reply.
    pub(crate) fn later(self, time: Duration) -> Self {
        Self { holder: self.holder.map(|holder| holder.later(time)), ..self }
    }

    /// Replaces the key with `key`, which is the name of a lock that consists of several keys.
    pub(crate) fn of(self, key: &LockKey) -> Self {
        Self { key: key.clone(), ..self }
    }

    /// Returns the key that is not free. If several keys were requested together, returns the first
    /// key that was not free.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns the holder whose lease expires first, as of the store's last reply.
    ///
    /// Returns `None` if the store does not report a holder, or if the key is free but reserved for
    /// a waiting caller.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns the time until the [holder](Self::holder)'s lease expires if it is not renewed.
    ///
    /// Returns `None` if the lease never expires or the time is not known.
    pub fn remaining(&self) -> Option<Duration> {
        self.holder.as_ref().and_then(Holder::remaining)
    }

    /// Creates the error for a caller that did not acquire the lock. `when` completes the phrase
    /// "not available …" in the message.
    pub(crate) fn into_error(self, when: impl fmt::Display) -> Error {
        let message = format!("not available {when}: {}", HeldBy(self.holder.as_ref()));
        Error::new(ErrorKind::Timeout, message)
            .with_operation(Operation::Acquire)
            .with_key(&self.key)
            .with_holder(self.holder)
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is {}", self.key, HeldBy(self.holder.as_ref()))
    }
}

impl StdError for Busy {}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Self {
        busy.into_error("immediately")
    }
}

struct HeldBy<'a>(Option<&'a Holder>);

impl fmt::Display for HeldBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(holder) if holder.remaining().is_some() => write!(f, "held by {holder}"),
            // Not every refusal contains the remaining time.
            Some(holder) => write!(f, "held by {}", holder.label()),
            None => f.write_str("held by another holder"),
        }
    }
}
