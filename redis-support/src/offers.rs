//! Reservations that grant a lock, so that the waiter does not have to ask again.
//!
//! A release makes the first waiter the holder, and publishes this on the channel of the waiter's
//! backend. The deadline must count from a time before the grant. Each request of a waiter
//! therefore contains the client's time, and the server stores the time of the last request. The
//! reservation returns this time, and the time from this request to the grant by the server's
//! clock.
//!
//! The waiter may be dead without the server's knowledge. The grant is therefore only as long as a
//! reservation of a free key ([`Patience::RESERVATION`]). The waiter's first renewal requests the
//! full TTL.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::backend::{Claim, Grant, Patience};
use leasehold_core::clock::Instant;

/// An older grant is not used, because its lease would be too old for a hand-off within the
/// process. A hand-off takes 20 ms of the 50 ms for which a lease counts as confirmed.
const LATE: Duration = Duration::from_millis(25);

/// Reserved grants that no waiter has used yet. `Debug` does not show them, because they contain
/// lease ids.
#[derive(Default)]
pub(crate) struct Offers {
    /// The grants by the id of the claim.
    granted: Mutex<HashMap<String, Granted>>,
    /// Avoids the lock, because most claims find no grant.
    has_any: AtomicBool,
}

#[derive(Clone, Copy)]
struct Granted {
    token: NonZeroU64,
    spare_tokens: u32,
    /// When the lease started. This is not later than the store's start of the TTL.
    at: Instant,
}

impl Offers {
    /// Stores the grant in a reservation, if there is one. Returns the id of the claim.
    pub(crate) fn note<'a>(&self, offer: &'a str, now: Instant) -> &'a str {
        let mut words = offer.split(' ');
        let id = words.next().unwrap_or_default();
        if let Some(granted) = Granted::read(words) {
            self.change(|all| {
                // Waiters that have given up do not remove their grants.
                all.retain(|_id, granted| now.since(granted.at) < LATE);
                all.insert(id.to_owned(), granted);
            });
        }
        id
    }

    /// Removes and returns the grant of `claim`, if there is one. A claim that is too late asks the
    /// server and gets its full TTL. A grant in the future is rejected too, because the server's
    /// clock has jumped.
    pub(crate) fn take(&self, claim: &Claim, now: impl FnOnce() -> Instant) -> Option<Grant> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let granted = self.change(|all| all.remove(&claim.id().secret()))?;
        let (now, late) = (now(), LATE.min(claim.lease().ttl() / 10));
        let is_in_time = (granted.at..granted.at + late).contains(&now);
        let spare_tokens = granted.spare_tokens.min(claim.spare_tokens());
        let grant = Grant::new(granted.token)
            .with_ttl(claim.lease().ttl().min(Patience::RESERVATION))
            .with_spare_tokens(spare_tokens)
            .without_news();
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
    /// Reads the token, the number of spare tokens, the time of the client's request, and the time
    /// from the request to the grant in µs. Returns `None` if there is no grant, or if the server's
    /// clock went back in the meantime.
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

/// Converts a time of the client's clock to the format of requests, which is whole µs, rounded
/// down.
pub(crate) fn stamp(time: Instant) -> u128 {
    time.since(Instant::from_zero(Duration::ZERO)).as_micros()
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;
    use leasehold_core::backend::Lease;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const ASKED_AT: Instant = Instant::from_zero(Duration::from_secs(7));

    fn claim(ttl: Duration) -> Claim {
        let key = LockKey::new("job").expect("it is short and plain");
        Claim::new(Lease::new(&key, ttl)).with_spare_tokens(5)
    }

    /// Returns a reservation with token 7 and `spare` more tokens. It was granted `after` this time
    /// from the claim's request.
    fn offer(claim: &Claim, spare: u32, after: Duration) -> String {
        format!("{} 7 {spare} {} {}", claim.id().secret(), stamp(ASKED_AT), after.as_micros())
    }

    #[test]
    fn grant_a_claim_once() {
        let (offers, claim) = (Offers::default(), claim(MS(10_000)));

        assert_eq!(offers.note(&offer(&claim, 3, MS(0)), ASKED_AT), claim.id().secret());

        let grant = offers.take(&claim, || ASKED_AT).expect("it was offered");
        assert_eq!((grant.token(), grant.spare_tokens(), grant.has_news()), (7, 3, false));
        assert_eq!(offers.take(&claim, || ASKED_AT), None);
    }

    #[test]
    fn count_from_the_grant() {
        for after in [MS(0), MS(4)] {
            let (offers, claim) = (Offers::default(), claim(MS(10_000)));
            offers.note(&offer(&claim, 0, after), ASKED_AT + after);

            let grant = offers.take(&claim, || ASKED_AT + MS(10)).expect("it was offered");

            assert_eq!(grant.elapsed(), MS(10) - after);
        }
    }

    #[test]
    fn are_of_no_use_to_a_claim_that_comes_late() {
        for (ttl, late) in [(MS(60_000), LATE), (MS(100), MS(10))] {
            for (time, is_granted) in [(late - MS(1), true), (late, false)] {
                let (offers, claim) = (Offers::default(), claim(ttl));
                offers.note(&offer(&claim, 0, MS(0)), ASKED_AT);

                let grant = offers.take(&claim, || ASKED_AT + time);

                assert_eq!(grant.is_some(), is_granted, "{ttl:?} {time:?}");
            }
        }
    }

    #[test]
    fn of_a_server_whose_clock_leapt_are_of_no_use() {
        let (offers, claim) = (Offers::default(), claim(MS(10_000)));

        offers.note(&offer(&claim, 0, MS(1)), ASKED_AT);

        assert_eq!(offers.take(&claim, || ASKED_AT), None);
    }

    #[test]
    fn grant_no_more_spare_tokens_than_there_is_a_use_for() {
        let (offers, claim) = (Offers::default(), claim(MS(10_000)));
        offers.note(&offer(&claim, 9, MS(0)), ASKED_AT);

        let grant = offers.take(&claim, || ASKED_AT).expect("it was offered");

        assert_eq!(grant.spare_tokens(), 5);
    }

    #[test]
    fn to_waiters_that_have_gone_are_forgotten() {
        let (offers, gone, comes) = (Offers::default(), claim(MS(10_000)), claim(MS(10_000)));
        offers.note(&offer(&gone, 0, MS(0)), ASKED_AT);

        offers.note(&offer(&comes, 0, MS(0)), ASKED_AT + LATE);

        assert_eq!(offers.change(|all| all.len()), 1);
    }

    #[test]
    fn without_a_grant_call_the_claim() {
        let (offers, claim) = (Offers::default(), claim(MS(10_000)));
        let id = claim.id().secret();
        for words in ["", " 7", " 0 0 0 0", " x 0 0 0", " 7 0 0 -1", " 7 -1 0 0"] {
            assert_eq!(offers.note(&format!("{id}{words}"), ASKED_AT), id);
            assert_eq!(offers.take(&claim, || ASKED_AT), None, "{words}");
        }
    }
}
