//! Leader election: one leader at a time, which publishes a value that all clients can read.

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
use crate::contract::backend::{Operation, Share};
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::engine::pipeline::Engine;
use crate::engine::runs;
use crate::locks::face::{Face, Kind};
use crate::locks::guard::{self, LockGuard};
use crate::options::LockOptions;

/// An election of one leader among several candidates.
///
/// Candidates campaign, and one of them leads. A leader holds a lease, which is renewed like the
/// lease of any other lock. If the leader dies, the next candidate is elected after its TTL. A
/// leader that loses its connection to the store is notified before its lease expires.
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
/// The leader *proclaims* a short text, such as its address. The store saves the text together with
/// the lease, from the moment of the election, and every client can read it. The text is a
/// [`Description`] of 1 to [`Description::MAX_LEN`] bytes without control characters. It replaces
/// [`LockOptions::description`].
///
/// # Order
///
/// Candidates wait in the store's queue and are elected in the order in which they asked.
/// Candidates of one process that campaign at the same time share one entry in that queue. With
/// [`LockOptions::fair`], each candidate has its own entry.
///
/// # Safety
///
/// There is at most one leader, as long as every process stops leading when its lease is lost. A
/// paused process cannot do that. Check the [fencing token](LockGuard::token) in every write that
/// must not come from a former leader. The token grows from leader to leader.
///
/// Use the key only for elections. If it is in use as a mutex, candidates get
/// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType).
#[derive(Clone, Debug)]
pub struct Election(Face);

/// The share of a leader: the only unit of the key. A store compares a lease of the whole key with
/// the complete stored value, so the description of such a lease could never change.
const LEADER: Share = Share::Units { units: 1, limit: 1 };

impl Election {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        Face::new(engine, key, Arc::new(options.of_election()), Kind::Election).map(Self)
    }

    /// Returns this election with other options.
    ///
    /// [`wait`](LockOptions::wait) and [`max_hold`](LockOptions::max_hold) apply to an election
    /// only if they were set after the options were obtained from the client. Otherwise, the limits
    /// of a client would end campaigns and leaderships, which should last.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options contradict each
    /// other, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support one of them.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        self.0.with_options(options.of_election()).map(Self)
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Waits to be elected, and proclaims `value` as soon as this candidate leads.
    ///
    /// This method waits without a limit, unless [`with_options`](Self::with_options) has set a
    /// [`wait`](LockOptions::wait). The `wait` of the client does not apply, so a standby does not
    /// give up.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) immediately if `value` is empty,
    /// too long or contains control characters, and
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the key is in use as a mutex. All
    /// other errors are listed at [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the caller loses its position in the
    /// queue, and a lease that the store has granted in the meantime is released in the background.
    pub async fn campaign<V>(&self, value: V) -> Result<Leadership, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.candidate(value)?.lock(LEADER, None).await.map(Leadership)
    }

    /// Makes one attempt to become the leader and to proclaim `value`. The method does not wait for
    /// other candidates, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate leads or waits to be elected, and
    /// [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the attempt
    /// failed. The method does not retry while the store is unreachable. See [`TryLockError`] for
    /// an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
    pub async fn try_campaign<V>(&self, value: V) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.candidate(value)?.try_lock(LEADER, None).await.map(Leadership)
    }

    /// Waits to become the leader and to proclaim `value`, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other candidates led until the end of the wait, and
    /// [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the store refused
    /// the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
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

    /// Waits to become the leader and to proclaim `value`, until `instant` on the client's clock,
    /// for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other candidates led until `instant`, and
    /// [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the store refused
    /// the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, a lease that the store has granted in
    /// the meantime is released in the background.
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

    /// Campaigns, runs `work` as the leader, and resigns. If the leadership is lost, `work` is
    /// dropped before it has finished.
    ///
    /// To lead again after a loss, call this method in a loop:
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
    /// Returns the errors of [`campaign`](Self::campaign) before `work` is called. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the leadership was lost before
    /// `work` finished, or if the store reports at the end that the lease was gone.
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
        let work = runs::within(iter::once(term.to_run()), work(&term));
        let output = term.while_held(work).await?;
        guard::done(output, term.0.release().await)
    }

    /// Asks the store for the current leader. The answer may be outdated when this method returns.
    ///
    /// A leader that died is still returned until its lease expires in the store.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the store reports that the
    /// key is in use as another type of lock. Returns the error of the store if the request failed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it only reads.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Leader::of(&self.0).await
    }

    /// Returns an observer, which reports the leader and every later change. This method does no
    /// I/O.
    pub fn observe(&self) -> Observer {
        Observer::new(self.0.clone())
    }

    /// Returns the lock of a candidate that proclaims `value`.
    fn candidate<V>(&self, value: V) -> Result<Face, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        Ok(self.0.described(checked(value, Operation::Acquire, self.key())?))
    }
}

/// A guard of the leader: a [`LockGuard`] that can proclaim a new value.
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
    /// Proclaims a new `value`. If the store does not answer, the next renewal sends the value
    /// again.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) immediately if `value` is empty,
    /// too long or contains control characters. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the leadership is lost.
    ///
    /// Returns [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) or
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store did not answer. The
    /// next renewal then sends the value, unless [renewal is off](crate::RenewalMode::Off). A
    /// request without a reply can still reach the store after a later one. In this case, the store
    /// shows the older value until the next renewal.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the store may have received the value
    /// or not. [`value`](Self::value) returns the value that renewals send.
    pub async fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.0.proclaim(value).await
    }

    /// Returns the proclaimed value. If the store has not confirmed it yet, the next renewal sends
    /// it.
    pub fn value(&self) -> Description {
        self.0.proclaimed()
    }

    /// Resigns, and waits until the store has confirmed it. The next candidate can then be elected
    /// immediately.
    ///
    /// With [`LockOptions::min_hold`], no candidate is elected before that time has passed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::release`].
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

/// The methods that the async and the blocking leadership share.
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
