//! The options of a lock.

use std::time::Duration;

use humantime::format_duration;

use crate::contract::backend::{Capabilities, Feature, Fencing, Patience, Tenure};
use crate::contract::description::Description;
use crate::contract::error::{Error, ErrorKind};
use crate::engine::deadline;
use crate::retry::Retry;

/// Options that control how a lock is acquired and kept. Set options for a client, and override
/// them for individual locks if necessary.
///
/// Contradictory options are rejected when they are passed to a client or a lock, before any I/O.
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
    /// The limits for elections, which do not inherit the client's limits.
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

/// The options that an election does not inherit from the client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ElectionLimits {
    wait: Option<Duration>,
    max_hold: Option<Duration>,
}

/// The source of a lock's TTL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TtlChoice {
    /// The caller set the TTL. If the store does not support this TTL, the options are rejected.
    Callers,
    /// The TTL is [`LockOptions::DEFAULT_TTL`], or the store's maximum TTL if that is shorter.
    Default,
}

/// Whether the client renews leases while their guards exist.
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
    /// The watchdog renews each lease after one third of its TTL, or up to 1 % earlier so that many
    /// renewals share a round trip. If the store supports
    /// [`Feature::Sessions`](crate::backend::Feature::Sessions), all leases with the same TTL are
    /// renewed as soon as the first of them is due.
    Watchdog,
    /// The client does not renew the lease. The lease expires after its TTL, unless its guard
    /// [extends](crate::LockGuard::extend) it.
    Off,
}

impl LockOptions {
    /// The default TTL.
    ///
    /// A lease with this TTL survives a failover of the store or a long pause of the process,
    /// because seven consecutive renewals can fail before the lease expires. With the default TTL,
    /// a crashed holder does not block other callers for long.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

    /// The minimum TTL for all stores. With a TTL shorter than the minimum, the allowance for clock
    /// drift would be more than half of the TTL.
    pub const MIN_TTL: Duration = deadline::SHORTEST_TTL;

    /// The default [`outage_wait`](Self::outage_wait).
    ///
    /// The default outage wait is longer than a failover of Redis Sentinel, Redis Cluster or etcd,
    /// which takes 1 to 5 s with common settings. During a longer outage, callers should receive an
    /// error.
    pub const DEFAULT_OUTAGE_WAIT: Duration = Duration::from_secs(10);

    /// How long the store keeps the queue entry of a caller that stops refreshing the entry. If the
    /// TTL of the lease is shorter, the store keeps the entry for the TTL instead.
    ///
    /// A queue entry lasts long enough for three attempts over a new connection, and is short
    /// enough that a crashed caller delays other callers only briefly.
    pub const PLACE_TTL: Duration = Patience::QUEUE_TTL;

    /// The maximum number of hand-offs before a lease returns to the store, because each hand-off
    /// takes at least one third of a microsecond.
    const SPARE_TOKENS: u32 = 65_536;

    /// The default [`reentry_limit`](Self::reentry_limit). Code that exceeds the default limit
    /// usually contains an infinite recursion.
    pub const DEFAULT_REENTRY_LIMIT: u32 = 1_000;

    /// Creates the default options: a TTL of 30 s with renewal, an unlimited wait for a held key,
    /// and a wait of at most 10 s for a store that does not respond.
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

    /// Sets how long the store keeps a lease without renewal. A crashed holder blocks the key for
    /// at most this time. Default: [`LockOptions::DEFAULT_TTL`], or the store's maximum TTL if that
    /// is shorter.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self.ttl_choice = TtlChoice::Callers;
        self
    }

    /// Sets whether the watchdog renews the lease. Default: [`RenewalMode::Watchdog`], regardless
    /// of the TTL. See [`RenewalMode`] for an example.
    #[must_use]
    pub fn renewal(mut self, mode: RenewalMode) -> Self {
        self.renewal = mode;
        self
    }

    /// Limits how long `lock` waits for a held key. The limit includes both the time spent waiting
    /// for other callers in this process and the time spent waiting for other processes. Default:
    /// no limit.
    ///
    /// As in std and tokio, the wait is not limited by default, because only the caller knows how
    /// long the lock is worth waiting for. A crashed holder blocks the key for at most its TTL. If
    /// the store does not respond, the wait ends after [`outage_wait`](Self::outage_wait). To
    /// prevent a hanging holder from blocking the key indefinitely, set
    /// [`max_hold`](Self::max_hold). In a request handler, set `wait` to the time for which the
    /// requesting client will wait for a response. Methods with a `wait` argument ignore the `wait`
    /// option.
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

    /// Sets how long a waiting caller keeps retrying while the store is unreachable or does not
    /// respond. The caller also stops retrying when its own time limit is reached. The backend's
    /// timeout applies to each individual request. Default: [`LockOptions::DEFAULT_OUTAGE_WAIT`].
    ///
    /// Callers of a process that wait for the same key share their attempts. A waiting caller gives
    /// up once the store has not responded to any caller of the process for the time set here. This
    /// time starts when the caller begins to wait, and restarts whenever the store responds. A
    /// caller that gives up receives the error of the latest attempt.
    #[must_use]
    pub fn outage_wait(mut self, wait: Duration) -> Self {
        self.outage_wait = wait;
        self
    }

    /// Sets when a waiting caller makes its next attempt. Default: [`Retry::default`].
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Limits how long a lease can be held. A lease that is held for longer than this limit is lost
    /// with the reason [`LossReason::MaxHold`](crate::LossReason::MaxHold). Default: no limit.
    ///
    /// A maximum hold time protects against a holder that hangs, whose lease the watchdog would
    /// otherwise renew indefinitely.
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

    /// Keeps the key locked for at least `time` after its acquisition, even if the holder releases
    /// it earlier. Default: no minimum.
    ///
    /// Use `min_hold` for jobs that several machines start at about the same time but that should
    /// run only once. If the holder crashes, the key is free after its TTL, so choose a TTL of at
    /// least `time` to cover this case as well.
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

    /// Sets the minimum remaining time of a lease when it is granted. Default: no minimum.
    ///
    /// If a lease is granted with less remaining time, the attempt counts as failed. If too little
    /// time remains, the client requests the lease again, or releases it if no attempts are left.
    ///
    /// Use `min_validity` if the work takes about `time` and the lease might not be renewed during
    /// the work, either because renewal is disabled or because renewals fail. The remaining time of
    /// a lease is the time until its [deadline](crate::LockGuard::deadline). `time` must be shorter
    /// than the TTL minus the allowance for clock drift.
    #[must_use]
    pub fn min_validity(mut self, time: Duration) -> Self {
        self.min_validity = time;
        self
    }

    /// Sets how long work under the lock may continue after the [loss
    /// notification](crate::LockGuard::ending), before [`run`](crate::Mutex::run) drops the work.
    /// Default: zero.
    ///
    /// Work never continues past the [deadline](crate::LockGuard::deadline). If the lease is about
    /// to expire, the loss notification therefore arrives `grace` before the deadline. If an
    /// operator or a failover ends the lease earlier, another client may hold the key during the
    /// grace period. `grace` can be at most half the validity of the lease. With a longer grace
    /// period, the loss notification could arrive as soon as the lease is granted.
    #[must_use]
    pub fn loss_grace(mut self, grace: Duration) -> Self {
        self.loss_grace = grace;
        self
    }

    /// Sets how long a key remains locked after a lease has expired because its holder did not
    /// release it. If a lease is not renewed, the store keeps it for its TTL plus the lock delay.
    /// Default: no delay.
    ///
    /// Use `lock_delay` for resources that cannot check fencing tokens. With a lock delay, the next
    /// holder acquires the key later. Requests that the previous holder sent before it crashed or
    /// was disconnected therefore have time to arrive first. A release by the holder or by an
    /// operator frees the key immediately.
    #[must_use]
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Sets whether callers in all processes acquire the lock in order of arrival, through a queue
    /// in the store. Default: `false`.
    ///
    /// Without `fair`, each process has its own queue, and hands off a mutex among its own callers
    /// for up to 20 ms, before the store decides which process is next.
    ///
    /// Leasehold clients never jump the queue, even if their own locks are not fair. If a waiter
    /// crashes, it blocks later waiters for at most [`LockOptions::PLACE_TTL`]. A waiter that gives
    /// up leaves the queue as soon as its release request reaches the store. Each waiting caller
    /// sends its own requests to the store, so a fair lock with hundreds of waiting callers is
    /// slower than the default.
    #[must_use]
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// Sets whether a released mutex is handed off to the next waiting caller of this process,
    /// without a request to the store. Default: `true`.
    ///
    /// The next caller receives the same lease with a new token. A process keeps handing off a
    /// mutex for at most 20 ms, and then releases the lease, so that other processes can acquire
    /// the mutex. A caller can receive a lease by hand-off only if it was already waiting when the
    /// lease was granted.
    ///
    /// If the client has received a notification about a lease, it releases the lease instead of
    /// handing it off, because the lease may be lost. If the store does not send notifications for
    /// the lease ([`Feature::Push`], [`Grant::without_news`](crate::backend::Grant::without_news)),
    /// the lease is handed off only within 50 ms after its last confirmation by the store.
    ///
    /// A lease is handed off only if the watchdog renews it, and only between callers with the same
    /// options. If [`max_hold`](Self::max_hold), [`min_hold`](Self::min_hold),
    /// [`min_validity`](Self::min_validity), [`lock_delay`](Self::lock_delay) or
    /// [`fair`](Self::fair) is set, leases are not handed off. If the store cannot reserve [spare
    /// tokens](Feature::SpareTokens), the client contacts the store for each caller.
    #[must_use]
    pub fn hand_over(mut self, hand_over: bool) -> Self {
        self.hand_over = hand_over;
        self
    }

    /// Sets how many times an owner can hold a [`ReentrantMutex`](crate::ReentrantMutex) at the
    /// same time. Default: [`LockOptions::DEFAULT_REENTRY_LIMIT`].
    #[must_use]
    pub fn reentry_limit(mut self, limit: u32) -> Self {
        self.reentry_limit = limit;
        self
    }

    /// Sets the minimum guarantee that the store's fencing tokens must provide. By default, the
    /// store must provide at least [`Fencing::BestEffort`].
    #[must_use]
    pub fn require_fencing(mut self, fencing: Fencing) -> Self {
        self.require_fencing = fencing;
        self
    }

    /// Sets the description of the holder, which operators and waiters can read. Default: the host
    /// name and the process id. The leader of an [`Election`](crate::election::Election) stores its
    /// published value instead of a description.
    #[must_use]
    pub fn description(mut self, description: Description) -> Self {
        self.description = Some(description);
        self
    }

    /// Removes the description of the holder, so that the store keeps only the lease id.
    #[must_use]
    pub fn without_description(mut self) -> Self {
        self.description = None;
        self
    }

    /// Returns how long the store keeps the queue entry of a waiter that stops refreshing the
    /// entry.
    pub(crate) fn place_ttl(&self) -> Duration {
        Self::PLACE_TTL.min(self.ttl)
    }

    /// Returns the TTL that determines the first deadline, which `max_hold` limits.
    pub(crate) fn first_ttl(&self) -> Duration {
        self.max_hold.map_or(self.ttl, |limit| self.ttl.min(limit))
    }

    /// Returns [`Tenure::Kept`] if the watchdog renews the lease until its release, and
    /// [`Tenure::Fixed`] if the lease must be able to expire.
    pub(crate) fn tenure(&self) -> Tenure {
        let ends_by_itself = self.first_ttl() < self.ttl || !self.lock_delay.is_zero();
        match self.renewal {
            RenewalMode::Watchdog if !ends_by_itself => Tenure::Kept,
            RenewalMode::Watchdog | RenewalMode::Off => Tenure::Fixed,
        }
    }

    /// Returns the number of tokens to reserve for hand-offs, or 0 if hand-offs are disabled.
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

    /// Returns whether a lease with these options can be handed off to a caller with the options
    /// `other`.
    pub(crate) fn ask_for_the_same_lease(&self, other: &Self) -> bool {
        self.ttl == other.ttl
            && self.spare_tokens() == other.spare_tokens()
            && self.description == other.description
            // A lease that is handed off keeps the grace period of its first holder.
            && self.loss_grace == other.loss_grace
    }

    /// Returns the options for a client. The client's limits for waiting and holding do not apply
    /// to elections.
    pub(crate) fn of_client(mut self) -> Self {
        self.election = ElectionLimits::default();
        self
    }

    pub(crate) fn of_election(&self) -> Self {
        let ElectionLimits { wait, max_hold } = self.election;
        Self { wait, max_hold, ..self.clone() }
    }

    /// Adapts the default TTL to `store`, whose maximum TTL may be shorter.
    pub(crate) fn on(mut self, store: &Capabilities) -> Self {
        if self.ttl_choice == TtlChoice::Default {
            self.ttl = Self::DEFAULT_TTL.min(store.max_ttl());
        }
        self
    }

    /// Rejects options that are invalid or that the store does not support.
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
                "the store's fencing tokens are {:?}, but {:?} tokens are required; choose a different store or lower LockOptions::require_fencing",
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

/// Formats a duration with units, such as `1 day` or `1h 30m`.
fn human(time: Duration) -> String {
    format_duration(time).to_string().replace("day", " day")
}

/// Rejects a TTL that the store does not support, or that is too short to be useful.
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

/// Rejects a grace period longer than half the validity, because the loss notification could arrive
/// as soon as the lease is granted.
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

/// Rejects a TTL if the sum of the TTL and the lock delay is longer than the store supports.
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

/// Rejects `subject` if the store does not support `feature`.
pub(crate) fn check_feature(
    feature: Feature,
    subject: &str,
    store: &Capabilities,
) -> Result<(), Error> {
    check_support(store.supports(feature), subject, store)
}

/// Returns an error with the store's advice unless the store supports `subject`.
pub(crate) fn check_support(
    is_supported: bool,
    subject: &str,
    store: &Capabilities,
) -> Result<(), Error> {
    if is_supported {
        return Ok(());
    }
    let message = format!("this store does not support {subject}; {}", store.advice());
    Err(Error::new(ErrorKind::Unsupported, message).with_backend(store.name()))
}
