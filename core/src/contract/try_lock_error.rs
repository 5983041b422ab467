//! The error of the `try_` methods.

use std::error::Error as StdError;
use std::fmt;

use crate::contract::busy::Busy;
use crate::contract::error::Error;

/// The error type of `try_lock` and all other `try_` methods: the lock is busy, or the attempt
/// failed.
///
/// This type corresponds to [`std::sync::TryLockError`]. Match on the error to distinguish
/// contention from failure:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{Error, LockClient, TryLockError};
///
/// let client = LockClient::new(MemoryBackend::new());
/// let report = client.mutex("report")?;
/// let held = report.lock().await?;
///
/// match report.try_lock().await {
///     Ok(_guard) => unreachable!("the lock is held"),
///     Err(TryLockError::Busy(busy)) => println!("skipped: {busy}"), // the report is held by …
///     Err(TryLockError::Failed(error)) => return Err(error), // for example, the store is down
/// }
/// # held.release().await
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a function that returns [`Error`], use `?` to convert a busy lock into an error of kind
/// [`Timeout`](crate::ErrorKind::Timeout), which names the holder:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{Error, ErrorKind, LockClient, LockGuard, Mutex};
///
/// async fn lock_now(mutex: &Mutex) -> Result<LockGuard, Error> {
///     Ok(mutex.try_lock().await?)
/// }
///
/// let report = LockClient::new(MemoryBackend::new()).mutex("report")?;
/// let held = lock_now(&report).await?;
/// let error = lock_now(&report).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Timeout);
/// assert!(error.holder().is_some());
/// # held.release().await
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum TryLockError {
    /// Another owner holds the lock or was waiting for it first.
    Busy(Busy),
    /// The attempt failed, or the lease was lost while `try_run` was executing the work.
    Failed(Error),
}

impl TryLockError {
    /// Returns the [`Busy`] value if the lock was busy, and the error otherwise.
    ///
    /// Code that handles only contention can combine this method with `?`:
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let report = LockClient::new(MemoryBackend::new()).mutex("report")?;
    /// let held = report.lock().await?;
    /// if let Err(error) = report.try_run(async |_guard| ()).await {
    ///     let busy = error.into_busy()?;
    ///     println!("skipped: {busy}");
    /// }
    /// # held.release().await
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error that [`TryLockError::Failed`] contains.
    pub fn into_busy(self) -> Result<Busy, Error> {
        match self {
            Self::Busy(busy) => Ok(busy),
            Self::Failed(error) => Err(error),
        }
    }
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(busy) => fmt::Display::fmt(busy, f),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl StdError for TryLockError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Busy(_) => None,
            Self::Failed(error) => error.source(),
        }
    }
}

impl From<Busy> for TryLockError {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

impl From<Error> for TryLockError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<TryLockError> for Error {
    fn from(error: TryLockError) -> Self {
        error.into_busy().map_or_else(|failed| failed, Self::from)
    }
}
