//! One leader at a time, which proclaims a value to all others.

use std::fmt;
use std::iter;
use std::time::Duration;

use super::background::{Background, Ending};
use crate::clock::Instant;
use crate::contract::busy::Busy;
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::contract::loss::LossReason;
use crate::contract::token::FencingToken;
use crate::engine::runs;
use crate::locks::election::Leader;
use crate::locks::guard::done;
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
/// assert!(election.try_campaign("10.0.0.2:7000")?.is_err());
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
    /// As [`Mutex::with_options`](crate::Mutex::with_options).
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
    /// As [`Election::campaign`](crate::election::Election::campaign), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn campaign<V>(&self, value: V) -> Result<Leadership, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let term = self.background.block_on(self.election.campaign(value))?;
        Ok(self.leadership(term))
    }

    /// Makes one attempt; [`Busy`] if another candidate leads or waits. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), without `Timeout`; the store's silence is not waited out.
    pub fn try_campaign<V>(&self, value: V) -> Result<Result<Leadership, Busy>, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let term = self.background.block_on(self.election.try_campaign(value))?;
        Ok(term.map(|term| self.leadership(term)))
    }

    /// Blocks until elected, for at most `wait`; [`Busy`] if others led throughout.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), without `Timeout`.
    pub fn try_campaign_for<V>(
        &self,
        value: V,
        wait: Duration,
    ) -> Result<Result<Leadership, Busy>, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let term = self.background.block_on(self.election.try_campaign_for(value, wait))?;
        Ok(term.map(|term| self.leadership(term)))
    }

    /// Blocks until elected, at most until `instant`; [`Busy`] if others led throughout.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), without `Timeout`.
    pub fn try_campaign_until<V>(
        &self,
        value: V,
        instant: Instant,
    ) -> Result<Result<Leadership, Busy>, Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        let term = self.background.block_on(self.election.try_campaign_until(value, instant))?;
        Ok(term.map(|term| self.leadership(term)))
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
        let run = leadership.term.to_run();
        let output = runs::sync_within(iter::once(run), || work(&leadership));
        let Leadership { term, background } = leadership;
        background.take().block_on(async {
            // A loss until now is found before the output is looked at.
            let output = term.while_held(async { output }).await?;
            done(output, term.resign().await)
        })
    }

    /// Asks the store for the leader, which may have changed by the time you read it.
    ///
    /// # Errors
    ///
    /// As [`Election::leader`](crate::election::Election::leader), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        self.background.block_on(self.election.leader())
    }

    /// Begins to observe the leader and its proclamations.
    pub fn observe(&self) -> Observer {
        Observer { observer: self.election.observe(), background: self.background.clone() }
    }

    fn leadership(&self, term: crate::locks::election::Leadership) -> Leadership {
        Leadership { term, background: Ending::new(&self.background) }
    }
}

/// The proof of leading: the [`Leadership`](crate::election::Leadership) of code without a runtime.
///
/// See the example of [`Election`].
#[must_use = "dropping a leadership resigns"]
pub struct Leadership {
    // Dropped first, so that the background waits for its release.
    term: crate::locks::election::Leadership,
    background: Ending,
}

impl Leadership {
    /// The fencing token: it grows from leader to leader.
    pub fn token(&self) -> &FencingToken {
        self.term.token()
    }

    /// Whether the term lasts, by local state and without I/O. False is final.
    pub fn is_held(&self) -> bool {
        self.term.is_held()
    }

    /// How long until its deadline; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.term.remaining()
    }

    /// Makes sure, without I/O, that it lasts for at least `min_left`.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::ensure_held`](crate::LockGuard::ensure_held).
    pub fn ensure_held(&self, min_left: Duration) -> Result<(), Error> {
        self.term.ensure_held(min_left)
    }

    /// Blocks until it is lost, and tells why; `None` if it was not lost within `wait`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn wait_lost(&self, wait: Duration) -> Result<Option<LossReason>, Error> {
        Ok(self.background.wait_for(self.term.lost(), wait)?.flatten())
    }

    /// The proclaimed value.
    pub fn value(&self) -> Description {
        self.term.value()
    }

    /// Proclaims another value. Blocks until the store has answered.
    ///
    /// # Errors
    ///
    /// As [`Leadership::proclaim`](crate::election::Leadership::proclaim), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn proclaim<V>(&self, value: V) -> Result<(), Error>
    where
        V: TryInto<Description>,
        Error: From<V::Error>,
    {
        self.background.block_on(self.term.proclaim(value))
    }

    /// Ends it, and blocks until the store has confirmed that: the next is elected at once.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`](super::Guard::release).
    pub fn resign(self) -> Result<(), Error> {
        self.background.take().block_on(self.term.resign())
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.term, f)
    }
}

/// Observes the leader of an [`Election`]: the [`Observer`](crate::election::Observer) of code without a runtime.
///
/// See the example of [`Election`].
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
    /// As [`Observer::next`](crate::election::Observer::next), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn next_within(&mut self, wait: Duration) -> Result<Option<Option<Leader>>, Error> {
        self.background.wait_for(self.observer.next(), wait)?.transpose()
    }
}
