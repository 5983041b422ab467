//! Offers that grant a lock: the waiter need not ask.
//!
//! A release makes the first waiter the holder, and says so on the channel of the waiter's backend. The deadline has to count from before the grant.
//! So each request of a waiter carries the client's time, and the server keeps that of the last request that it ran. The offer returns it, with
//! the time from that request to the grant by the server's clock.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::backend::{Claim, Grant};
use leasehold_core::clock::{Clock, Instant};

/// A grant that is older is not taken: its lease would be too old to be passed on within the process, which takes 20 ms of the 50 ms for which it
/// counts as confirmed.
const LATE: Duration = Duration::from_millis(25);

/// Grants that were offered and that no waiter has taken yet. `Debug` shows none: they hold lease ids.
pub(crate) struct Offers {
    clock: Arc<dyn Clock>,
    /// By the id of the claim.
    granted: Mutex<HashMap<String, Granted>>,
    /// Most claims find none, and lock nothing.
    has_any: AtomicBool,
}

#[derive(Clone, Copy)]
struct Granted {
    token: NonZeroU64,
    spare_tokens: u32,
    /// Not later than the store counts from.
    at: Instant,
}

impl Offers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, granted: Mutex::default(), has_any: AtomicBool::new(false) }
    }

    /// Notes the grant that an offer tells of, and returns the id of the claim.
    pub(crate) fn note<'a>(&self, offer: &'a str) -> &'a str {
        let mut words = offer.split(' ');
        let id = words.next().unwrap_or_default();
        if let Some(granted) = Granted::read(words) {
            let now = self.clock.now();
            self.change(|all| {
                // Those of waiters that have gone.
                all.retain(|_id, granted| now.since(granted.at) < LATE);
                all.insert(id.to_owned(), granted);
            });
        }
        id
    }

    /// Takes the grant of `claim`, if it was offered. A claim that comes late asks, and gets its whole TTL, and so does one whose grant is yet to
    /// come: the server's clock has leapt.
    pub(crate) fn take(&self, claim: &Claim) -> Option<Grant> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let granted = self.change(|all| all.remove(&claim.id().secret()))?;
        let (now, late) = (self.clock.now(), LATE.min(claim.lease().ttl() / 10));
        let is_in_time = (granted.at..granted.at + late).contains(&now);
        let spare_tokens = granted.spare_tokens.min(claim.spare_tokens());
        let grant = Grant::new(granted.token).with_spare_tokens(spare_tokens).without_news();
        is_in_time.then(|| grant.with_elapsed(now.since(granted.at)))
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<String, Granted>) -> T) -> T {
        let mut all = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut all);
        self.has_any.store(!all.is_empty(), Ordering::Release);
        changed
    }
}

impl Granted {
    /// Reads the token, the number of spare tokens, when the client asked, and how many µs after that the server granted. `None` if there is no
    /// grant, or if the server's clock has gone back meanwhile.
    fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let token = words.next()?.parse().ok()?;
        let spare_tokens = words.next()?.parse().ok()?;
        let asked_at = Instant::from_zero(Duration::from_micros(words.next()?.parse().ok()?));
        let after = Duration::from_micros(words.next()?.parse().ok()?);
        Some(Self { token, spare_tokens, at: asked_at + after })
    }
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers").finish_non_exhaustive()
    }
}

/// A time of the client's clock as a request says it: in whole µs, rounded down.
pub(crate) fn stamp(time: Instant) -> u128 {
    time.since(Instant::from_zero(Duration::ZERO)).as_micros()
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;
    use leasehold_core::backend::Lease;
    use leasehold_core::clock::TokioClock;
    use tokio::time::advance;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn offers() -> Offers {
        Offers::new(Arc::new(TokioClock::new()))
    }

    fn claim(ttl: Duration) -> Claim {
        let lease = Lease::new(&LockKey::new("job").unwrap(), ttl);
        Claim::new(lease).with_spare_tokens(5)
    }

    /// An offer of a token and its spare ones, so many µs after the request of this time.
    fn offer(offers: &Offers, claim: &Claim, spare: u32, after: u64) -> String {
        format!("{} 7 {spare} {} {after}", claim.id().secret(), stamp(offers.clock.now()))
    }

    #[tokio::test(start_paused = true)]
    async fn grant_a_claim_once() {
        let (offers, claim) = (offers(), claim(MS(10_000)));
        let offer = offer(&offers, &claim, 3, 0);

        assert_eq!(offers.note(&offer), claim.id().secret());

        let grant = offers.take(&claim).expect("it was offered");
        assert_eq!((grant.token(), grant.spare_tokens(), grant.has_news()), (7, 3, false));
        assert_eq!(offers.take(&claim), None);
    }

    #[tokio::test(start_paused = true)]
    async fn count_from_the_grant_and_not_later() {
        for (after, elapsed) in [(0, MS(10)), (4_000, MS(6))] {
            let (offers, claim) = (offers(), claim(MS(10_000)));
            let offer = offer(&offers, &claim, 0, after);
            advance(MS(10)).await;

            offers.note(&offer);

            let grant = offers.take(&claim).expect("it was offered");
            assert_eq!(grant.elapsed(), elapsed, "{after}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn are_of_no_use_to_a_claim_that_comes_late() {
        for (ttl, late) in [(MS(60_000), LATE), (MS(100), MS(10))] {
            for (time, is_granted) in [(late - MS(1), true), (late, false)] {
                let (offers, claim) = (offers(), claim(ttl));
                offers.note(&offer(&offers, &claim, 0, 0));

                advance(time).await;

                assert_eq!(offers.take(&claim).is_some(), is_granted, "{ttl:?} {time:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_server_whose_clock_leapt_are_of_no_use() {
        let (offers, claim) = (offers(), claim(MS(10_000)));

        offers.note(&offer(&offers, &claim, 0, 1));

        assert_eq!(offers.take(&claim), None);
    }

    #[tokio::test(start_paused = true)]
    async fn grant_no_more_spare_tokens_than_there_is_a_use_for() {
        let (offers, claim) = (offers(), claim(MS(10_000)));

        offers.note(&offer(&offers, &claim, 9, 0));

        assert_eq!(offers.take(&claim).map(|grant| grant.spare_tokens()), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn to_waiters_that_have_gone_are_forgotten() {
        let (offers, gone, comes) = (offers(), claim(MS(10_000)), claim(MS(10_000)));
        offers.note(&offer(&offers, &gone, 0, 0));
        advance(LATE).await;

        offers.note(&offer(&offers, &comes, 0, 0));

        assert_eq!(offers.change(|all| all.len()), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_grant_call_the_claim() {
        let (offers, claim) = (offers(), claim(MS(10_000)));
        let id = claim.id().secret();
        for words in ["", " 7", " 0 0 0 0", " x 0 0 0", " 7 0 0 -1", " 7 -1 0 0"] {
            assert_eq!(offers.note(&format!("{id}{words}")), id);
            assert_eq!(offers.take(&claim), None, "{words}");
        }
    }
}
