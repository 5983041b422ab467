//! One connection.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use leasehold_core::backend::{Attempt, Claim, Lease, Mode, Patience, Release};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_entry::Tag;
use leasehold_sql_support::remote::{Execute, RunError, Table, Urgency, change};
use leasehold_sql_support::rows::{Change, Clock, State};
use leasehold_sql_support::{Failure, FreeClaim, HeldLease, Reading};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::book::Book;
use super::scenario::Scenario;

/// The minimum token is raised to the token of a time in the future, so that the clock never orders
/// the tokens, and every free row can be deleted.
const AGE: Duration = Duration::from_secs(10);

/// Longer than a run, so that no lease expires.
const LONG: Duration = Duration::from_secs(600);

/// The TTL of a lease that expires. On a slow machine, it is longer.
const SHORT: Duration = Duration::from_millis(8);

/// The number of requests that a caller can send, one after the other, until its lease expires.
const REQUESTS_PER_TTL: u32 = 4;

/// How much earlier a holder of a lease that expires considers the lease lost.
const MARGIN: Duration = Duration::from_micros(100);

/// A caller, which is a process of its own as far as the store can tell.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) run: Box<dyn Execute>,
    pub(super) table: Box<dyn Table>,
    pub(super) keys: Vec<LockKey>,
    pub(super) book: Arc<Book>,
    pub(super) scenario: Scenario,
    pub(super) end: Instant,
    /// The end of the run, even if the attack was not [strong enough](Scenario::is_enough).
    pub(super) latest_end: Instant,
}

/// The tokens of a grant.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    first: u64,
    last: u64,
}

impl Caller {
    /// Deletes free rows all the time.
    pub(super) async fn purge(&self) {
        let age = -i64::try_from(AGE.as_micros()).expect("the age is small");
        while self.goes_on() {
            match self.table.purge(&*self.run, "", age).await {
                Ok(purged) => self.book.purged(purged.rows),
                Err(error) => expect_conflict(&error),
            }
            // Pauses, because a caller needs several statements for a row that it has created.
            let pause = if fastrand::u8(..8) == 0 { 30_000 } else { fastrand::u64(..500) };
            sleep(Duration::from_micros(pause)).await;
        }
    }

    /// Acquires and releases a lock, or two.
    pub(super) async fn call(&self, n: usize) {
        let first = &self.keys[n % self.keys.len()];
        match fastrand::u8(..10) {
            0 => {
                let mut keys = self.keys.clone();
                fastrand::shuffle(&mut keys);
                self.lock_both(&keys[..2]).await;
            }
            1 if self.table.max_together() > 1 => self.lock_together().await,
            2 => self.lock(first, Mode::Units { units: 1, limit: 2 }, false).await,
            3 => self.lock(first, Mode::Exclusive, false).await,
            _ => self.lock(first, Mode::Exclusive, true).await,
        }
        pause().await;
    }

    /// Acquires and releases one lock. A caller that waits for the lock repeats its claim until it
    /// is granted or until it gives up.
    async fn lock(&self, key: &LockKey, mode: Mode, is_free: bool) {
        let lease = Lease::new(key, LONG).with_mode(mode);
        let spare = if fastrand::bool() { fastrand::u32(..20) } else { 0 };
        let claim = Claim::new(lease.clone()).with_spare_tokens(spare);
        let claim = claim.with_patience(patience(LONG));
        let tries = if claim.queue_ttl().is_some() { fastrand::u8(1..16) } else { 1 };
        let mut granted = self.attempt(&claim, is_free).await;
        for _ in 1..tries {
            if granted.is_some() {
                break;
            }
            pause().await;
            // The transfer to the last waiter is confirmed with the statement for a free key.
            granted = self.attempt(&claim, mode.is_mutex() && fastrand::bool()).await;
        }
        let Some(Tokens { first, last }) = granted else {
            if claim.queue_ttl().is_some() {
                self.release(&lease).await;
            }
            return;
        };
        self.book.granted(key, mode, first, last);
        pause().await;
        if mode.is_mutex() && fastrand::u8(..4) == 0 {
            self.renew(&lease).await;
        }
        if fastrand::u8(..8) == 0 {
            // The row contains a document from then on.
            self.change(&[key], |states, _| {
                states[0].entry()?.request_revocation(None);
                Ok(())
            })
            .await;
        }
        self.book.releases(key, mode);
        if !self.release(&lease).await {
            self.book.lost();
        }
    }

    /// Acquires two locks at the same time.
    async fn lock_both(&self, keys: &[LockKey]) {
        let leases: Vec<_> = keys.iter().map(|key| Lease::new(key, LONG)).collect();
        let claims: Vec<_> = leases.iter().cloned().map(Claim::new).collect();
        let keys: Vec<_> = keys.iter().collect();
        let granted = self
            .change(&keys, |states, clock| {
                for (state, claim) in states.iter_mut().zip(&claims) {
                    let tag = Tag::of(&claim.id());
                    if state.entry()?.obstacle(&tag, claim, clock.now).is_some() {
                        return Ok(None);
                    }
                }
                let mut tokens = Vec::new();
                for (state, claim) in states.iter_mut().zip(&claims) {
                    let (tag, limits) = (Tag::of(&claim.id()), state.tokens(0, clock));
                    let grant = state.entry()?.grant(tag, claim, limits, clock.now).reply;
                    tokens.push(grant.token());
                }
                Ok(Some(tokens))
            })
            .await;
        let Some(tokens) = granted else { return };
        for (lease, token) in leases.iter().zip(tokens) {
            self.book.granted(lease.key(), lease.mode(), token, token);
        }
        pause().await;
        for lease in &leases {
            self.book.releases(lease.key(), lease.mode());
            if !self.release(lease).await {
                self.book.lost();
            }
        }
    }

    /// Acquires all keys that are free in one batch, and releases them in one batch.
    async fn lock_together(&self) {
        let mut keys = self.keys.clone();
        fastrand::shuffle(&mut keys);
        let claims: Vec<_> =
            keys.iter().map(|key| Claim::new(Lease::new(key, LONG)).with_spare_tokens(3)).collect();
        let granted = self.acquire_together(&claims).await;
        let mut leases = Vec::new();
        for (claim, tokens) in claims.iter().zip(granted) {
            let Some(Tokens { first, last }) = tokens else {
                // Another process may have moved the key after the grant.
                self.release(claim.lease()).await;
                continue;
            };
            self.book.granted(claim.key(), Mode::Exclusive, first, last);
            leases.push((claim.lease(), Tag::of(&claim.id()).id));
        }
        if leases.is_empty() {
            return;
        }
        pause().await;
        leases.iter().for_each(|(lease, _)| self.book.releases(lease.key(), Mode::Exclusive));
        let named: Vec<_> =
            leases.iter().map(|(lease, tag)| (lease.key().as_str(), *tag)).collect();
        let released = match self.table.release_simple(&*self.run, &named).await {
            Ok(released) => released,
            Err(error) => {
                expect_conflict(&error);
                vec![None; leases.len()]
            }
        };
        for ((lease, _), released) in leases.iter().zip(released) {
            if released.is_none() && !self.release(lease).await {
                self.book.lost();
            }
        }
    }

    /// Acquires leases that expire.
    pub(super) async fn let_expire(&self, n: usize) {
        let key = &self.keys[n % self.keys.len()];
        let (mut waiting, mut ttl) = (None, SHORT);
        while self.goes_on() {
            let lease = waiting.take().unwrap_or_else(|| Lease::new(key, ttl));
            let claim = Claim::new(lease.clone()).with_patience(patience(lease.ttl()));
            let (started, valid) = (StdInstant::now(), lease.ttl() - MARGIN);
            let mut until = started + valid;
            let granted = self.attempt(&claim, fastrand::bool()).await;
            ttl = SHORT.max(started.elapsed() * REQUESTS_PER_TTL);
            let Some(Tokens { first, .. }) = granted else {
                // Some waiters return after their queue entries and their reservations have
                // expired.
                let is_late = fastrand::u8(..16) == 0;
                sleep(part_of(lease.ttl(), if is_late { 1.5 } else { 0.2 })).await;
                match fastrand::u8(..16) {
                    0 => drop(self.release(&lease).await),
                    // The waiter has crashed.
                    1 => {}
                    _ => waiting = Some(lease),
                }
                continue;
            };
            if !self.book.granted_until(key, first, until) {
                continue;
            }
            for _ in 0..fastrand::u8(..4) {
                sleep(part_of(lease.ttl(), 0.6)).await;
                let renewed_until = StdInstant::now() + valid;
                if !self.renew(&lease).await || !self.book.holds_until(key, renewed_until) {
                    break;
                }
                until = renewed_until;
            }
            if fastrand::bool() {
                self.book.ends(key, until);
                self.release(&lease).await;
            }
        }
    }

    /// Tries once to acquire a lock, and sends the row to the holder if the claim was queued.
    async fn attempt(&self, claim: &Claim, is_free: bool) -> Option<Tokens> {
        let free = if is_free { self.acquire_free(claim).await } else { None };
        // Another process may have moved the key after the grant, so the row may belong to the
        // lease.
        let granted = if free.is_some() { free } else { self.acquire(claim).await };
        let key = claim.key();
        if granted.is_some() {
            self.book.acquired(key, Tag::of(&claim.id()));
        } else if claim.queue_ttl().is_some() {
            match self.table.read(&*self.run, &[key.as_str()]).await {
                Ok(mut rows) => self.book.tell(key, rows.remove(0)),
                Err(error) => expect_conflict(&error),
            }
        }
        granted
    }

    async fn acquire_free(&self, claim: &Claim) -> Option<Tokens> {
        self.acquire_together(std::slice::from_ref(claim)).await.pop().flatten()
    }

    /// Acquires free keys in one batch.
    async fn acquire_together(&self, claims: &[Claim]) -> Vec<Option<Tokens>> {
        let tags: Vec<_> = claims.iter().map(|claim| Tag::of(&claim.id())).collect();
        let fingerprints: Vec<_> = tags.iter().map(|tag| tag.fingerprint.to_string()).collect();
        let mut free = Vec::new();
        for ((claim, tag), fingerprint) in claims.iter().zip(&tags).zip(&fingerprints) {
            free.push(FreeClaim {
                key: claim.key().as_str(),
                tag: tag.id,
                ttl: micros(claim.lease().ttl()),
                fingerprint,
                description: None,
                spare: claim.spare_tokens().into(),
                requested_token: 0,
                membership: None,
            });
        }
        let tokens = |granted: Option<(i64, i64)>| {
            let (token, spare) = granted?;
            let [first, last] = [token - spare, token]
                .map(|token| u64::try_from(token).expect("tokens are positive"));
            Some(Tokens { first, last })
        };
        let granted = match self.table.acquire_free(&*self.run, &free).await {
            Ok(granted) => granted,
            Err(error) => {
                expect_conflict(&error);
                return vec![None; claims.len()];
            }
        };
        let granted = granted.into_iter().map(|granted| match granted {
            Ok(granted) => tokens(granted),
            Err(error) => {
                expect_conflict(&error);
                None
            }
        });
        granted.collect()
    }

    async fn acquire(&self, claim: &Claim) -> Option<Tokens> {
        let acquire = |states: &mut [State], clock: Clock| {
            let limits = states[0].tokens(0, clock);
            let (tag, entry) = (Tag::of(&claim.id()), states[0].entry()?);
            Ok(match entry.acquire(tag, claim, limits, clock.now) {
                Ok(step) => match step.reply {
                    Attempt::Granted(grant) => {
                        let last = grant.token() + u64::from(claim.spare_tokens());
                        Some(Tokens { first: grant.token(), last })
                    }
                    _ => None,
                },
                // The key has permits in use.
                Err(_) => None,
            })
        };
        self.change(&[claim.key()], acquire).await
    }

    async fn renew(&self, lease: &Lease) -> bool {
        let held = HeldLease {
            key: lease.key().as_str(),
            generation: 0,
            tag: Tag::of(&lease.id()).id,
            ttl: micros(lease.ttl()),
            description: None,
        };
        match self.table.renew_simple(&*self.run, &[held]).await {
            Ok(renewed) => renewed[0],
            Err(error) => {
                expect_conflict(&error);
                false
            }
        }
    }

    /// Releases a lease, transfers the key to the first waiter, and returns whether the lease was
    /// there.
    async fn release(&self, lease: &Lease) -> bool {
        let (key, tag) = (lease.key(), Tag::of(&lease.id()));
        let known = self.book.take_told(key);
        if known.is_none() {
            loop {
                match self.table.release_simple(&*self.run, &[(key.as_str(), tag.id)]).await {
                    Ok(released) if released[0].is_some() => return true,
                    Ok(_) => break,
                    Err(error) => expect_conflict(&error),
                }
            }
        }
        let release = |states: &mut [State], clock: Clock| {
            let (tokens, entry) = (states[0].tokens(0, clock), states[0].entry()?);
            let was_held = entry.release(&tag, clock.now).reply == Release::Released;
            Ok((was_held, entry.hand_over(tokens, clock.now)))
        };
        let request = Change { leases: vec![tag.id], ..request(&[key]) };
        let (was_held, waiter) = self.change_known(&request, known, release).await;
        if let Some(waiter) = waiter {
            self.book.transferred(key, waiter);
        }
        was_held
    }

    async fn change<T: Send>(
        &self,
        keys: &[&LockKey],
        step: impl FnMut(&mut [State], Clock) -> Result<T, Error> + Send,
    ) -> T {
        self.change_known(&request(keys), None, step).await
    }

    async fn change_known<T: Send>(
        &self,
        request: &Change,
        mut known: Option<Reading>,
        mut step: impl FnMut(&mut [State], Clock) -> Result<T, Error> + Send,
    ) -> T {
        let (table, run) = (&*self.table, &*self.run);
        loop {
            let give_up = Instant::now() + LONG;
            match change(table, run, request, known.take(), give_up, &mut step).await {
                Ok(done) => return done,
                // A deadlock victim: nothing was written.
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(super) fn goes_on(&self) -> bool {
        let (now, report) = (Instant::now(), self.book.report());
        let is_over =
            now >= self.end && (self.scenario.is_enough(&report) || now >= self.latest_end);
        !is_over && !report.is_broken()
    }
}

fn request(keys: &[&LockKey]) -> Change {
    let keys = keys.iter().copied().cloned().collect();
    Change { keys, leases: Vec::new(), membership: None, urgency: Urgency::Asks }
}

/// Chooses whether a caller waits, and whether the key is reserved for it when the key becomes
/// free.
fn patience(queue_ttl: Duration) -> Patience {
    match fastrand::u8(..12) {
        0 => Patience::Queues(queue_ttl),
        1 | 2 => Patience::Waits,
        _ => Patience::Leaves,
    }
}

/// Returns a random part of a TTL, up to this factor.
fn part_of(ttl: Duration, largest: f64) -> Duration {
    ttl.mul_f64(fastrand::f64() * largest)
}

/// InnoDB may choose a transaction as a deadlock victim. It was not applied.
fn expect_conflict(error: &RunError) {
    assert_eq!(error.failure(), Failure::Conflict, "{error:?}");
}

/// Lets other connections run.
async fn pause() {
    if fastrand::bool() {
        sleep(Duration::from_millis(1)).await;
    } else {
        yield_now().await;
    }
}

fn micros(time: Duration) -> i64 {
    time.as_micros().try_into().expect("TTLs are short")
}
