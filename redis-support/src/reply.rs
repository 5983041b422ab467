//! What the scripts' replies mean.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use leasehold_core::{
    Attempt, AttemptAll, CalledBy, Claim, Contention, Description, Error, ErrorKind, Fingerprint,
    ForcedRelease, Grant, Holder, Inspection, Release, Renewal, Revocation,
};

use crate::client::Received;
use crate::error::ServerError;

/// A reply that is not an error, whatever client received it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// Several; of a map, one key and its value after the other.
    Array(Vec<Self>),
    /// A string.
    Bytes(Vec<u8>),
    /// An integer.
    Int(i64),
    /// Nothing.
    Nil,
    /// What nothing of ours replies with a meaning.
    Other,
}

/// The outcome of an operation, and the ids of the claims that it called up. `Debug` keeps the ids to itself.
pub(crate) struct Told<T> {
    pub(crate) outcome: T,
    pub(crate) called: Vec<String>,
}

impl<T: fmt::Debug> fmt::Debug for Told<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// How a claim that is refused may hear of its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hearing {
    /// Whether it is for the whole key.
    pub(crate) is_whole: bool,
    /// Whether the server tells of changes.
    pub(crate) has_push: bool,
}

/// Where the server tells nothing, the first in the queue looks this often: for what a critical section of a few round trips takes. Each
/// claim behind it looks less often by as much, so that all of them are not much more work than the first.
const LOOK: Duration = Duration::from_millis(20);

/// Reads the reply to [`Call::acquire`](crate::Call::acquire).
///
/// # Errors
///
/// The server's refusal; [`ErrorKind::Unexpected`] if the reply has another form.
pub(crate) fn decode_attempt(received: Received, hearing: Hearing) -> Result<Told<Attempt>, Error> {
    let Reply::Array(parts) = received.map_err(ServerError::into_error)? else {
        return Err(unexpected());
    };
    let attempt = match parts.as_slice() {
        [Reply::Int(granted @ 1..=2), token, Reply::Int(spare), called @ ..] => grant(token)
            .zip(u32::try_from(*spare).ok())
            .map(|(grant, spare)| grant.with_spare_tokens(spare))
            .map(|grant| if *granted == 1 { grant } else { grant.without_news() })
            .map(|grant| (Attempt::Granted(grant), called)),
        [
            Reply::Int(0),
            Reply::Int(after),
            Reply::Int(left),
            by,
            known,
            Reply::Int(place),
            Reply::Int(ahead),
            called @ ..,
        ] => {
            let queued = Queued::new(*place, *ahead);
            let contention = hearing.contention(*after, queued);
            let held_by = |contention| held_by(contention, *left, by, known, hearing.is_whole);
            held_by(contention).map(|contention| (Attempt::Held(contention), called))
        }
        _ => None,
    };
    let (outcome, called) = attempt.ok_or_else(unexpected)?;
    Ok(Told { outcome, called: ids(called)? })
}

/// A place in the queue.
#[derive(Clone, Copy, Debug)]
struct Queued {
    place: Duration,
    /// How many claims are before it.
    ahead: u32,
}

impl Queued {
    fn new(place: i64, ahead: i64) -> Option<Self> {
        let place = Duration::from_millis(u64::try_from(place).ok()?);
        Some(Self { place, ahead: u32::try_from(ahead).ok()? })
    }
}

impl Hearing {
    fn contention(self, after: i64, queued: Option<Queued>) -> Contention {
        let after = u64::try_from(after).ok().map(Duration::from_millis);
        let looks = queued.map(|queued| LOOK.saturating_mul(queued.ahead.saturating_add(1)));
        let looks = looks.filter(|_look| !self.has_push);
        let contention = match after.into_iter().chain(looks).min() {
            Some(time) => Contention::new().with_retry_after(time),
            None => Contention::new(),
        };
        let Some(Queued { place, ahead }) = queued else { return contention };
        let by_key = !self.has_push || self.is_whole && ahead == 0;
        let called_by = if by_key { CalledBy::Key } else { CalledBy::Name };
        contention.with_place(place).with_called_by(called_by)
    }
}

fn held_by(
    contention: Contention,
    left: i64,
    by: &Reply,
    known: &Reply,
    is_whole: bool,
) -> Option<Contention> {
    match (by, known) {
        (Reply::Nil, Reply::Nil) => Some(contention),
        (Reply::Bytes(value), Reply::Nil) if is_whole => {
            Some(contention.with_holder(holder(value, left)))
        }
        (Reply::Bytes(id), Reply::Nil) => {
            Some(contention.with_holder(holder_of_units(id, left, &[])))
        }
        (Reply::Bytes(id), Reply::Bytes(known)) => {
            Some(contention.with_holder(holder_of_units(id, left, known)))
        }
        _ => None,
    }
}

fn ids(replies: &[Reply]) -> Result<Vec<String>, Error> {
    let id = |reply: &Reply| match reply {
        Reply::Bytes(id) => String::from_utf8(id.clone()).ok(),
        _ => None,
    };
    replies.iter().map(id).collect::<Option<_>>().ok_or_else(unexpected)
}

/// Reads a number that ids may follow.
fn decode_number(received: Received) -> Result<Told<i64>, Error> {
    match received.map_err(ServerError::into_error)? {
        Reply::Int(outcome) => Ok(Told { outcome, called: Vec::new() }),
        Reply::Array(parts) => match parts.as_slice() {
            [Reply::Int(outcome), called @ ..] => {
                Ok(Told { outcome: *outcome, called: ids(called)? })
            }
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

/// Reads the reply to [`Call::acquire_all`](crate::Call::acquire_all) for `claims`.
///
/// # Errors
///
/// As [`decode_attempt`]. [`ErrorKind::WrongType`] names the key.
pub(crate) fn decode_attempt_all(
    received: Received,
    claims: &[Claim],
) -> Result<AttemptAll, Error> {
    let Reply::Array(parts) = received.map_err(ServerError::into_error)? else {
        return Err(unexpected());
    };
    let key = |n: i64| {
        let n = usize::try_from(n).ok()?.checked_sub(1)?;
        claims.get(n).map(Claim::key)
    };
    let attempt = match parts.as_slice() {
        [Reply::Int(1), tokens @ ..] if tokens.len() == claims.len() => {
            tokens.iter().map(grant).collect::<Option<_>>().map(AttemptAll::Granted)
        }
        [Reply::Int(0), Reply::Int(n), Reply::Int(retry_after), rest @ ..] => {
            let held = |(key, contention)| AttemptAll::Held { key, contention };
            key(*n).cloned().zip(contention(*retry_after, rest)).map(held)
        }
        [Reply::Int(-1), Reply::Int(n)] => {
            let key = key(*n).ok_or_else(unexpected)?;
            let message = "something else lies under the key, or a lock of another kind";
            return Err(Error::new(ErrorKind::WrongType, message).with_key(key));
        }
        _ => None,
    };
    attempt.ok_or_else(unexpected)
}

/// Reads the reply to [`Call::renew`](crate::Call::renew).
///
/// # Errors
///
/// As [`decode_attempt`].
pub(crate) fn decode_renewal(received: Received) -> Result<Told<Renewal>, Error> {
    let told = decode_number(received).or_else(|error| replaced(error, -1))?;
    let outcome = match told.outcome {
        1 => Renewal::Renewed,
        2 => Renewal::RevocationRequested,
        0 => Renewal::Vanished,
        -1 => Renewal::Taken,
        _ => return Err(unexpected()),
    };
    Ok(Told { outcome, called: told.called })
}

/// Reads the reply to [`Call::release`](crate::Call::release).
///
/// # Errors
///
/// As [`decode_attempt`].
pub(crate) fn decode_release(received: Received) -> Result<Told<Release>, Error> {
    let told = decode_number(received).or_else(|error| replaced(error, 0))?;
    let outcome = match told.outcome {
        1 => Release::Released,
        0 => Release::NotHeld,
        _ => return Err(unexpected()),
    };
    Ok(Told { outcome, called: told.called })
}

/// The outcome where another client put something else in the lock's place.
fn replaced(error: Error, outcome: i64) -> Result<Told<i64>, Error> {
    if error.kind() != ErrorKind::WrongType {
        return Err(error);
    }
    Ok(Told { outcome, called: Vec::new() })
}

/// Reads the reply to [`Call::inspect`](crate::Call::inspect).
///
/// # Errors
///
/// As [`decode_attempt`].
pub(crate) fn decode_inspection(received: Received) -> Result<Inspection, Error> {
    let Held { token, units, holders } = decode_held(received)?;
    let inspection = Inspection::free().with_last_token(token);
    let inspection = holders.into_iter().fold(inspection, Inspection::with_holder);
    Ok(match units {
        Some(units) => inspection.with_units(units),
        None => inspection,
    })
}

/// Reads the reply to [`Call::force_release`](crate::Call::force_release).
///
/// # Errors
///
/// As [`decode_attempt`].
pub(crate) fn decode_forced_release(received: Received) -> Result<ForcedRelease, Error> {
    let Held { token, holders, .. } = decode_held(received)?;
    let forced = holders.into_iter().fold(ForcedRelease::new(), ForcedRelease::with_ended);
    Ok(match token {
        Some(token) => forced.with_min_token(token),
        None => forced,
    })
}

/// Reads the reply to [`Call::request_revocation`](crate::Call::request_revocation).
///
/// # Errors
///
/// As [`decode_attempt`].
pub(crate) fn decode_revocation(received: Received) -> Result<Revocation, Error> {
    match received.map_err(ServerError::into_error)? {
        Reply::Int(1) => Ok(Revocation::Requested),
        Reply::Int(0) => Ok(Revocation::NotHeld),
        _ => Err(unexpected()),
    }
}

/// Who holds a key.
struct Held {
    token: Option<u64>,
    /// How many units are in use; `None` for a mutex.
    units: Option<u64>,
    holders: Vec<Holder>,
}

fn decode_held(received: Received) -> Result<Held, Error> {
    let Reply::Array(parts) = received.map_err(ServerError::into_error)? else {
        return Err(unexpected());
    };
    let [token, rest @ ..] = parts.as_slice() else {
        return Err(unexpected());
    };
    let token = match token {
        Reply::Nil => None,
        token => Some(number(token).ok_or_else(unexpected)?),
    };
    match rest {
        [Reply::Nil, Reply::Int(_)] => Ok(Held { token, units: None, holders: Vec::new() }),
        [Reply::Bytes(value), Reply::Int(remaining)] => {
            Ok(Held { token, units: None, holders: vec![holder(value, *remaining)] })
        }
        [Reply::Int(units), holders @ ..] => {
            let holders = holders.chunks(3).map(|part| match part {
                [Reply::Bytes(id), Reply::Int(remaining), Reply::Bytes(known)] => {
                    Some(holder_of_units(id, *remaining, known))
                }
                _ => None,
            });
            let holders = holders.collect::<Option<Vec<_>>>().ok_or_else(unexpected)?;
            Ok(Held { token, units: u64::try_from(*units).ok(), holders })
        }
        _ => Err(unexpected()),
    }
}

/// The obstacle in the way of one of several locks: the rest of a refusal.
fn contention(retry_after: i64, rest: &[Reply]) -> Option<Contention> {
    let contention = match u64::try_from(retry_after) {
        Ok(time) => Contention::new().with_retry_after(Duration::from_millis(time)),
        Err(_) => Contention::new(),
    };
    match rest {
        [Reply::Int(_), Reply::Nil] => Some(contention),
        [Reply::Int(remaining), Reply::Bytes(value)] => {
            Some(contention.with_holder(holder(value, *remaining)))
        }
        _ => None,
    }
}

/// Who holds units, from its id and what is known of it: `<units> <description>`.
fn holder_of_units(id: &[u8], remaining: i64, known: &[u8]) -> Holder {
    let known = str::from_utf8(known).unwrap_or_default();
    let (units, description) = known.split_once(' ').unwrap_or((known, ""));
    let remaining = Duration::from_millis(u64::try_from(remaining).unwrap_or_default());
    Holder::new(Fingerprint::of(id))
        .with_units(units.parse().unwrap_or(1))
        .with_description(Description::new(description).ok())
        .with_remaining(Some(remaining))
}

/// Who holds a lock, from what lies under its key, which any client may have put there.
fn holder(value: &[u8], remaining: i64) -> Holder {
    let mut parts = value.splitn(2, |&byte| byte == b' ');
    let id = parts.next().unwrap_or_default();
    let description = parts
        .next()
        .and_then(|text| str::from_utf8(text).ok())
        .and_then(|text| Description::new(text).ok());
    let remaining = u64::try_from(remaining).ok().map(Duration::from_millis);
    Holder::new(Fingerprint::of(id)).with_description(description).with_remaining(remaining)
}

fn grant(token: &Reply) -> Option<Grant> {
    number(token).and_then(NonZeroU64::new).map(Grant::new)
}

fn number(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Bytes(digits) => str::from_utf8(digits).ok()?.parse().ok(),
        Reply::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn unexpected() -> Error {
    let message =
        "the server's reply has an unknown form; is it a Redis, and does a proxy change replies?";
    Error::new(ErrorKind::Unexpected, message)
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Lease, LockKey};

    use super::*;

    const WHOLE: Hearing = Hearing { is_whole: true, has_push: true };
    const UNITS: Hearing = Hearing { is_whole: false, has_push: true };

    fn attempt(parts: &[Reply], hearing: Hearing) -> Attempt {
        decode_attempt(Ok(Reply::Array(parts.to_vec())), hearing).unwrap().outcome
    }

    /// A refusal of a claim that has this place, behind so many others.
    fn refusal(after: i64, left: i64, by: [Reply; 2], place: i64, ahead: i64) -> Vec<Reply> {
        let [by, known] = by;
        let [after, left] = [after, left].map(Reply::Int);
        vec![Reply::Int(0), after, left, by, known, Reply::Int(place), Reply::Int(ahead)]
    }

    fn contention_of(parts: &[Reply], hearing: Hearing) -> Contention {
        match attempt(parts, hearing) {
            Attempt::Held(contention) => contention,
            Attempt::Granted(grant) => panic!("{grant:?}"),
        }
    }

    fn bytes(text: &str) -> Reply {
        Reply::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn a_grant_carries_its_token_exactly() {
        for token in [bytes("9007199254740991"), Reply::Int((1 << 53) - 1)] {
            let Attempt::Granted(grant) = attempt(&[Reply::Int(1), token, Reply::Int(0)], WHOLE)
            else {
                panic!()
            };
            assert_eq!(grant.token(), (1 << 53) - 1);
        }
    }

    #[test]
    fn a_grant_says_whether_there_is_news_of_it() {
        for (granted, has_news) in [(1, true), (2, false)] {
            let Attempt::Granted(grant) = attempt(&[granted, 7, 3].map(Reply::Int), WHOLE) else {
                panic!()
            };
            assert_eq!((grant.token(), grant.spare_tokens(), grant.has_news()), (7, 3, has_news));
        }
    }

    #[test]
    fn a_refusal_tells_the_holder() {
        let by = [bytes("some-id web-1/42 nightly"), Reply::Nil];

        let contention = contention_of(&refusal(1_500, 1_500, by, -1, -1), WHOLE);

        let holder = contention.holder().unwrap();
        assert_eq!(holder.fingerprint(), Fingerprint::of(b"some-id"));
        assert_eq!(holder.description().unwrap().as_str(), "web-1/42 nightly");
        assert_eq!(contention.retry_after(), Some(Duration::from_millis(1_500)));
        assert_eq!((contention.place(), contention.called_by()), (None, None));
    }

    #[test]
    fn a_refusal_tells_the_place_and_its_news() {
        for (hearing, ahead, called_by) in [
            (WHOLE, 0, CalledBy::Key),
            (WHOLE, 1, CalledBy::Name),
            (UNITS, 0, CalledBy::Name),
            (UNITS, 7, CalledBy::Name),
        ] {
            let parts = refusal(-1, -1, [Reply::Nil, Reply::Nil], 5_000, ahead);
            let contention = contention_of(&parts, hearing);
            assert_eq!(contention.place(), Some(Duration::from_secs(5)));
            assert_eq!(contention.called_by(), Some(called_by));
            assert_eq!(contention.retry_after(), None);
        }
    }

    #[test]
    fn without_push_the_first_in_the_queue_looks_most_often() {
        let silent = Hearing { has_push: false, ..WHOLE };
        let looks = |after, ahead| {
            let parts = refusal(after, -1, [Reply::Nil, Reply::Nil], 5_000, ahead);
            contention_of(&parts, silent).retry_after()
        };

        assert_eq!(looks(-1, 0), Some(LOOK));
        assert_eq!(looks(3_000, 7), Some(LOOK * 8));
        assert_eq!(looks(5, 7), Some(Duration::from_millis(5)));
    }

    #[test]
    fn a_reply_names_the_claims_that_were_called_up() {
        let called = |told: Vec<String>| assert_eq!(told, ["a", "b"]);
        let ids = [bytes("a"), bytes("b")];
        let granted = [&[Reply::Int(1), bytes("5"), Reply::Int(0)][..], &ids].concat();
        let refused = [&refusal(-1, -1, [Reply::Nil, Reply::Nil], -1, -1)[..], &ids].concat();
        for parts in [granted, refused] {
            called(decode_attempt(Ok(Reply::Array(parts)), WHOLE).unwrap().called);
        }
        let number = || Ok(Reply::Array([&[Reply::Int(1)][..], &ids].concat()));
        called(decode_release(number()).unwrap().called);
        called(decode_renewal(number()).unwrap().called);
    }

    #[test]
    fn a_foreign_holder_without_a_ttl_is_a_holder() {
        let by = [Reply::Bytes(b"\xff\xfe \x1b[31m".to_vec()), Reply::Nil];

        let contention = contention_of(&refusal(-1, -1, by, -1, -1), WHOLE);

        assert_eq!(contention.retry_after(), None);
        assert_eq!(contention.holder().unwrap().description(), None);
    }

    #[test]
    fn a_refusal_of_units_tells_a_holder_and_when_there_may_be_room() {
        let by = [bytes("some-id"), bytes("3 web-1/42 nightly")];

        let contention = contention_of(&refusal(700, 1_500, by, -1, -1), UNITS);

        let holder = contention.holder().unwrap();
        assert_eq!(holder.fingerprint(), Fingerprint::of(b"some-id"));
        assert_eq!(holder.units(), 3);
        assert_eq!(holder.description().unwrap().as_str(), "web-1/42 nightly");
        assert_eq!(contention.retry_after(), Some(Duration::from_millis(700)));
    }

    #[test]
    fn a_refusal_for_the_sake_of_the_queue_names_no_holder() {
        let parts = refusal(300, -1, [Reply::Nil, Reply::Nil], -1, -1);
        let expected = Contention::new().with_retry_after(Duration::from_millis(300));

        assert_eq!(contention_of(&parts, UNITS), expected);
        assert_eq!(contention_of(&parts, WHOLE), expected);
    }

    #[test]
    fn an_attempt_for_several_tells_of_each_or_of_the_one_in_the_way() {
        let claims = ["a", "b"].map(|name| {
            Claim::new(Lease::new(&LockKey::new(name).unwrap(), Duration::from_secs(1)))
        });
        let decode =
            |parts: &[Reply]| decode_attempt_all(Ok(Reply::Array(parts.to_vec())), &claims);

        let granted = decode(&[Reply::Int(1), bytes("5"), bytes("6")]).unwrap();
        let AttemptAll::Granted(grants) = granted else { panic!("{granted:?}") };
        assert_eq!(grants.iter().map(Grant::token).collect::<Vec<_>>(), [5, 6]);

        let refusal = [Reply::Int(0), Reply::Int(2), Reply::Int(9), Reply::Int(9), bytes("id")];
        let AttemptAll::Held { key, contention } = decode(&refusal).unwrap() else { panic!() };
        assert_eq!(&key, claims[1].key());
        assert_eq!(contention.holder().unwrap().fingerprint(), Fingerprint::of(b"id"));

        let error = decode(&[Reply::Int(-1), Reply::Int(2)]).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::WrongType, Some(claims[1].key())));

        for form in [
            &[Reply::Int(1), bytes("5")][..],
            &[Reply::Int(1), bytes("5"), bytes("6"), bytes("7")],
            &[Reply::Int(1), bytes("5"), bytes("0")],
            &[Reply::Int(0), Reply::Int(3), Reply::Int(9), Reply::Int(9), bytes("id")],
            &[Reply::Int(0), Reply::Int(0), Reply::Int(9), Reply::Int(9), bytes("id")],
            &[Reply::Int(0), Reply::Int(1), Reply::Int(9)],
            &[Reply::Int(-1), Reply::Int(3)],
            &[Reply::Int(7)],
            &[],
        ] {
            assert_eq!(decode(form).unwrap_err().kind(), ErrorKind::Unexpected, "{form:?}");
        }
    }

    #[test]
    fn an_inspection_counts_the_units_of_holders_that_it_does_not_list() {
        let reply = vec![
            bytes("42"),
            Reply::Int(9),
            bytes("some-id"),
            Reply::Int(1_500),
            bytes("3 web-1/42"),
            bytes("other-id"),
            Reply::Int(2_500),
            bytes("1 "),
        ];

        let inspection = decode_inspection(Ok(Reply::Array(reply))).unwrap();

        assert_eq!((inspection.units(), inspection.last_token()), (9, Some(42)));
        let units: Vec<u32> = inspection.holders().iter().map(Holder::units).collect();
        assert_eq!(units, [3, 1]);
        assert_eq!(inspection.holders()[1].description(), None);
    }

    #[test]
    fn replies_of_another_form_are_errors() {
        let forms = [
            Reply::Nil,
            Reply::Other,
            Reply::Int(7),
            bytes("OK"),
            Reply::Array(vec![]),
            Reply::Array(vec![Reply::Int(0), Reply::Nil, Reply::Nil]),
            Reply::Array(vec![Reply::Int(1), Reply::Nil, Reply::Nil]),
            Reply::Array(vec![Reply::Other, Reply::Int(0), bytes("x")]),
            Reply::Array(vec![Reply::Nil, Reply::Int(1), bytes("x"), Reply::Int(1)]),
        ];
        for token in ["0", "1e15", "-1"] {
            let form = Reply::Array(vec![Reply::Int(1), bytes(token), Reply::Int(0)]);
            let error = decode_attempt(Ok(form), WHOLE).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unexpected, "{token}");
        }
        for form in forms {
            let errors = [
                decode_attempt(Ok(form.clone()), WHOLE).unwrap_err(),
                decode_renewal(Ok(form.clone())).unwrap_err(),
                decode_release(Ok(form.clone())).unwrap_err(),
                decode_inspection(Ok(form.clone())).unwrap_err(),
                decode_forced_release(Ok(form.clone())).unwrap_err(),
                decode_revocation(Ok(form.clone())).unwrap_err(),
            ];
            assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unexpected), "{form:?}");
        }
    }

    #[test]
    fn something_else_in_the_place_of_a_lock_means_it_is_not_ours() {
        let wrong_type = || Err(ServerError::new("WRONGTYPE", "Operation against a key"));

        assert_eq!(decode_renewal(wrong_type()).unwrap().outcome, Renewal::Taken);
        assert_eq!(decode_release(wrong_type()).unwrap().outcome, Release::NotHeld);
        let error = decode_attempt(wrong_type(), WHOLE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
    }
}
