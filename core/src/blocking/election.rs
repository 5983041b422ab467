//! One leader at a time, which proclaims a value to all others.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::background::Background;
use super::guard::Guard;
use crate::clock::Instant;
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::try_lock_error::TryLockError;
use crate::locks::election::Leader;
use crate::options::LockOptions;

/// An election, in which candidates campaign and one of them leads: the [`Election`](crate::election::Election) of code
/// without a runtime.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let election = LockClient::new(MemoryBackend::new())?.election("scheduler")?;
///
/// let term = election.campaign("10.0.0.1:7000")?;
/// assert!(election.try_campaign("10.0.0.2:7000").is_err());
/// let leader = election.leader()?.expect("the candidate leads");
/// assert_eq!(leader.value().as_str(), "10.0.0.1:7000");
/// term.resign()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    election: crate::locks::election::Election,
    background: Background,
}

impl Election {
    pub(super) fn new(election: crate::locks::election::Election, background: Background) -> Self {
        Self { election, background }
    }

    /// The same election with other options.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { election: self.election.with_options(options)?, ..self })
    }

    /// The key.
    pub fn key(&self) -> &LockKey {
        self.election.key()
    }

    /// Blocks until elected, for as long as [`LockOptions::wait`] says, and proclaims `value` from then on.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Election::campaign`](crate::election::Election::campaign), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn campaign<V>(&self, value: V) -> Result<Leadership, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let term = async { Ok(self.election.campaign(value).await?.into_guard()) };
        self.background.lock(term).map(Leadership)
    }

    /// Makes one attempt to become the leader and to proclaim `value`. It does not wait for other holders, only for the store's reply.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate leads, or waits to be elected, and [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the attempt
    /// failed. It does not retry while the store is unreachable. See [`TryLockError`] for an example.
    pub fn try_campaign<V>(&self, value: V) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.elected(self.election.try_campaign(value))
    }

    /// Blocks until this thread can become the leader and proclaim `value`, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other candidates led throughout, and [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_campaign_for<V>(&self, value: V, wait: Duration) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.elected(self.election.try_campaign_for(value, wait))
    }

    /// Blocks until this thread can become the leader and proclaim `value`, until `instant` on the client's clock, for example `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if other candidates led throughout, and [`TryLockError::Failed`] with an error of [`campaign`](Self::campaign) if the store
    /// refused the request or did not answer in time. See [`TryLockError`] for an example.
    pub fn try_campaign_until<V>(
        &self,
        value: V,
        instant: Instant,
    ) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.elected(self.election.try_campaign_until(value, instant))
    }

    /// Campaigns, does `work` while leading, and resigns.
    ///
    /// # Errors
    ///
    /// The errors of [`campaign`](Self::campaign), before `work` is called, and those of
    /// [`Mutex::run`](super::Mutex::run): nothing stops `work` if the leadership is lost.
    pub fn run_leader<V, T>(
        &self,
        value: V,
        work: impl FnOnce(&Leadership) -> T,
    ) -> Result<T, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let leadership = self.campaign(value)?;
        let output = leadership.run(|| work(&leadership));
        leadership.0.run_and_release(|_guard| output)
    }

    /// Asks the store for the leader, which may have changed by the time that the call returns.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Election::leader`](crate::election::Election::leader), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        self.background.block_on(self.election.leader())
    }

    /// Begins to observe the leader and its proclamations.
    pub fn observe(&self) -> Observer {
        Observer { observer: self.election.observe(), background: self.background.clone() }
    }

    fn elected(
        &self,
        call: impl Future<Output = Result<crate::election::Leadership, TryLockError>>,
    ) -> Result<Leadership, TryLockError> {
        let call = async { call.await.map(crate::election::Leadership::into_guard) };
        self.background.lock(call).map(Leadership)
    }
}

/// The proof of leading, a [`Guard`] that proclaims a value to all clients: the [`Leadership`](crate::election::Leadership) of code
/// without a runtime.
///
/// See [`Election`] for an example.
#[must_use = "dropping a leadership resigns"]
pub struct Leadership(Guard);

impl Leadership {
    /// The proclaimed value, or the one that the next renewal will proclaim.
    pub fn value(&self) -> Description {
        self.0.proclaimed()
    }

    /// Proclaims another value, and blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Leadership::proclaim`](crate::election::Leadership::proclaim), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.0.proclaim(value)
    }

    /// Resigns, and blocks until the store has confirmed it: the next candidate is elected at once.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Guard::release`](super::Guard::release).
    pub fn resign(self) -> Result<(), Error> {
        self.0.release()
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.0).finish()
    }
}

/// Observes the leader of an [`Election`]: the [`Observer`](crate::election::Observer) of code without a runtime.
///
/// See [`Election`] for an example.
#[derive(Debug)]
pub struct Observer {
    observer: crate::locks::election::Observer,
    background: Background,
}

impl Observer {
    /// Returns the leader: on the first call at once, and from then on after the next change. Blocks for at
    /// most `wait`; `None` if nothing changed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Observer::next`](crate::election::Observer::next), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn next_within(&mut self, wait: Duration) -> Result<Option<Option<Leader>>, Error> {
        self.background.wait_for(self.observer.next(), wait)?.transpose()
    }
}
