//! The facts that the suite needs to know of a store.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::LockBackend;
use leasehold_core::{Holder, LockKey, LockOptions};

use crate::case::{Need, Subject};

/// How the suite reaches a store.
///
/// Each case starts one of its own, with [`start`](Self::start), and makes as many clients of it as it
/// likes. A store that is costly to start may be shared, since every case uses keys of its own, or [pooled](Self::POOLED).
#[async_trait]
pub trait Harness: Send + Sync + Sized + 'static {
    /// The backend under test.
    type Backend: LockBackend;

    /// The store's name in reports.
    const NAME: &str;

    /// Whose time the store goes by.
    const TIME: Time = Time::Real;

    /// The [disturbances](Self::disturb) that the harness can cause, and whether [`advance`](Self::advance) works.
    const HOOKS: &[Need] = &[];

    /// The features that the backend does not declare. A case that needs one of them is skipped and starts no store.
    ///
    /// Without this, each such case starts a store and asks the backend.
    const LACKS: &[Need] = &[];

    /// The groups of cases that run by default.
    ///
    /// A backend with several harnesses runs all groups on one of them, and on each of the others the groups that can tell
    /// it from that one. `LEASEHOLD_CONFORMANCE_ALL` in the environment has all groups run on every harness.
    const GROUPS: Groups = Groups::All;

    /// How much of each long case runs: by default as much as is cheap in the [store's time](Time::rounds).
    const ROUNDS: Rounds = Self::TIME.rounds();

    /// The subjects of the cases that run by default: those [that tell something](Time::subjects) in the store's time.
    ///
    /// A backend for a store in driven time has one harness in driven time for the cases of the store, and one in real time for those of the
    /// network and of load.
    const SUBJECTS: &[Subject] = Self::TIME.subjects();

    /// Whether cases share stores, in a test binary of [`Suites`](crate::Suites). Cases that disturb no other use one store at the same
    /// time. Cases in [driven time](Time::Driven), and those that disturb the store, list it or put it under load, use a few stores one
    /// after the other. A case that has the store join a quorum starts one of its own, and a store on which a case failed is used no
    /// more.
    ///
    /// For stores that are costly to start. [`start`](Self::start) and [`disturb`](Self::disturb) then run on a runtime that outlives the
    /// cases, and connections that other methods open must not outlive a call, since each case has a runtime of its own.
    const POOLED: bool = false;

    /// Starts a store, or finds one.
    async fn start() -> Self;

    /// Makes a new client of the store, with connections of its own.
    async fn connect(&self) -> Self::Backend;

    /// The same, for cases that use the backend without the layers, so that no layer retries: it may wait for replies for as long as a
    /// very busy machine takes.
    async fn connect_patiently(&self) -> Self::Backend {
        self.connect().await
    }

    /// The holder of `key`, as seen by looking straight into the store, past the backend.
    async fn witness(&self, key: &LockKey) -> Option<Holder>;

    /// How patient the suite is with the store: by default [`Timing::new`], and [`Timing::exact`] in driven and in virtual time.
    fn timing(&self) -> Timing {
        match Self::TIME {
            Time::Real => Timing::new(),
            Time::Driven | Time::Virtual => Timing::exact(),
        }
    }

    /// The options of the suite's clients, beside those that a case is about; their TTL is that of [`timing`](Self::timing). The
    /// defaults, unless the suite is to be run with other options as well.
    fn options(&self) -> LockOptions {
        LockOptions::new()
    }

    /// Does something to the store, or to the clients' connections to it.
    ///
    /// The suite only asks for disturbances that [`HOOKS`](Self::HOOKS) lists.
    async fn disturb(&self, disturbance: Disturbance) {
        unreachable!("{disturbance:?} is not among the hooks of {}", Self::NAME);
    }

    /// Moves the clock of the whole store forward, and returns when the store goes by the new time.
    ///
    /// Only called in [driven time](Time::Driven), while the suite's clients have no call under way.
    async fn advance_store(&self, by: Duration) {
        unreachable!("{} cannot advance its store by {by:?}", Self::NAME);
    }

    /// Returns when the store has sent its clients all news of its changes before this call.
    ///
    /// Only called in [driven time](Time::Driven). By default one look at the store, as [`witness`](Self::witness) has it: most stores send news
    /// before they answer a later request.
    async fn flush_news(&self) {
        let unused = LockKey::new("conformance/unused").expect("it is short and plain");
        self.witness(&unused).await;
    }

    /// Asks the store for a reply at each call, as a witness of its stalls. A call returns within a second, also while the store is
    /// [disturbed](Self::disturb).
    ///
    /// The suite calls it every few milliseconds while it measures time. By default, only the machine that runs the suite
    /// is watched.
    fn pulse(&self) -> Box<dyn FnMut() + Send> {
        Box::new(|| {})
    }

    /// Makes all leases of `keys` older by `time`, as if it had passed in the store.
    ///
    /// Only called if [`HOOKS`](Self::HOOKS) lists [`Need::Advance`]. In [driven time](Time::Driven) it is not needed.
    async fn advance(&self, keys: &[LockKey], time: Duration) {
        unreachable!("{} cannot advance {keys:?} by {time:?}", Self::NAME);
    }
}

/// Whose time a store goes by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Time {
    /// The suite's, which moves the clocks of store and clients together, and only while no call is under way: cases that wait take no time,
    /// and a machine that stalls stops both clocks. For real stores with a clock that the harness owns
    /// ([`Harness::advance_store`]): a function, an offset, a shim below the server.
    ///
    /// Each case has a runtime of one thread. When no call is under way, and the news of all that happened
    /// ([`Harness::flush_news`]) has woken no task that makes another, the suite moves its clock to the next timer of a client or of the case,
    /// the store by the same time, and only then wakes the timer. The clock of the store should stand still in between; one that also
    /// goes by itself needs [`Timing::slack`] for the milliseconds that a case takes.
    ///
    /// Timeouts of the network stay real. The cases of the network and of load are left to harnesses in real time.
    Driven,
    /// Its own: cases wait as long as it takes.
    Real,
    /// Tokio's, paused: cases that only wait take no time. For stores without I/O, whose clock
    /// is [`TokioClock`](leasehold_core::clock::TokioClock).
    Virtual,
}

impl Time {
    /// The share of the rounds of a long case that a store in this time runs.
    pub const fn rounds(self) -> Rounds {
        match self {
            Self::Driven => Rounds::Many,
            Self::Real => Rounds::Few,
            Self::Virtual => Rounds::All,
        }
    }

    /// The subjects of the cases that tell something in this time.
    ///
    /// To the layers a store is nothing but latency: they are tested where time costs nothing. Faults of the network, and load, take real time.
    pub const fn subjects(self) -> &'static [Subject] {
        match self {
            Self::Driven => &[Subject::Store],
            Self::Real => &[Subject::Load, Subject::Network, Subject::Store],
            Self::Virtual => &[Subject::Layers, Subject::Load, Subject::Network, Subject::Store],
        }
    }
}

/// The share of the rounds of a long case that runs: of thousands of grants, of random operations, of races that are run again and again.
///
/// With `LEASEHOLD_CONFORMANCE_ALL` in the environment all rounds run. Each run draws other operations and orders.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rounds {
    /// All: 10,000 grants in a row.
    All,
    /// A fifth: 2,000 grants in a row. For stores that answer in microseconds.
    Many,
    /// A twenty-fifth: 400 grants in a row.
    Few,
}

impl Rounds {
    /// So many of `all`.
    pub(crate) const fn of(self, all: usize) -> usize {
        match self {
            Self::All => all,
            Self::Many => all / 5,
            Self::Few => all / 25,
        }
    }
}

/// A selection of groups of cases.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Groups {
    /// All groups.
    All,
    /// The groups with these names.
    Named(&'static [&'static str]),
}

impl Groups {
    /// The groups for servers of the same store that a client finds in another way, or several of them: requests and watches
    /// move from one server to another.
    pub const OF_TOPOLOGY: Self =
        Self::Named(&["fencing", "lost", "mutual_exclusion", "renewal", "waiting"]);

    /// The groups for mutexes that are another kind of lock in the same store ([`AsMutex`](crate::AsMutex)): the store's operations
    /// on one lease differ.
    pub const OF_KIND: Self = Self::Named(&[
        "expiry",
        "fencing",
        "mutual_exclusion",
        "release",
        "renewal",
        "retry",
        "waiting",
    ]);

    /// Whether the selection has the group with this name.
    pub fn contains(self, group: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(&group),
        }
    }
}

/// A disturbance of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Disturbance {
    /// Break all connections. New ones can be made at once.
    Disconnect,
    /// Hold back all traffic without telling anybody, until [`Disturbance::Heal`].
    BlackHole,
    /// Stop the store in its tracks, until [`Disturbance::Heal`].
    Pause,
    /// Kill the store and start it again.
    Restart,
    /// Ends all disturbances.
    Heal,
}

/// How patient the suite is with a store.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// The TTL of most leases. A third of it must be long compared to hiccups of a busy machine.
    pub ttl: Duration,
    /// How late things may happen on a busy machine without being wrong; less than half a TTL.
    pub slack: Duration,
    /// How late things may happen while nothing [stalls](crate::stalls).
    pub prompt: Duration,
    /// The longest TTL that the store allows, if that is below twenty times `ttl`; at least five times `ttl`.
    pub longest: Duration,
}

impl Timing {
    /// TTL 8 s, slack 3 s, and 250 ms while nothing stalls: several hops between threads and processes, each of which waits for its turn.
    pub const fn new() -> Self {
        Self {
            ttl: Duration::from_secs(8),
            slack: Duration::from_secs(3),
            prompt: Duration::from_millis(250),
            longest: Duration::MAX,
        }
    }

    /// TTL 8 s, slack 50 ms: a few steps of a timer. In virtual time and in driven time no machine is busy.
    pub const fn exact() -> Self {
        let slack = Duration::from_millis(50);
        Self::new().with_slack(slack).with_prompt(slack)
    }

    /// Sets the TTL of most leases.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the TTL of most leases, 8 s or less, and of the longest, for a store that allows TTLs from `min` to `max`.
    #[must_use]
    pub fn within(self, min: Duration, max: Duration) -> Self {
        let ttl = self.ttl.min(max / 5).max(min);
        Self { ttl, longest: max, ..self }
    }

    /// Sets how late things may happen.
    #[must_use]
    pub const fn with_slack(mut self, slack: Duration) -> Self {
        self.slack = slack;
        self
    }

    /// Sets how late things may happen while nothing stalls.
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
