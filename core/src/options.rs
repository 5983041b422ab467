//! The options of a lock.

use std::time::Duration;

use humantime::format_duration;

use crate::contract::backend::{Capabilities, Feature, Fencing, Tenure};
use crate::contract::description::Description;
use crate::contract::error::{Error, ErrorKind};
use crate::engine::deadline;
use crate::retry::Retry;

/// How a lock is acquired and kept. Set the options for a client, and change them for single locks where needed.
///
/// Options that contradict each other are refused when they are given to a client or a lock, before any I/O.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{LockClient, LockOptions};
///
/// let short = LockOptions::new().ttl(Duration::from_secs(5)).wait(Duration::from_secs(2));
/// let client = LockClient::builder(MemoryBackend::new()).options(short).build()?;
///
/// let once_an_hour = client.options().min_hold(Duration::from_secs(3_600));
/// let mutex = client.mutex("report")?.with_options(once_an_hour)?;
/// # let _ = mutex;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LockOptions {
    pub(crate) ttl: Duration,
    pub(crate) ttl_choice: TtlChoice,
    pub(crate) renewal: RenewalMode,
    pub(crate) wait: Option<Duration>,
    pub(crate) outage_wait: Duration,
    pub(crate) retry: Retry,
    pub(crate) max_hold: Option<Duration>,
    /// The limits of elections, which do not inherit those of the client.
    election: ElectionLimits,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) lock_delay: Duration,
    pub(crate) min_validity: Duration,
    pub(crate) loss_grace: Duration,
    pub(crate) fair: bool,
    pub(crate) hand_over: bool,
    pub(crate) reentry_limit: u32,
    pub(crate) require_fencing: Fencing,
    pub(crate) description: Option<Description>,
}

/// The options of an election that the options of a client do not set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ElectionLimits {
    wait: Option<Duration>,
    max_hold: Option<Duration>,
}

/// The origin of a TTL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TtlChoice {
    /// The caller named it: a store that cannot keep it refuses the options.
    Callers,
    /// [`LockOptions::DEFAULT_TTL`], or the longest that the store allows.
    Default,
}

/// Whether leases are renewed while their guards exist.
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::{LockOptions, RenewalMode};
///
/// // The lease expires after an hour, even if its holder is still at work.
/// let fixed = LockOptions::new().ttl(Duration::from_secs(3_600)).renewal(RenewalMode::Off);
/// # let _ = fixed;
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RenewalMode {
    /// The watchdog renews every third of the TTL, or up to 1 % earlier, so that many renewals share a round trip. Where leases
    /// share a time to live ([`Feature::Sessions`](crate::backend::Feature::Sessions)), each is renewed as early as the next of them.
    Watchdog,
    /// No renewal: the lease ends after its TTL, which a guard may [extend](crate::LockGuard::extend).
    Off,
}

impl LockOptions {
    /// Long enough to survive a failover of the store or a long pause of the process, since seven
    /// renewals in a row may fail before it; short enough that a crashed holder does not block others
    /// for long.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

    /// The shortest TTL that any store supports: the allowance for clock drift takes more than half of a shorter TTL.
    pub const MIN_TTL: Duration = deadline::SHORTEST_TTL;

    /// Outlasts a failover of Sentinel, Cluster or etcd (1 to 5 s with common settings), and no longer:
    /// past it a caller is better told.
    pub const DEFAULT_OUTAGE_WAIT: Duration = Duration::from_secs(10);

    /// How long the store's queue keeps the place of a silent caller, unless the TTL is shorter: long enough
    /// for three attempts over a connection that must be made anew, short enough that others hardly notice a
    /// dead caller.
    pub const PLACE_TTL: Duration = Duration::from_secs(5);

    /// As many as a lease can pass on in the time that it may: each takes a third of a microsecond or more.
    const SPARE_TOKENS: u32 = 65_536;

    /// Deeper nesting of one lock is a recursion that does not end.
    pub const DEFAULT_REENTRY_LIMIT: u32 = 1_000;

    /// Creates the default options: a TTL of 30 s that is renewed, no limit for the wait for a held key, and a limit of 10 s for the wait
    /// for a store that does not answer.
    pub fn new() -> Self {
        Self {
            ttl: Self::DEFAULT_TTL,
            ttl_choice: TtlChoice::Default,
            renewal: RenewalMode::Watchdog,
            wait: None,
            outage_wait: Self::DEFAULT_OUTAGE_WAIT,
            retry: Retry::default(),
            max_hold: None,
            election: ElectionLimits::default(),
            min_hold: None,
            lock_delay: Duration::ZERO,
            min_validity: Duration::ZERO,
            loss_grace: Duration::ZERO,
            fair: false,
            hand_over: true,
            reentry_limit: Self::DEFAULT_REENTRY_LIMIT,
            require_fencing: Fencing::BestEffort,
            description: Some(Description::of_this_process()),
        }
    }

    /// Sets how long the store keeps a lease without a renewal. This is also how long a crashed holder blocks the key, at most.
    /// Default: [`LockOptions::DEFAULT_TTL`], or the longest TTL that the store supports if that is shorter.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self.ttl_choice = TtlChoice::Callers;
        self
    }

    /// Sets whether the watchdog renews the lease. Default: it does, whatever the TTL. See [`RenewalMode`] for an example.
    #[must_use]
    pub fn renewal(mut self, mode: RenewalMode) -> Self {
        self.renewal = mode;
        self
    }

    /// Limits how long `lock` waits for a key that others hold, in this process and in the store together. Default: no limit.
    ///
    /// The default is the same as in std and tokio, because only the caller knows how long its work is worth waiting for. A dead holder
    /// blocks the key for at most its TTL, and a store that does not answer ends the wait after [`outage_wait`](Self::outage_wait). What
    /// remains is a holder that is alive and hangs. Limit it with [`max_hold`](Self::max_hold). In a request handler, set `wait` to the
    /// time that the client will wait for its answer. Methods with a `wait` argument ignore this option.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, LockOptions};
    ///
    /// let options = LockOptions::new().wait(Duration::from_secs(2)).max_hold(Duration::from_secs(60));
    /// let client = LockClient::builder(MemoryBackend::new()).options(options).build()?;
    /// # let _ = client;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self.election.wait = Some(wait);
        self
    }

    /// Removes the limit that [`wait`](Self::wait) sets.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::LockOptions;
    ///
    /// let unlimited = LockOptions::new().wait(Duration::from_secs(2)).wait_for_ever();
    /// assert_eq!(unlimited, LockOptions::new());
    /// ```
    #[must_use]
    pub fn wait_for_ever(mut self) -> Self {
        self.wait = None;
        self.election.wait = None;
        self
    }

    /// How long a caller that waits keeps trying while the store cannot be reached or does not
    /// answer, within its wait. A request under way has the time that its backend gives it. Default:
    /// [`LockOptions::DEFAULT_OUTAGE_WAIT`].
    ///
    /// Callers of one process that wait for one key share an outage. Each is told of it this long after it came, or after the store last
    /// answered one of them, whichever is later, and gets the error of the latest attempt.
    #[must_use]
    pub fn outage_wait(mut self, wait: Duration) -> Self {
        self.outage_wait = wait;
        self
    }

    /// How a caller that waits tries again. Default: [`Retry::default`].
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Limits how long a lease is renewed. After this time it is lost, with [`LossReason::MaxHold`](crate::LossReason::MaxHold). Default: no
    /// limit.
    ///
    /// It protects against a holder that hangs, whose lease the watchdog would otherwise renew without end.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::LockOptions;
    ///
    /// let options = LockOptions::new().max_hold(Duration::from_secs(300));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self.election.max_hold = Some(limit);
        self
    }

    /// Keeps the key locked for at least `time` after it was acquired, even if it is released earlier. Default: not at all.
    ///
    /// For jobs that several machines start at about the same time and that should run once. If the holder dies, the key is free after its TTL,
    /// so choose a TTL of at least `time` to cover this case, too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold_core::LockOptions;
    ///
    /// let once_a_minute = LockOptions::new().min_hold(Duration::from_secs(60)).ttl(Duration::from_secs(60));
    /// # let _ = once_a_minute;
    /// ```
    #[must_use]
    pub fn min_hold(mut self, time: Duration) -> Self {
        self.min_hold = Some(time);
        self
    }

    /// How much of a lease must be left when it is granted: a grant with less is not accepted, and counts as an attempt that failed. The
    /// lease is asked for once more or, in the end, released. Default: any time at all.
    ///
    /// For work that takes about as long, where the lease is not renewed or may not be for some time. It is counted like the
    /// [deadline](crate::LockGuard::deadline), and must be shorter than the TTL less the allowance for clock drift.
    #[must_use]
    pub fn min_validity(mut self, time: Duration) -> Self {
        self.min_validity = time;
        self
    }

    /// How long work under the lock may go on after the [signal](crate::LockGuard::ending) that its lease is lost or about to be, before
    /// [`run`](crate::Mutex::run) drops it. Default: no time at all.
    ///
    /// Work never goes on past the [deadline](crate::LockGuard::deadline): where that ends the lease, the signal comes so much earlier.
    /// Where an operator or a failover ends it before, another may hold the key during the grace. At most half of the lease, or
    /// each lease would begin with the signal.
    #[must_use]
    pub fn loss_grace(mut self, grace: Duration) -> Self {
        self.loss_grace = grace;
        self
    }

    /// How long the key stays closed after a lease that its holder did not release: the store keeps it for
    /// the TTL and this much longer. Default: not at all.
    ///
    /// For resources that cannot check fencing tokens: requests that a holder sent before it died or was cut off
    /// have that long to arrive. A release opens the key at once, and so does an operator's forced release.
    #[must_use]
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Whether callers are served first come, first served across all processes, by a queue in the
    /// store. Default: each process has its own queue, and passes a mutex on among its callers for 20 ms before others have
    /// their turn; between them the store decides.
    ///
    /// No Leasehold client passes those in the queue, fair or not. A waiter that dies holds up those behind it for at most
    /// [`LockOptions::PLACE_TTL`], and a waiter that gives up leaves the queue as soon as the store learns of it. Each waiting caller
    /// asks the store on its own, so with hundreds of them per key this is slower than the default.
    #[must_use]
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// Whether a mutex that is released goes straight to the next caller of this process that waits for it, with the lease
    /// and a token of its own, and without asking the store. Default: it does, for 20 ms on end, so that other processes get
    /// their turn. A caller takes over a lease only if it was waiting when the grant of that lease arrived.
    ///
    /// A lease of which there is news goes back to the store instead, and the release tells of a loss. So does, from a store that does
    /// not tell of the lease ([`Feature::Push`], [`Grant::without_news`](crate::backend::Grant::without_news)), one that the store
    /// has not confirmed within the last 50 ms; a renewal at the end of that time looks after one that was passed on.
    ///
    /// Hand-over is for leases that are renewed and of which nothing is counted from their grant: without [`max_hold`](Self::max_hold), [`min_hold`](Self::min_hold),
    /// [`lock_delay`](Self::lock_delay) and [`fair`](Self::fair), and where both callers have the same options.
    /// A store that cannot reserve tokens is always asked.
    #[must_use]
    pub fn hand_over(mut self, hand_over: bool) -> Self {
        self.hand_over = hand_over;
        self
    }

    /// How many times one owner may hold a [`ReentrantMutex`](crate::ReentrantMutex) at once.
    /// Default: [`LockOptions::DEFAULT_REENTRY_LIMIT`].
    #[must_use]
    pub fn reentry_limit(mut self, limit: u32) -> Self {
        self.reentry_limit = limit;
        self
    }

    /// The promise that the store's fencing tokens must keep. Default: [`Fencing::BestEffort`], so
    /// that a token from a guard always means something.
    #[must_use]
    pub fn require_fencing(mut self, fencing: Fencing) -> Self {
        self.require_fencing = fencing;
        self
    }

    /// The holder's description, for operators and waiters. Default: host and process id. The leader of
    /// an [`Election`](crate::election::Election) stores its proclamation instead.
    #[must_use]
    pub fn description(mut self, description: Description) -> Self {
        self.description = Some(description);
        self
    }

    /// Stores no description of the holder, so that the stored value is the bare lease id.
    #[must_use]
    pub fn without_description(mut self) -> Self {
        self.description = None;
        self
    }

    /// How long the store's queue keeps the place of a silent waiter.
    pub(crate) fn place_ttl(&self) -> Duration {
        Self::PLACE_TTL.min(self.ttl)
    }

    /// The TTL to count with at the grant: not beyond the longest allowed hold.
    pub(crate) fn first_ttl(&self) -> Duration {
        self.max_hold.map_or(self.ttl, |limit| self.ttl.min(limit))
    }

    /// Whether the watchdog renews the lease until it is released, and lets it end by itself in no case.
    pub(crate) fn tenure(&self) -> Tenure {
        let ends_by_itself = self.first_ttl() < self.ttl || !self.lock_delay.is_zero();
        match self.renewal {
            RenewalMode::Watchdog if !ends_by_itself => Tenure::Kept,
            RenewalMode::Watchdog | RenewalMode::Off => Tenure::Fixed,
        }
    }

    /// The number of tokens to reserve for callers that take the lease over; none if no caller may.
    pub(crate) fn spare_tokens(&self) -> u32 {
        let counts_from_its_grant = self.max_hold.is_some()
            || self.min_hold.is_some()
            || !self.lock_delay.is_zero()
            || !self.min_validity.is_zero();
        let may = self.hand_over
            && !self.fair
            && self.renewal == RenewalMode::Watchdog
            && !counts_from_its_grant;
        if may { Self::SPARE_TOKENS } else { 0 }
    }

    /// Whether leases taken with these options and with `other` are alike.
    pub(crate) fn ask_for_the_same_lease(&self, other: &Self) -> bool {
        self.ttl == other.ttl
            && self.spare_tokens() == other.spare_tokens()
            && self.description == other.description
            // The hold keeps the grace of its first holder.
            && self.loss_grace == other.loss_grace
    }

    /// The options of a client: limits for callers that wait and for work that hangs. They do not end a candidacy or a leadership.
    pub(crate) fn of_client(mut self) -> Self {
        self.election = ElectionLimits::default();
        self
    }

    /// The options of an election.
    pub(crate) fn of_election(&self) -> Self {
        let ElectionLimits { wait, max_hold } = self.election;
        Self { wait, max_hold, ..self.clone() }
    }

    /// The options as they count on `store`, whose longest TTL may be below the default.
    pub(crate) fn on(mut self, store: &Capabilities) -> Self {
        if self.ttl_choice == TtlChoice::Default {
            self.ttl = Self::DEFAULT_TTL.min(store.max_ttl());
        }
        self
    }

    /// Refuses options that cannot work, alone or on this store.
    pub(crate) fn validate(&self, store: &Capabilities) -> Result<(), Error> {
        check_ttl("ttl", self.ttl, store)?;
        self.retry.validate()?;
        check_ttl("max_hold", self.first_ttl(), store)?;
        check_kept(self.ttl, self.lock_delay, store)?;
        let validity = deadline::validity(self.first_ttl());
        check_loss_grace(self.loss_grace, self.first_ttl())?;
        if self.min_validity >= validity {
            let message = format!(
                "min_validity is too long: {}; a lease with this TTL is valid for {}",
                human(self.min_validity),
                human(validity)
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if self.fair {
            check_feature(Feature::Queue, "fair locks", store)?;
        }
        if let Some(time) = self.min_hold
            && time > store.max_ttl()
        {
            let message = format!(
                "min_hold is too long: {}; this store keeps a lock for at most {}",
                human(time),
                human(store.max_ttl())
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if let (Some(min), Some(max)) = (self.min_hold, self.max_hold)
            && min > max
        {
            let message =
                format!("min_hold is longer than max_hold: {} exceeds {}", human(min), human(max));
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if self.reentry_limit == 0 {
            let message = "reentry_limit must be at least 1";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        if self.require_fencing > store.fencing() {
            let message = format!(
                "the store's fencing tokens are {:?}, but {:?} tokens are required; choose another store or lower LockOptions::require_fencing",
                store.fencing(),
                self.require_fencing
            );
            return Err(Error::new(ErrorKind::Unsupported, message).with_backend(store.name()));
        }
        Ok(())
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A time with its units, as in `1 day` and `1h 30m`.
fn human(time: Duration) -> String {
    format_duration(time).to_string().replace("day", " day")
}

/// Refuses a TTL that the store does not support, or that is too short to be of use.
pub(crate) fn check_ttl(name: &str, ttl: Duration, store: &Capabilities) -> Result<(), Error> {
    let (min, max) = (store.min_ttl().max(LockOptions::MIN_TTL), store.max_ttl());
    if (min..=max).contains(&ttl) {
        return Ok(());
    }
    let fault = if ttl < min { "short" } else { "long" };
    let (ttl, min, max) = (human(ttl), human(min), human(max));
    let message = format!("{name} is too {fault}: {ttl}; this store supports {min} to {max}");
    Err(Error::new(ErrorKind::Invalid, message).with_backend(store.name()))
}

/// Refuses a grace period of more than half the validity: the loss notification would come as soon as the lease is granted.
pub(crate) fn check_loss_grace(grace: Duration, ttl: Duration) -> Result<(), Error> {
    let validity = deadline::validity(ttl);
    if grace > validity / 2 {
        let message = format!(
            "loss_grace is too long: {}; it can be at most half the lease's validity period, which is {}",
            human(grace),
            human(validity)
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// Refuses a TTL that, together with the time for which the store keeps the lease beyond it, is too long for the store.
pub(crate) fn check_kept(
    ttl: Duration,
    lock_delay: Duration,
    store: &Capabilities,
) -> Result<(), Error> {
    let (kept, max) = (ttl.saturating_add(lock_delay), store.max_ttl());
    if kept > max {
        let message = format!(
            "lock_delay is too long: together with the TTL, it is {}; this store keeps a lock for at most {}",
            human(kept),
            human(max)
        );
        return Err(Error::new(ErrorKind::Invalid, message).with_backend(store.name()));
    }
    Ok(())
}

/// Refuses `subject` on a store that lacks the feature.
pub(crate) fn check_feature(
    feature: Feature,
    subject: &str,
    store: &Capabilities,
) -> Result<(), Error> {
    if store.supports(feature) {
        return Ok(());
    }
    let message = format!(
        "{subject} require the \"{}\" feature, which this store does not support; {}",
        feature.name(),
        store.advice()
    );
    Err(Error::new(ErrorKind::Unsupported, message).with_backend(store.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: Capabilities = Capabilities::new("store", Fencing::BestEffort);
    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn refusal(options: &LockOptions) -> ErrorKind {
        options.validate(&STORE).unwrap_err().kind()
    }

    #[test]
    fn the_defaults_are_possible() {
        LockOptions::default().validate(&STORE).unwrap();
    }

    #[test]
    fn the_default_ttl_fits_the_store_and_a_chosen_one_has_to() {
        let short = STORE.with_ttl_range(STORE.min_ttl(), MS(10_000));
        let chosen = LockOptions::new().ttl(LockOptions::DEFAULT_TTL);

        assert_eq!(LockOptions::new().on(&STORE).ttl, LockOptions::DEFAULT_TTL);
        assert_eq!(LockOptions::new().on(&short).ttl, MS(10_000));
        LockOptions::new().on(&short).validate(&short).unwrap();
        assert_eq!(chosen.on(&short).validate(&short).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn impossible_settings_are_refused() {
        let options = LockOptions::new();
        for impossible in [
            options.clone().ttl(Duration::ZERO),
            options.clone().ttl(MS(5)),
            options.clone().ttl(STORE.max_ttl() + MS(1)),
            options.clone().ttl(Duration::MAX),
            options.clone().max_hold(MS(1)),
            options.clone().min_hold(Duration::MAX),
            options.clone().min_hold(MS(200)).max_hold(MS(100)),
            options.clone().lock_delay(STORE.max_ttl()),
            options.clone().lock_delay(Duration::MAX),
            options.clone().min_validity(LockOptions::DEFAULT_TTL),
            options.clone().loss_grace(LockOptions::DEFAULT_TTL / 2),
            options.clone().reentry_limit(0),
            options.clone().retry(Retry::unlimited().every(Duration::ZERO)),
        ] {
            assert_eq!(refusal(&impossible), ErrorKind::Invalid, "{impossible:?}");
        }
        assert_eq!(refusal(&options.clone().fair(true)), ErrorKind::Unsupported);
        assert_eq!(refusal(&options.require_fencing(Fencing::Strict)), ErrorKind::Unsupported);
    }

    #[test]
    fn refusals_name_the_setting_and_the_times_that_are_possible() {
        let (options, day) = (LockOptions::new(), Duration::from_secs(86_400));
        for (impossible, said) in [
            (
                options.clone().ttl(Duration::ZERO),
                "ttl is too short: 0s; this store supports 6ms to 1 day",
            ),
            (options.clone().ttl(MS(5)), "ttl is too short: 5ms; this store supports 6ms to 1 day"),
            (
                options.clone().ttl(day * 2),
                "ttl is too long: 2 days; this store supports 6ms to 1 day",
            ),
            (
                options.clone().max_hold(MS(1)),
                "max_hold is too short: 1ms; this store supports 6ms to 1 day",
            ),
            (
                options.clone().min_hold(day * 2),
                "min_hold is too long: 2 days; this store keeps a lock for at most 1 day",
            ),
            (
                options.clone().lock_delay(day),
                "lock_delay is too long: together with the TTL, it is 1 day 30s; this store keeps a lock for at most 1 day",
            ),
            (
                options.min_hold(MS(200)).max_hold(MS(100)),
                "min_hold is longer than max_hold: 200ms exceeds 100ms",
            ),
        ] {
            let refusal = impossible.validate(&STORE).unwrap_err().to_string();
            assert_eq!(refusal.trim_start_matches("store: "), said);
        }
    }

    #[test]
    fn the_limits_themselves_are_possible() {
        for possible in [MS(6), MS(100), STORE.max_ttl()] {
            LockOptions::new().ttl(possible).validate(&STORE).unwrap();
            LockOptions::new().min_hold(possible).max_hold(possible).validate(&STORE).unwrap();
        }
    }
}
