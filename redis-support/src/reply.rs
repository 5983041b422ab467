//! What the scripts' replies mean.

use std::num::NonZeroU64;
use std::time::Duration;

use leasehold_core::{
    Attempt, AttemptAll, Claim, Contention, Description, Error, ErrorKind, Fingerprint,
    ForcedRelease, Grant, Holder, Inspection, Offer, Release, Renewal, Revocation,
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

/// Reads the reply to [`Call::acquire`](crate::Call::acquire).
///
/// # Errors
///
/// What the server refused with; [`ErrorKind::Unexpected`] if the reply has another form.
pub(crate) fn decode_attempt(received: Received) -> Result<Attempt, Error> {
    let reply = received.map_err(ServerError::into_error)?;
    let attempt = match &reply {
        Reply::Array(parts) => match parts.as_slice() {
            [Reply::Int(1), token] => grant(token).map(Attempt::Granted),
            [Reply::Int(granted @ 1..=2), token, Reply::Int(spare)] => grant(token)
                .zip(u32::try_from(*spare).ok())
                .map(|(grant, spare)| grant.with_spare_tokens(spare))
                .map(|grant| if *granted == 1 { grant } else { grant.without_news() })
                .map(Attempt::Granted),
            // It may be made the holder meanwhile.
            [
                Reply::Int(0),
                Reply::Int(retry_after),
                rest @ ..,
                Reply::Int(place),
                Reply::Int(attempt),
            ] => contention(*retry_after, rest)
                .and_then(|contention| queued(contention, *place))
                .zip(u64::try_from(*attempt).ok())
                .map(|(contention, attempt)| Attempt::Held(contention.with_attempt(attempt))),
            // The queue keeps a place for it.
            [Reply::Int(0), Reply::Int(retry_after), rest @ .., Reply::Int(place)] => {
                contention(*retry_after, rest)
                    .and_then(|contention| queued(contention, *place))
                    .map(Attempt::Held)
            }
            [Reply::Int(0), Reply::Int(retry_after), rest @ ..] => {
                contention(*retry_after, rest).map(Attempt::Held)
            }
            _ => None,
        },
        _ => None,
    };
    attempt.ok_or_else(unexpected)
}

/// Reads what one who waits is told when it is made the holder: the key of the lock, the id of its claim, and what it has then.
pub(crate) fn decode_offer(message: &[u8]) -> Option<(&str, &str, Offer)> {
    let mut words = str::from_utf8(message).ok()?.split(' ');
    let token = words.next()?.parse().ok()?;
    let spare = words.next()?.parse().ok()?;
    let ttl = words.next()?.parse().ok().map(Duration::from_millis)?;
    let attempt = words.next()?.parse().ok()?;
    let after = words.next()?.parse().ok().map(Duration::from_micros)?;
    let (id, key) = (words.next()?, words.next()?);
    // The server does not know yet what else we want to hear of it.
    let grant = Grant::new(token).with_spare_tokens(spare).with_ttl(ttl).without_news();
    Some((key, id, Offer::new(grant, attempt, after)))
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
pub(crate) fn decode_renewal(received: Received) -> Result<Renewal, Error> {
    match received.map_err(ServerError::into_error) {
        Ok(Reply::Int(1)) => Ok(Renewal::Renewed),
        Ok(Reply::Int(2)) => Ok(Renewal::RevocationRequested),
        Ok(Reply::Int(0)) => Ok(Renewal::Vanished),
        Ok(Reply::Int(-1)) => Ok(Renewal::Taken),
        Ok(_) => Err(unexpected()),
        // Somebody put something else in the lock's place.
        Err(error) if error.kind() == ErrorKind::WrongType => Ok(Renewal::Taken),
        Err(error) => Err(error),
    }
}

/// Reads the reply to [`Call::release`](crate::Call::release).
///
/// # Errors
///
/// As [`decode_attempt`].
pub(crate) fn decode_release(received: Received) -> Result<Release, Error> {
    match received.map_err(ServerError::into_error) {
        Ok(Reply::Int(1)) => Ok(Release::Released),
        Ok(Reply::Int(0)) => Ok(Release::NotHeld),
        Ok(_) => Err(unexpected()),
        // Somebody put something else in the lock's place.
        Err(error) if error.kind() == ErrorKind::WrongType => Ok(Release::NotHeld),
        Err(error) => Err(error),
    }
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

/// What is in the way: the rest of a refusal.
fn contention(retry_after: i64, rest: &[Reply]) -> Option<Contention> {
    let contention = match u64::try_from(retry_after) {
        Ok(time) => Contention::new().with_retry_after(Duration::from_millis(time)),
        Err(_) => Contention::new(),
    };
    match rest {
        [Reply::Int(_), Reply::Nil] | [Reply::Int(_), Reply::Nil, Reply::Nil] => Some(contention),
        [Reply::Int(remaining), Reply::Bytes(value)] => {
            Some(contention.with_holder(holder(value, *remaining)))
        }
        [Reply::Int(remaining), Reply::Bytes(id), known] => {
            let known = match known {
                Reply::Bytes(known) => known.as_slice(),
                Reply::Nil => &[],
                _ => return None,
            };
            Some(contention.with_holder(holder_of_units(id, *remaining, known)))
        }
        _ => None,
    }
}

/// Of one who has a place in the queue for so many milliseconds.
fn queued(contention: Contention, place: i64) -> Option<Contention> {
    let place = u64::try_from(place).ok()?;
    Some(contention.with_place(Duration::from_millis(place)))
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

    fn bytes(text: &str) -> Reply {
        Reply::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn a_grant_carries_its_token_exactly() {
        for token in [bytes("9007199254740991"), Reply::Int((1 << 53) - 1)] {
            let reply = Reply::Array(vec![Reply::Int(1), token]);
            let Ok(Attempt::Granted(grant)) = decode_attempt(Ok(reply)) else { panic!() };
            assert_eq!(grant.token(), (1 << 53) - 1);
        }
    }

    #[test]
    fn a_grant_says_whether_there_is_news_of_it() {
        for (granted, has_news) in [(1, true), (2, false)] {
            let reply = Reply::Array([granted, 7, 3].map(Reply::Int).to_vec());
            let Ok(Attempt::Granted(grant)) = decode_attempt(Ok(reply)) else { panic!() };
            assert_eq!((grant.token(), grant.spare_tokens(), grant.has_news()), (7, 3, has_news));
        }
    }

    #[test]
    fn a_refusal_tells_who_holds_it() {
        let reply = Reply::Array(vec![
            Reply::Int(0),
            Reply::Int(1_500),
            Reply::Int(1_500),
            bytes("some-id web-1/42 nightly"),
        ]);

        let Ok(Attempt::Held(contention)) = decode_attempt(Ok(reply)) else { panic!() };
        let holder = contention.holder().unwrap();
        assert_eq!(holder.fingerprint(), Fingerprint::of(b"some-id"));
        assert_eq!(holder.description().unwrap().as_str(), "web-1/42 nightly");
        assert_eq!(contention.retry_after(), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn a_refusal_tells_the_place_and_the_number_of_the_attempt() {
        let reply = |more: &[i64]| {
            let mut parts = vec![Reply::Int(0), Reply::Int(-1), Reply::Int(-1), Reply::Nil];
            parts.extend(more.iter().map(|number| Reply::Int(*number)));
            decode_attempt(Ok(Reply::Array(parts)))
        };
        for (more, place, attempt) in [
            (&[][..], None, None),
            (&[5_000], Some(Duration::from_secs(5)), None),
            (&[5_000, 1 << 50], Some(Duration::from_secs(5)), Some(1 << 50)),
        ] {
            let Ok(Attempt::Held(contention)) = reply(more) else { panic!("{more:?}") };
            assert_eq!((contention.place(), contention.attempt()), (place, attempt));
        }
        assert!(reply(&[5_000, -1]).is_err() && reply(&[-1, 1]).is_err());
    }

    #[test]
    fn an_offer_tells_what_is_had_and_since_when() {
        let (key, id, offer) = decode_offer(b"7 3 5000 41 2500 some-id lock:a/b").unwrap();

        assert_eq!((key, id), ("lock:a/b", "some-id"));
        assert_eq!((offer.grant().token(), offer.grant().spare_tokens()), (7, 3));
        assert_eq!(offer.grant().ttl(), Some(Duration::from_secs(5)));
        assert_eq!((offer.attempt(), offer.after()), (41, Duration::from_micros(2_500)));
        for wrong in ["", "0 3 5000 41 2500 id k", "7 3 5000 41 2500 id", "7 3 5000 41 -1 id k"] {
            assert_eq!(decode_offer(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_foreign_holder_without_a_ttl_is_a_holder() {
        let value = Reply::Bytes(b"\xff\xfe \x1b[31m".to_vec());
        let reply = Reply::Array(vec![Reply::Int(0), Reply::Int(-1), Reply::Int(-1), value]);

        let Ok(Attempt::Held(contention)) = decode_attempt(Ok(reply)) else { panic!() };
        assert_eq!(contention.retry_after(), None);
        assert_eq!(contention.holder().unwrap().description(), None);
    }

    #[test]
    fn a_refusal_of_units_tells_who_holds_some_and_when_there_may_be_room() {
        let reply = vec![
            Reply::Int(0),
            Reply::Int(700),
            Reply::Int(1_500),
            bytes("some-id"),
            bytes("3 web-1/42 nightly"),
        ];

        let Ok(Attempt::Held(contention)) = decode_attempt(Ok(Reply::Array(reply))) else {
            panic!()
        };
        let holder = contention.holder().unwrap();
        assert_eq!(holder.fingerprint(), Fingerprint::of(b"some-id"));
        assert_eq!(holder.units(), 3);
        assert_eq!(holder.description().unwrap().as_str(), "web-1/42 nightly");
        assert_eq!(contention.retry_after(), Some(Duration::from_millis(700)));
    }

    #[test]
    fn a_refusal_for_the_sake_of_those_who_queue_names_nobody() {
        let refusal = |rest: &[Reply]| {
            let reply = [&[Reply::Int(0), Reply::Int(300), Reply::Int(-1)], rest].concat();
            decode_attempt(Ok(Reply::Array(reply))).unwrap()
        };
        let expected = Contention::new().with_retry_after(Duration::from_millis(300));

        assert_eq!(refusal(&[Reply::Nil]), Attempt::Held(expected.clone()));
        assert_eq!(refusal(&[Reply::Nil, Reply::Nil]), Attempt::Held(expected));
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
    fn an_inspection_counts_the_units_of_those_it_does_not_list() {
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
            Reply::Array(vec![Reply::Int(1)]),
            Reply::Array(vec![Reply::Int(1), bytes("0")]),
            Reply::Array(vec![Reply::Int(1), bytes("1e15")]),
            Reply::Array(vec![Reply::Int(1), bytes("-1")]),
            Reply::Array(vec![Reply::Int(0), Reply::Nil, Reply::Nil]),
            Reply::Array(vec![Reply::Other, Reply::Int(0), bytes("x")]),
            Reply::Array(vec![Reply::Nil, Reply::Int(1), bytes("x"), Reply::Int(1)]),
        ];
        for form in forms {
            let errors = [
                decode_attempt(Ok(form.clone())).unwrap_err(),
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

        assert_eq!(decode_renewal(wrong_type()).unwrap(), Renewal::Taken);
        assert_eq!(decode_release(wrong_type()).unwrap(), Release::NotHeld);
        assert_eq!(decode_attempt(wrong_type()).unwrap_err().kind(), ErrorKind::WrongType);
    }
}
