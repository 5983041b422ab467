//! Tests of the transfer of a free key to its first waiter.

use super::*;
use crate::contract::key::LockKey;

const TTL: Duration = Duration::from_secs(10);

/// [`Patience::RESERVATION`] in microseconds.
const RESERVATION: i64 = 250_000;

type TestEntry = Entry<LeaseId, i64>;

fn claim(mode: Mode, patience: Patience) -> Claim {
    let lease = Lease::new(&LockKey::new("k").unwrap(), TTL).with_mode(mode);
    Claim::new(lease).with_patience(patience)
}

fn waiter() -> Claim {
    claim(Mode::Exclusive, Patience::Waits)
}

fn acquire(entry: &mut TestEntry, claim: &Claim, now: i64) -> Option<u64> {
    entry.expire(now);
    match entry.acquire(claim.id(), claim, Tokens::default(), now).unwrap().reply {
        Attempt::Granted(grant) => Some(grant.token()),
        Attempt::Held(_) => None,
    }
}

/// Returns a key with a holder of this mode, which these claims wait for since the time 0.
fn held(mode: Mode, queue: &[&Claim]) -> (TestEntry, Claim) {
    let (mut entry, holder) = (TestEntry::default(), claim(mode, Patience::Leaves));
    acquire(&mut entry, &holder, 0).unwrap();
    for claim in queue {
        assert_eq!(acquire(&mut entry, claim, 0), None);
    }
    (entry, holder)
}

/// Releases the lease and hands over the key in one step, as stores do.
fn release(entry: &mut TestEntry, holder: &Claim, now: i64) -> Option<LeaseId> {
    entry.expire(now);
    assert_eq!(entry.release(&holder.id(), now).reply, Release::Released);
    entry.hand_over(Tokens::default(), now)
}

#[test]
fn the_key_is_reserved_for_the_first_waiter() {
    let (first, second) = (waiter(), waiter());
    let (mut entry, holder) = held(Mode::Exclusive, &[&first, &second]);

    assert_eq!(release(&mut entry, &holder, 7), Some(first.id()));

    assert_eq!((entry.holders.len(), entry.holders[0].name), (1, first.id()));
    assert_eq!(entry.holders[0].ends, 7 + RESERVATION);
    assert_eq!(acquire(&mut entry, &second, 8), None);
    assert!(acquire(&mut entry, &first, 9).is_some());
    assert_eq!(entry.holders[0].ends, 9.after(TTL), "the waiter has confirmed its lease");
}

#[test]
fn the_reservation_of_a_crashed_waiter_expires() {
    let (crashed, second) = (waiter(), waiter());
    let (mut entry, holder) = held(Mode::Exclusive, &[&crashed, &second]);
    assert_eq!(release(&mut entry, &holder, 0), Some(crashed.id()));

    assert_eq!(acquire(&mut entry, &second, RESERVATION - 1), None);
    assert!(acquire(&mut entry, &second, RESERVATION).is_some());

    assert_eq!(acquire(&mut entry, &crashed, RESERVATION), None);
}

#[test]
fn a_waiter_whose_queue_entry_has_expired_is_passed_over() {
    let (expired, alive) = (waiter(), waiter());
    let (mut entry, holder) = held(Mode::Exclusive, &[&expired, &alive]);
    let end = entry.queue[0].ends;
    assert_eq!(acquire(&mut entry, &alive, end - 1), None);

    assert_eq!(release(&mut entry, &holder, end), Some(alive.id()));

    assert!(entry.queue.is_empty());
}

#[test]
fn a_reservation_does_not_outlast_its_queue_entry() {
    let first = waiter();
    let (mut entry, holder) = held(Mode::Exclusive, &[&first]);
    let end = entry.queue[0].ends;

    assert_eq!(release(&mut entry, &holder, end - 1), Some(first.id()));

    assert_eq!(entry.holders[0].ends, end);
}

/// A claim for permits fits next to other holders, and a claim without a reservation keeps its
/// queue entry for its whole duration.
#[test]
fn claims_for_permits_and_claims_without_a_reservation_stay_in_the_queue() {
    let permits = Mode::Units { units: 2, limit: 2 };
    let fair = Patience::Queues(TTL);
    for (mode, patience) in [
        (permits, Patience::Waits),
        (Mode::READER, Patience::Waits),
        (Mode::WRITER, Patience::Waits),
        (Mode::Exclusive, fair),
    ] {
        let first = claim(mode, patience);
        let holder = if mode == Mode::READER { Mode::WRITER } else { mode };
        let (mut entry, holder) = held(holder, &[&first]);
        let second = waiter();
        if mode.is_mutex() {
            assert_eq!(acquire(&mut entry, &second, 0), None);
        }

        assert_eq!(release(&mut entry, &holder, 0), None, "{mode:?}");

        assert!(!entry.is_held());
        assert_eq!(acquire(&mut entry, &second, 1), None, "the first waiter is ahead");
        assert!(acquire(&mut entry, &first, 2).is_some());
    }
}

#[test]
fn the_token_is_larger_than_all_earlier_tokens() {
    let first = waiter();
    for (tokens, expected) in [
        (Tokens::default(), 7),
        (Tokens { above: 100, at_least: 0 }, 101),
        (Tokens { above: 100, at_least: 200 }, 200),
        (Tokens { above: 0, at_least: 3 }, 7),
    ] {
        let mut entry = TestEntry::default();
        let holder = claim(Mode::Exclusive, Patience::Leaves).with_spare_tokens(5);
        assert_eq!(acquire(&mut entry, &holder, 0), Some(1), "the tokens 2 to 6 are spare");
        assert_eq!(acquire(&mut entry, &first, 0), None);
        entry.release(&holder.id(), 0);

        assert_eq!(entry.hand_over(tokens, 0), Some(first.id()));

        assert_eq!((entry.holders[0].token, entry.last_token), (expected, expected));
        assert!(acquire(&mut entry, &first, 1).unwrap() > expected, "the waiter gets a new token");
    }
}

#[test]
fn a_held_key_and_a_key_without_waiters_are_not_handed_over() {
    let (first, second) = (waiter(), waiter());
    let (mut entry, holder) = held(Mode::Exclusive, &[&first, &second]);
    let before = entry.clone();
    assert_eq!(entry.hand_over(Tokens::default(), 0), None);
    assert_eq!(entry, before, "the holder has not released its lease");

    assert_eq!(release(&mut entry, &holder, 0), Some(first.id()));
    let before = entry.clone();
    assert_eq!(entry.hand_over(Tokens::default(), 0), None);
    assert_eq!(entry, before, "the key is reserved already");

    assert_eq!(TestEntry::default().hand_over(Tokens::default(), 0), None);
}
