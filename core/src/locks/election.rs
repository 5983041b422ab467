//! Leader election. One leader at a time publishes a value that all clients can read.

mod leader;
mod observer;

pub use leader::Leader;
pub use observer::Observer;

use std::fmt;
use std::iter;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::contract::backend::{Mode, Operation};
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::held_by_caller;
use crate::engine::pipeline::Engine;
use crate::locks::guard::{self, LockGuard};
use crate::locks::handle::{Kind, LockHandle};
use crate::options::LockOptions;

/// An election of one leader from several candidates.
///
/// Candidates campaign, and one candidate becomes the leader. The leader holds a lease, which is
/// renewed like the lease of any other lock. If the leader dies, the next candidate is elected
/// after the lease's TTL. A leader that loses its connection to the store is notified before its
/// lease expires.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let election = client.election("scheduler")?;
/// assert!(election.leader().await?.is_none());
///
/// let term = election.campaign("10.0.0.1:7000").await?;
/// assert!(election.try_campaign("10.0.0.2:7000").await.is_err());
/// term.proclaim("10.0.0.1:7001").await?;
/// let leader = election.leader().await?.expect("the candidate leads");
/// assert_eq!(leader.value().as_str(), "10.0.0.1:7001");
///
/// term.resign().await?;
/// assert!(election.try_campaign("10.0.0.2:7000").await.is_ok());
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The proclaimed value
///
/// The leader *proclaims* a short text, such as its address. From the moment of the election, the
/// store keeps the leader's text with the lease, and every client can read the text. The leader's
/// text is a [`Description`] of 1 to [`Description::MAX_LEN`] bytes without control characters. The
/// proclaimed value replaces [`LockOptions::description`].
///
/// # Order
///
/// Candidates wait in the store's queue and are elected in the order in which they joined the
/// queue. Candidates in one process that campaign at the same time share one queue entry. With
/// [`LockOptions::fair`], each candidate has its own entry.
///
/// # Safety
///
/// At most one process acts as the leader, provided that every process stops doing so when its
/// lease is lost. If a leader's process is paused until after its lease expires, the process cannot
/// stop acting as the leader in time. Check the [fencing token](LockGuard::token) as part of every
/// write that must be rejected if it comes from a former leader. The token increases with each new
/// leader.
///
/// Use the key of an election only for elections. If the key is in use as a mutex, candidates get
/// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType).
#[derive(Clone, Debug)]
pub struct Election(LockHandle);

/// The mode of a leader, which holds the only unit of the key. For an exclusive lease, a store
/// compares the complete stored value, so the lease's description could never change.
const LEADER: Mode = Mode::Units { units: 1, limit: 1 };

impl Election {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        LockHandle::new(engine, key, Arc::new(options.of_election()), Kind::Election).map(Self)
    }

    /// Returns this election with different options.
    ///
    /// Elections ignore the client's [`wait`](LockOptions::wait) and
    /// [`max_hold`](LockOptions::max_hold), because campaigns and leaderships are meant to last. To
    /// limit an election, obtain the options from the client and then set these two options.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        self.0.with_options(options.of_election()).map(Self)
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Waits to be elected, and proclaims `value` as soon as this candidate becomes the leader.
    ///
    /// This method waits indefinitely unless a [`wait`](LockOptions::wait) was set through
    /// [`with_options`](Self::with_options). The `wait` option of the client does not apply to
    /// elections, so a standby candidate does not give up.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) immediately if `value` is empty,
    /// too long or contains control characters, and
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is in use as a mutex.
    /// [`Mutex::lock`](crate::Mutex::lock) lists all other errors.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and any lease that the store has already granted is released in the background.
    pub async fn campaign<V>(&self, value: V) -> Result<Leadership, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.candidate(value)?.lock(LEADER, None).await.map(Leadership)
    }

    /// Makes one attempt to become the leader and to proclaim `value`. The method waits for the
    /// store's reply, but not for the current leader to resign.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate is the leader or is waiting to be
    /// elected. If the attempt failed for another reason, returns [`TryLockError::Failed`] with one
    /// of the errors that [`campaign`](Self::campaign) returns. The method does not retry if the
    /// store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_campaign<V>(&self, value: V) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.candidate(value)?.try_lock(LEADER, None).await.map(Leadership)
    }

    /// Waits up to `wait` to become the leader and to proclaim `value`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate was the leader until `wait` had elapsed.
    /// If the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`campaign`](Self::campaign) returns. See [`TryLockError`] for
    /// an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_campaign_for<V>(
        &self,
        value: V,
        wait: Duration,
    ) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.candidate(value)?.try_lock_for(LEADER, None, wait).await.map(Leadership)
    }

    /// Waits until this candidate is the leader and has proclaimed `value`, but gives up at
    /// `instant`, a time on the client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate was the leader until `instant`. If the
    /// store rejected the request or did not reply in time, returns [`TryLockError::Failed`] with
    /// one of the errors that [`campaign`](Self::campaign) returns. See [`TryLockError`] for an
    /// example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, any lease that the store has already
    /// granted is released in the background.
    pub async fn try_campaign_until<V>(
        &self,
        value: V,
        instant: Instant,
    ) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.candidate(value)?.try_lock_until(LEADER, None, instant).await.map(Leadership)
    }

    /// Campaigns, runs `work` as the leader, and then resigns. If leadership is lost, `work` is
    /// dropped before it finishes.
    ///
    /// To campaign again after losing leadership, call this method in a loop:
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{Error, ErrorKind, LockClient};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let election = client.election("scheduler")?;
    /// let admin = client.admin();
    /// let mut terms = 0;
    ///
    /// let report = loop {
    ///     let led = election.run_leader("host-1", async |term| {
    ///         terms += 1;
    ///         if terms == 1 {
    ///             admin.force_release("scheduler", "another host shall lead").await?;
    ///             std::future::pending::<()>().await;
    ///         }
    ///         Ok::<_, Error>(format!("done with token {}", term.token()))
    ///     });
    ///     match led.await {
    ///         Ok(done) => break done?,
    ///         Err(error) if error.kind() == ErrorKind::LeaseLost || error.is_retryable() => continue,
    ///         Err(error) => return Err(error),
    ///     }
    /// };
    /// assert_eq!(terms, 2);
    /// # let _ = report;
    /// # Ok::<(), Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`campaign`](Self::campaign) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if leadership was lost before `work`
    /// finished, or if the store reports on resignation that the lease no longer exists.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the leader resigns in the
    /// background.
    pub async fn run_leader<V, T>(
        &self,
        value: V,
        work: impl AsyncFnOnce(&Leadership) -> T,
    ) -> Result<T, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let term = self.campaign(value).await?;
        let work = held_by_caller::within(iter::once(term.to_run()), work(&term));
        let output = term.while_held(work).await?;
        guard::done(output, term.0.release().await)
    }

    /// Asks the store for the current leader. The result may be out of date by the time this method
    /// returns.
    ///
    /// A crashed leader is still returned until its lease expires in the store.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the store reports that the
    /// key is in use as a different type of lock. If the request fails, returns the store's error.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it only reads.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Leader::of(&self.0).await
    }

    /// Returns an observer that reports the current leader and later changes. This method does no
    /// I/O.
    pub fn observe(&self) -> Observer {
        Observer::new(self.0.clone())
    }

    /// Returns the lock for a candidate that proclaims `value`.
    fn candidate<V>(&self, value: V) -> Result<LockHandle, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        Ok(self.0.described(checked(value, Operation::Acquire, self.key())?))
    }
}

/// The leader's guard: a [`LockGuard`] that can proclaim a new value.
///
/// If the guard is dropped, the leader resigns in the background.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let election = LockClient::new(MemoryBackend::new()).election("scheduler")?;
/// let term = election.campaign("starting").await?;
/// term.proclaim("ready").await?;
/// assert_eq!(term.value().as_str(), "ready");
/// term.resign().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a leadership resigns"]
pub struct Leadership(LockGuard);

impl Leadership {
    /// Proclaims a new `value`. If the store does not reply, the next renewal sends the value
    /// again.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) immediately if `value` is empty,
    /// too long or contains control characters. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if leadership is lost.
    ///
    /// Returns [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) or
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store did not reply. The
    /// next renewal then sends the value, unless [renewal is off](crate::RenewalMode::Off). A
    /// request without a reply may reach the store after a later request; the store then keeps the
    /// older value until the next renewal.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the store may or may not have received
    /// the value. [`value`](Self::value) returns the value that renewals send.
    pub async fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.0.proclaim(value).await
    }

    /// Returns the proclaimed value. If the store has not confirmed the proclaimed value yet, the
    /// next renewal sends the value again.
    pub fn value(&self) -> Description {
        self.0.proclaimed()
    }

    /// Resigns and waits until the store has confirmed the resignation. After the resignation, the
    /// next candidate can be elected immediately.
    ///
    /// If [`LockOptions::min_hold`] is set, no candidate is elected until the minimum hold time has
    /// passed.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the release continues in the
    /// background.
    pub async fn resign(self) -> Result<(), Error> {
        self.0.release().await
    }
}

#[cfg(feature = "blocking")]
impl Leadership {
    pub(crate) fn into_guard(self) -> LockGuard {
        self.0
    }
}

/// Methods shared by the async and blocking versions of `Leadership`.
impl LockGuard {
    pub(crate) async fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let value = checked(value, Operation::Renew, self.key())?;
        self.amend(|lease| lease.with_description(Some(value.clone()))).await
    }

    pub(crate) fn proclaimed(&self) -> Description {
        self.description().expect("no candidate is without a value, and no leader takes it back")
    }
}

impl Deref for Leadership {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.0
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.0).finish()
    }
}

fn checked<V>(value: V, operation: Operation, key: &LockKey) -> Result<Description, Error>
where
    V: TryInto<Description>,
    Error: From<V::Error>,
{
    let refused = |error| Error::from(error).with_operation(operation).with_key(key);
    value.try_into().map_err(refused)
}
