//! The blocking leader election.

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

/// An election of one leader from several candidates. This is the blocking version of
/// [`Election`](crate::election::Election).
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

    /// Returns this election with different options.
    ///
    /// [`wait`](LockOptions::wait) and [`max_hold`](LockOptions::max_hold) apply to an election
    /// only if you set them on the options that you pass to this method, not if you set them for
    /// the whole client.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the options conflict, and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not support one
    /// of the options.
    pub fn with_options(self, options: LockOptions) -> Result<Self, Error> {
        Ok(Self { election: self.election.with_options(options)?, ..self })
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        self.election.key()
    }

    /// Blocks until this candidate is elected, and proclaims `value` as soon as the candidate
    /// becomes the leader.
    ///
    /// This method waits indefinitely unless a [`wait`](LockOptions::wait) was set through
    /// [`with_options`](Self::with_options). The `wait` option of the client does not apply to
    /// elections, so a standby candidate does not give up.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Election::campaign`](crate::election::Election::campaign), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn campaign<V>(&self, value: V) -> Result<Leadership, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let term = async { Ok(self.election.campaign(value).await?.into_guard()) };
        self.background.lock(term).map(Leadership)
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
    pub fn try_campaign<V>(&self, value: V) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.elected(self.election.try_campaign(value))
    }

    /// Attempts to become the leader and proclaim `value`, blocking this thread for at most `wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate was the leader until `wait` had elapsed.
    /// If the store rejected the request or did not reply in time, returns [`TryLockError::Failed`]
    /// with one of the errors that [`campaign`](Self::campaign) returns. See [`TryLockError`] for
    /// an example.
    pub fn try_campaign_for<V>(&self, value: V, wait: Duration) -> Result<Leadership, TryLockError>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.elected(self.election.try_campaign_for(value, wait))
    }

    /// Blocks until this thread can become the leader and proclaim `value`, but gives up at
    /// `instant`, a time on the client's clock such as `client.now() + wait`.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if another candidate was the leader until `instant`. If the
    /// store rejected the request or did not reply in time, returns [`TryLockError::Failed`] with
    /// one of the errors that [`campaign`](Self::campaign) returns. See [`TryLockError`] for an
    /// example.
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

    /// Campaigns, runs `work` as the leader, and then resigns.
    ///
    /// `work` is not cancelled if leadership is lost. If `work` panics, the leader resigns in the
    /// background.
    ///
    /// ```
    /// use leasehold_core::blocking::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let election = LockClient::new(MemoryBackend::new())?.election("scheduler")?;
    /// let report = election.run_leader("host-1", |term| format!("done with token {}", term.token()))?;
    /// # let _ = report;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If [`campaign`](Self::campaign) fails, returns its error without calling `work`. Returns
    /// [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) after `work` has finished if
    /// leadership was lost in the meantime.
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

    /// Asks the store for the current leader. The result may be out of date by the time this method
    /// returns.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Election::leader`](crate::election::Election::leader), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        self.background.block_on(self.election.leader())
    }

    /// Returns an observer that reports the current leader and later changes. This method does no
    /// I/O.
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

/// The leader's guard: a [`Guard`] that can proclaim a new value. This is the blocking version of
/// [`Leadership`](crate::election::Leadership).
///
/// If the guard is dropped, the leader resigns.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let election = LockClient::new(MemoryBackend::new())?.election("scheduler")?;
/// let term = election.campaign("starting")?;
/// term.proclaim("ready")?;
/// assert_eq!(term.value().as_str(), "ready");
/// term.resign()?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[must_use = "dropping a leadership resigns"]
pub struct Leadership(Guard);

impl Leadership {
    /// Returns the proclaimed value. If the store has not confirmed the proclaimed value yet, the
    /// next renewal sends the value again.
    pub fn value(&self) -> Description {
        self.0.proclaimed()
    }

    /// Proclaims a new `value` and blocks until the store has replied.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Leadership::proclaim`](crate::election::Leadership::proclaim),
    /// and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.0.proclaim(value)
    }

    /// Resigns and blocks until the store has confirmed the resignation. After the resignation, the
    /// next candidate can be elected immediately.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Guard::release`](super::Guard::release).
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

/// Observes the leader of an [`Election`]. This is the blocking version of
/// [`Observer`](crate::election::Observer).
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let election = LockClient::new(MemoryBackend::new())?.election("scheduler")?;
/// let mut observer = election.observe();
/// match observer.next_within(Duration::from_secs(5))? {
///     Some(Some(leader)) => println!("{} leads", leader.value()),
///     Some(None) => println!("there is no leader"),
///     None => println!("nothing changed for 5 s"),
/// }
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    observer: crate::locks::election::Observer,
    background: Background,
}

impl Observer {
    /// Blocks until the leader changes or `wait` has elapsed, then returns the current leader.
    /// Returns `None` if nothing changed. The first call returns the current leader without waiting
    /// for a change.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Observer::next`](crate::election::Observer::next), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn next_within(&mut self, wait: Duration) -> Result<Option<Option<Leader>>, Error> {
        self.background.wait_for(self.observer.next(), wait)?.transpose()
    }
}
