//! A refusal: others hold the key.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::contract::backend::{Contention, Operation};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;

/// The answer to a caller that asked for a lock while others held it, or waited for it.
///
/// `try_lock` and its like return `Result<Result<LockGuard, Busy>, Error>`, so a refusal is never taken for a failure. A caller that does
/// not tell the two apart writes `??`: a `Busy` becomes an [`Error`] of the kind [`Timeout`](ErrorKind::Timeout).
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, Mutex};
///
/// async fn lock_at_once(mutex: &Mutex) -> Result<LockGuard, Error> {
///     Ok(mutex.try_lock().await??)
/// }
///
/// let client = LockClient::new(MemoryBackend::new());
/// let report = client.mutex("report")?;
///
/// let held = report.lock().await?;
/// match report.try_lock().await? {
///     Ok(_guard) => unreachable!("it is held"),
///     Err(busy) => assert!(busy.to_string().starts_with("\"report\" is held by ")),
/// }
/// let error = lock_at_once(&report).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Timeout);
/// assert!(error.holder().is_some());
///
/// held.release().await?;
/// lock_at_once(&report).await?.release().await?;
/// # Ok::<(), Error>(())
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

    /// The same refusal, `time` after the store's answer.
    pub(crate) fn later(self, time: Duration) -> Self {
        Self { holder: self.holder.map(|holder| holder.later(time)), ..self }
    }

    /// The same, as the refusal of a resource that `key` names as a whole.
    pub(crate) fn of(self, key: &LockKey) -> Self {
        Self { key: key.clone(), ..self }
    }

    /// The key that others hold; of several keys that were asked for together, the first that was not free.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The holder whose lease ends first, as of the store's last answer.
    ///
    /// `None` if the store does not tell, or if no lease is in force and the key is kept for others that wait.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// How long the lease of the [holder](Self::holder) lasts unless it is renewed; `None` if it does for ever, or if that is not known.
    pub fn remaining(&self) -> Option<Duration> {
        self.holder.as_ref().and_then(Holder::remaining)
    }

    /// The error of a caller that did not get the lock `when`.
    pub(crate) fn into_error(self, when: impl fmt::Display) -> Error {
        let message = format!("not obtained {when}: {}", HeldBy(self.holder.as_ref()));
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
        busy.into_error("at once")
    }
}

struct HeldBy<'a>(Option<&'a Holder>);

impl fmt::Display for HeldBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(holder) if holder.remaining().is_some() => write!(f, "held by {holder}"),
            // Not every refusal tells how long the lease lasts.
            Some(holder) => write!(f, "held by {}", holder.label()),
            None => f.write_str("held by another"),
        }
    }
}
