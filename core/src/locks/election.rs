//! One leader at a time, which proclaims a value to all others.

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

/// An election: candidates campaign, one of them leads, and every client may see the leader and its proclamation.
///
/// A leader holds a lease like that of any lock, so its leadership ends at a deadline unless it is renewed: a
/// leader that dies is succeeded after its TTL, and one that is cut off knows of it before that. It
/// *proclaims* a short text such as its address, a [`Description`] of 1 to [`Description::MAX_LEN`] bytes
/// without control characters. The store keeps the text with the lease, from the moment of the election on,
/// in the place of [`LockOptions::description`].
///
/// Candidates stand in the store's queue, and are elected in the order of asking. Candidates of one
/// process that campaign at the same time send one of them to that queue, in their own order; with
/// [`LockOptions::fair`] each stands there itself.
///
/// There is one leader among the processes that keep to their deadlines. If one does not, the
/// [token](LockGuard::token) keeps data right, as with any lock: it grows from leader to leader.
///
/// A key is for elections or for something else: while another kind of lock has it, candidates get
/// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType).
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
#[derive(Clone, Debug)]
pub struct Election(Face);

/// The only unit of the key. A store compares a lease of the whole key with the whole stored value, so
/// the description of such a lease could never change.
const LEADER: Share = Share::Units { units: 1, limit: 1 };

impl Election {
    pub(crate) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        options: Arc<LockOptions>,
    ) -> Result<Self, Error> {
        Face::new(engine, key, Arc::new(options.of_election()), Kind::Election).map(Self)
    }

    /// The same election with other options.
    ///
    /// [`wait`](LockOptions::wait) and [`max_hold`](LockOptions::max_hold) apply to this election only if they were set after the options
    /// were obtained from the client. Otherwise the limits of a client would end candidacies and leaderships, which are meant to last.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        self.0.with_options(options.of_election()).map(Self)
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.0.key()
    }

    /// Waits to be elected, and proclaims `value` from then on.
    ///
    /// Waits indefinitely unless [`with_options`](Self::with_options) has set a [`wait`](LockOptions::wait). The client's own `wait` does not
    /// apply, so a standby does not give up.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) at once if `value` is empty, too long or has control characters.
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if another kind of lock has the key. Else as
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, the candidate withdraws, and a lease that the store has granted in the meantime is released
    /// in the background.
    pub async fn campaign<V>(&self, value: V) -> Result<Leadership, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.candidate(value)?.lock(LEADER, None).await.map(Leadership)
    }

    /// Makes one attempt to become the leader and to proclaim `value`. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate leads, or waits to be elected, and [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
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
    /// Returns [`TryLockError::Busy`] if other candidates led throughout, and [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
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

    /// Waits to become the leader and to proclaim `value`, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other candidates led throughout, and [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
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

    /// Campaigns, does `work` while leading, and resigns; drops `work` unfinished if the leadership is lost.
    ///
    /// A candidate that is to lead again after a loss campaigns again:
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
    /// The errors of [`campaign`](Self::campaign), before `work` is called, and those of
    /// [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the leader resigns in the background.
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

    /// Asks the store for the leader, which may have changed by the time you read it.
    ///
    /// A leader that died is shown until its lease ends in the store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if the store shows that another kind of lock has the key;
    /// else the error of the store.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Leader::of(&self.0).await
    }

    /// Begins to observe the leader and its proclamations, without I/O yet.
    pub fn observe(&self) -> Observer {
        Observer::new(self.0.clone())
    }

    /// The lock of a candidate that would proclaim `value`.
    fn candidate<V>(&self, value: V) -> Result<Face, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        Ok(self.0.described(checked(value, Operation::Acquire, self.key())?))
    }
}

/// The proof of a leader's lease: a [`LockGuard`] that proclaims a value to all clients.
///
/// Dropping it resigns in the background.
///
/// See [`Election`] for an example.
#[must_use = "dropping a leadership resigns"]
pub struct Leadership(LockGuard);

impl Leadership {
    /// Proclaims another `value`: now and, if the store does not answer now, by the next renewal.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) at once if `value` is empty, too long or has control characters.
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the leadership is lost.
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) or
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store did not answer; renewals
    /// carry the value from now on. Without [renewal](crate::RenewalMode::Off) there is none that would. A
    /// request that was given up may still arrive after a later one, and its value then stands until the next renewal.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. The value may then be proclaimed or not; [`value`](Self::value) says which one renewals carry.
    pub async fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.0.proclaim(value).await
    }

    /// The proclaimed value, or the one that the next renewal will proclaim.
    pub fn value(&self) -> Description {
        self.0.proclaimed()
    }

    /// Resigns, and waits until the store has confirmed it: the next candidate is elected at once.
    ///
    /// With [`LockOptions::min_hold`] no candidate is elected for the rest of that time.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, the release continues in the background.
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

/// The part of a leadership that both of its forms share.
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
