//! The interface between the suite and a store.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::LockBackend;
use leasehold_core::{Holder, LockKey, LockOptions};

use crate::fault::FaultKind;
use crate::need::Need;
use crate::subject::Subject;

/// Connects the suite to a store.
///
/// Each case starts a store with [`start`](Self::start), and creates the clients that the case
/// needs. If starting a store is expensive, cases may share a store, because every case uses
/// different keys. A harness can also [pool](Self::POOLED) its stores.
///
/// The crate's documentation contains a complete harness.
#[async_trait]
pub trait Harness: Send + Sync + Sized + 'static {
    /// The backend under test.
    type Backend: LockBackend;

    /// The store's name in reports.
    const NAME: &str;

    /// The kind of time that the store uses.
    const TIME: Time = Time::Real;

    /// The faults that the harness [can cause](Self::disturb), and [`Need::Advance`] if
    /// [`advance`](Self::advance) works.
    const HOOKS: &[Need] = &[];

    /// The features that the backend does not declare. The suite skips a case that needs one of
    /// these features, without starting a store.
    ///
    /// If this list omits an undeclared feature, each case that needs the feature starts a store to
    /// query the backend.
    const LACKS: &[Need] = &[];

    /// The groups of cases that run by default.
    ///
    /// If a backend has several harnesses, one of them should run all groups. Each of the remaining
    /// harnesses should run only the groups in which its behavior may differ. Set the environment
    /// variable `LEASEHOLD_CONFORMANCE_ALL` to run all groups on every harness.
    const GROUPS: Groups = Groups::All;

    /// The number of rounds of each long test case. The default depends on the [kind of
    /// time](Time::rounds).
    const ROUNDS: Rounds = Self::TIME.rounds();

    /// The subjects of the test cases that run by default. The default depends on the [kind of
    /// time](Time::subjects).
    ///
    /// A backend for a store in driven time needs two harnesses: one in driven time for the store,
    /// and one in real time for the network and the load.
    const SUBJECTS: &[Subject] = Self::TIME.subjects();

    /// Whether cases share stores in a test binary of [`Suites`](crate::Suites). Use this option
    /// for stores that are expensive to start.
    ///
    /// Most cases use one shared store at the same time. A few additional stores serve one case at
    /// a time. These stores are for cases that run in [driven time](Time::Driven), disturb the
    /// store, list its keys or put it under load. A case in which the store joins a quorum starts
    /// its own store. A store is not used again after a case has failed on it.
    ///
    /// [`start`](Self::start) and [`disturb`](Self::disturb) run on a runtime that outlives the
    /// cases. Connections that any other method opens must not outlive the call, because each case
    /// has a separate runtime.
    const POOLED: bool = false;

    /// Starts a store, or finds a running store.
    async fn start() -> Self;

    /// Creates a new client of the store with separate connections. After the suite has closed a
    /// client, all remaining clients must work.
    async fn connect(&self) -> Self::Backend;

    /// Creates a backend for cases that use the backend directly. These cases do not retry, so this
    /// backend may wait for a reply for as long as a very busy machine needs.
    async fn connect_patiently(&self) -> Self::Backend {
        self.connect().await
    }

    /// Returns the holder of `key` by reading the store directly, without the backend.
    async fn probe(&self, key: &LockKey) -> Option<Holder>;

    /// Returns the time limits of the suite. The default is [`Timing::exact`] in driven and virtual
    /// time, and [`Timing::new`] in real time.
    fn timing(&self) -> Timing {
        match Self::TIME {
            Time::Real => Timing::new(),
            Time::Driven | Time::Virtual => Timing::exact(),
        }
    }

    /// Returns the default options for the suite's clients. The TTL comes from
    /// [`timing`](Self::timing). Override this method to run the suite with different options.
    fn options(&self) -> LockOptions {
        LockOptions::new()
    }

    /// Causes a fault of the store or of the clients' connections. A fault with a duration lasts
    /// until [`heal`](Self::heal).
    ///
    /// The suite causes only faults that [`HOOKS`](Self::HOOKS) lists as [`Need::Fault`].
    async fn disturb(&self, fault: FaultKind) {
        unreachable!("{fault} is not in the HOOKS of {}", Self::NAME);
    }

    /// Ends all faults.
    ///
    /// The default implementation does nothing, which is sufficient if no fault has a duration.
    async fn heal(&self) {}

    /// Advances the clock of the whole store. Returns when the store uses the new time.
    ///
    /// The suite calls this method only in [driven time](Time::Driven), while the suite's clients
    /// have no call in progress.
    async fn advance_store(&self, by: Duration) {
        unreachable!("the harness {} does not implement advance_store (by {by:?})", Self::NAME);
    }

    /// Waits until the store has sent all notifications of earlier changes to its clients.
    ///
    /// The suite calls this method only in [driven time](Time::Driven). The default implementation
    /// calls [`probe`](Self::probe) once, because most stores send notifications before they
    /// reply to a later request.
    async fn flush_news(&self) {
        let unused = LockKey::new("conformance/unused").expect("it is short and plain");
        self.probe(&unused).await;
    }

    /// Returns a function that requests a reply from the store, which the suite uses to detect
    /// stalls of the store. Each call of this function must return within one second, even while
    /// the store is [disturbed](Self::disturb).
    ///
    /// The suite calls the function every few milliseconds while it measures time. By default, only
    /// the machine that runs the suite is observed.
    fn heartbeat(&self) -> Box<dyn FnMut() + Send> {
        Box::new(|| {})
    }

    /// Ages all leases of `keys` by `time`, as if this time had passed in the store.
    ///
    /// The suite calls this method only if [`HOOKS`](Self::HOOKS) contains [`Need::Advance`].
    /// Harnesses in [driven time](Time::Driven) do not need this method.
    async fn advance(&self, keys: &[LockKey], time: Duration) {
        unreachable!(
            "the harness {} does not implement advance (of {keys:?} by {time:?})",
            Self::NAME
        );
    }
}

/// How time passes for a store: real time, or simulated time, in which waiting takes no real time.
///
/// [`Harness::TIME`] selects the kind of time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Time {
    /// The suite advances the clocks of the store and the clients together, and only while no call
    /// is in progress. Waiting takes no real time, and if the machine stalls, both clocks stop. Use
    /// this kind of time for real stores whose clock the harness can set
    /// ([`Harness::advance_store`]), for example through a function, an offset or a layer below the
    /// server.
    ///
    /// Each case has a runtime with a single thread. The suite waits until no call is in progress
    /// and all notifications have been handled ([`Harness::flush_news`]). The suite then advances
    /// its clock to the next timer, advances the store's clock by the same time, and wakes the
    /// timer. The store's clock should not advance on its own. If the store's clock does advance on
    /// its own, set [`Timing::slack`] to the milliseconds that a case takes.
    ///
    /// Network timeouts still use real time. The cases for the network and the load run on
    /// harnesses in real time.
    Driven,
    /// The store uses its own clock, and cases wait in real time.
    Real,
    /// The store uses Tokio's paused clock, so cases that only wait take no time. Use this kind of
    /// time for stores without I/O whose clock is
    /// [`TokioClock`](leasehold_core::clock::TokioClock).
    Virtual,
}

impl Time {
    /// Returns how many rounds of a long test case run if the store uses this kind of time.
    pub const fn rounds(self) -> Rounds {
        match self {
            Self::Driven => Rounds::Many,
            Self::Real => Rounds::Few,
            Self::Virtual => Rounds::All,
        }
    }

    /// Returns the [subjects](Subject) whose test cases run by default if the store uses this kind
    /// of time.
    ///
    /// For cases that test the client, a real store only adds latency, so these cases run in
    /// virtual time. Cases about network faults and load need real time.
    pub const fn subjects(self) -> &'static [Subject] {
        match self {
            Self::Driven => &[Subject::Store],
            Self::Real => &[Subject::Load, Subject::Network, Subject::Store],
            Self::Virtual => &[Subject::Layers, Subject::Load, Subject::Network, Subject::Store],
        }
    }
}

/// The number of rounds of a long test case. Long test cases grant thousands of leases, run random
/// operations or repeat races. Each test run chooses new random operations.
///
/// [`Harness::ROUNDS`] selects the number of rounds. If the environment variable
/// `LEASEHOLD_CONFORMANCE_ALL` is set, all rounds run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rounds {
    /// All rounds, for example 10,000 grants.
    All,
    /// One fifth of the rounds, for example 2,000 grants. Use this value for stores that reply
    /// within microseconds.
    Many,
    /// One twenty-fifth of the rounds, for example 400 grants.
    Few,
}

impl Rounds {
    /// Returns how many of `all` rounds run.
    pub(crate) const fn of(self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::Many => all / 5,
            Self::Few => all / 25,
        }
    }
}

/// A selection of groups of cases.
///
/// [`Harness::GROUPS`] contains the selection of a harness.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Groups {
    /// All groups.
    All,
    /// The groups with these names.
    Named(&'static [&'static str]),
}

impl Groups {
    /// The groups of cases for a store's additional topologies. In these topologies, clients find
    /// the server in a different way or use several servers, so requests and watches can move
    /// between servers.
    pub const OF_TOPOLOGY: Self =
        Self::Named(&["fencing", "lost", "mutual_exclusion", "renewal", "waiting"]);

    /// The groups of cases for mutexes that are implemented with a different lock type
    /// ([`AsMutex`](crate::AsMutex)). For such a mutex, only the store's operations on a single
    /// lease differ from those for an ordinary mutex.
    pub const OF_KIND: Self = Self::Named(&[
        "expiry",
        "fencing",
        "mutual_exclusion",
        "release",
        "renewal",
        "retry",
        "waiting",
    ]);

    /// Returns whether the selection contains the group with this name.
    pub fn contains(self, group: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(&group),
        }
    }
}

/// The time limits of the suite for a store.
///
/// ```
/// use std::time::Duration;
/// use leasehold_conformance::Timing;
///
/// let timing = Timing::new().with_ttl(Duration::from_secs(4));
/// assert_eq!(timing.ttl, Duration::from_secs(4));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// The TTL of most leases. One third of the TTL must be much longer than the short pauses of a
    /// busy machine.
    pub ttl: Duration,
    /// The maximum delay of an event on a busy machine. The slack must be less than half of the
    /// TTL.
    pub slack: Duration,
    /// The maximum delay of an event while the machine does not [stall](crate::stalls).
    pub prompt: Duration,
    /// The longest TTL that the store supports, if it is less than twenty times `ttl`. This TTL
    /// must be at least five times `ttl`.
    pub longest: Duration,
}

impl Timing {
    /// Returns the limits for real time: a TTL of 8 s, a slack of 3 s, and a delay of at most 250
    /// ms while the machine does not stall. A delay of 250 ms is long enough for several threads
    /// and processes to get the CPU one after another.
    pub const fn new() -> Self {
        Self {
            ttl: Duration::from_secs(8),
            slack: Duration::from_secs(3),
            prompt: Duration::from_millis(250),
            longest: Duration::MAX,
        }
    }

    /// Returns the limits for [virtual](Time::Virtual) and [driven](Time::Driven) time: a TTL of 8
    /// s, and a slack of 50 ms, which covers a few timer steps. The slack can be short, because a
    /// busy machine does not cause delays in these kinds of time.
    pub const fn exact() -> Self {
        let slack = Duration::from_millis(50);
        Self::new().with_slack(slack).with_prompt(slack)
    }

    /// Sets the TTL of most leases. A few test cases set a different TTL for a lease.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the TTLs for a store that supports TTLs from `min` to `max`. Most leases then have a
    /// TTL of at most 8 s.
    #[must_use]
    pub fn within(self, min: Duration, max: Duration) -> Self {
        let ttl = self.ttl.min(max / 5).max(min);
        Self { ttl, longest: max, ..self }
    }

    /// Sets the maximum delay of an event on a busy machine.
    #[must_use]
    pub const fn with_slack(mut self, slack: Duration) -> Self {
        self.slack = slack;
        self
    }

    /// Sets the maximum delay of an event while the machine does not stall.
    #[must_use]
    pub const fn with_prompt(mut self, prompt: Duration) -> Self {
        self.prompt = prompt;
        self
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::new()
    }
}
