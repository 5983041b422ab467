//! Reads the replies of scripts.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use leasehold_core::backend::{
    Attempt, AttemptAll, Claim, Contention, Fingerprint, ForcedRelease, Grant, Inspection,
    MemberStatus, Mode, QuorumConfiguration, Release, Renewal, Revocation, StoreId, Waiter,
    WokenBy,
};
use leasehold_core::{Description, Error, ErrorKind, Holder};

use crate::error::ServerError;

/// A non-error reply from a server, in the form that all drivers use.
///
/// ```
/// use leasehold_redis_support::{Received, Reply};
///
/// let received: Received = Ok(Reply::Int(1));
/// assert_eq!(received, Ok(Reply::Int(1)));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reply {
    /// Several values. A map is a list of keys, each followed by its value.
    Array(Vec<Self>),
    /// A string.
    Bytes(Vec<u8>),
    /// An integer.
    Int(i64),
    /// A null value.
    Nil,
    /// A value of a different type.
    Other,
}

/// A reply, or an error reply from the server.
///
/// [`Connection::send`](crate::Connection::send) returns this type. The example for [`Reply`]
/// creates a value.
pub type Received = Result<Reply, ServerError>;

/// The outcome of an operation, and the IDs of the claims that the operation has woken. `Debug`
/// does not show the IDs.
pub(crate) struct ServerReply<T> {
    pub(crate) outcome: T,
    pub(crate) notified: Vec<String>,
}

impl<T: fmt::Debug> fmt::Debug for ServerReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerReply").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// How a claim that was not granted can be notified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotificationMode {
    /// Whether the claim is exclusive.
    pub(crate) is_mutex: bool,
    /// Whether the server sends notifications.
    pub(crate) has_push: bool,
}

/// The interval at which the first claim in the queue polls without notifications. The interval is
/// about as long as a critical section with a few round trips. Each claim further back waits one
/// interval longer between its polls, so all claims together cause little more load than the first
/// claim.
const LOOK: Duration = Duration::from_millis(20);

/// Reads the reply to [`Call::acquire`](crate::Call::acquire).
///
/// # Errors
///
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
pub(crate) fn decode_attempt(
    received: Received,
    mode: NotificationMode,
) -> Result<ServerReply<Attempt>, Error> {
    let Reply::Array(parts) = received.map_err(ServerError::into_error)? else {
        return Err(unexpected());
    };
    let attempt = match parts.as_slice() {
        [Reply::Int(1), token, Reply::Int(spare), notified @ ..] => grant(token)
            .zip(u32::try_from(*spare).ok())
            .map(|(grant, spare)| grant.with_spare_tokens(spare))
            .map(|grant| (Attempt::Granted(grant), notified)),
        [
            Reply::Int(0),
            Reply::Int(after),
            Reply::Int(left),
            by,
            known,
            Reply::Int(entry_ttl),
            Reply::Int(ahead),
            notified @ ..,
        ] => {
            let queued = Queued::new(*entry_ttl, *ahead);
            let contention = mode.contention(*after, queued);
            let held_by = |contention| held_by(contention, *left, by, known, mode.is_mutex);
            held_by(contention).map(|contention| (Attempt::Held(contention), notified))
        }
        _ => None,
    };
    let (outcome, notified) = attempt.ok_or_else(unexpected)?;
    Ok(ServerReply { outcome, notified: ids(notified)? })
}

/// A queue entry.
#[derive(Clone, Copy, Debug)]
struct Queued {
    entry_ttl: Duration,
    /// The number of claims ahead of this entry.
    ahead: u32,
}

impl Queued {
    fn new(entry_ttl: i64, ahead: i64) -> Option<Self> {
        let entry_ttl = Duration::from_millis(u64::try_from(entry_ttl).ok()?);
        Some(Self { entry_ttl, ahead: u32::try_from(ahead).ok()? })
    }
}

impl NotificationMode {
    fn contention(self, after: i64, queued: Option<Queued>) -> Contention {
        let after = u64::try_from(after).ok().map(Duration::from_millis);
        let looks = queued.map(|queued| LOOK.saturating_mul(queued.ahead.saturating_add(1)));
        let looks = looks.filter(|_look| !self.has_push);
        let contention = match after.into_iter().chain(looks).min() {
            Some(time) => Contention::new().with_retry_after(time),
            None => Contention::new(),
        };
        let Some(Queued { entry_ttl, ahead }) = queued else { return contention };
        let by_key = !self.has_push || self.is_mutex && ahead == 0;
        let woken_by = if by_key { WokenBy::Key } else { WokenBy::Claim };
        contention.with_queue_entry(entry_ttl).with_woken_by(woken_by)
    }
}

fn held_by(
    contention: Contention,
    left: i64,
    by: &Reply,
    known: &Reply,
    is_mutex: bool,
) -> Option<Contention> {
    match (by, known) {
        (Reply::Nil, Reply::Nil) => Some(contention),
        (Reply::Bytes(value), Reply::Nil) if is_mutex => {
            Some(contention.with_holder(holder(value, left)))
        }
        (Reply::Bytes(id), record) => {
            Some(contention.with_holder(holder_of_units(id, left, record)?))
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

/// Reads a number, which may be followed by IDs.
fn decode_number(received: Received) -> Result<ServerReply<i64>, Error> {
    match received.map_err(ServerError::into_error)? {
        Reply::Int(outcome) => Ok(ServerReply { outcome, notified: Vec::new() }),
        Reply::Array(parts) => match parts.as_slice() {
            [Reply::Int(outcome), notified @ ..] => {
                Ok(ServerReply { outcome: *outcome, notified: ids(notified)? })
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
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
/// [`ErrorKind::WrongType`] contains the key.
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
            let message =
                "the key contains other data or a lock of another type; use a different name";
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
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
pub(crate) fn decode_renewal(received: Received) -> Result<ServerReply<Renewal>, Error> {
    let reply = decode_number(received).or_else(|error| replaced(error, -1))?;
    let outcome = match reply.outcome {
        1 => Renewal::Renewed,
        2 => Renewal::RevocationRequested,
        0 => Renewal::Vanished,
        -1 => Renewal::Taken,
        _ => return Err(unexpected()),
    };
    Ok(ServerReply { outcome, notified: reply.notified })
}

/// Reads the reply to [`Call::release`](crate::Call::release).
///
/// # Errors
///
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
pub(crate) fn decode_release(received: Received) -> Result<ServerReply<Release>, Error> {
    let reply = decode_number(received).or_else(|error| replaced(error, 0))?;
    let outcome = match reply.outcome {
        1 => Release::Released,
        0 => Release::NotHeld,
        _ => return Err(unexpected()),
    };
    Ok(ServerReply { outcome, notified: reply.notified })
}

/// Returns `outcome` if a client has replaced the lock with a value of a different type.
fn replaced(error: Error, outcome: i64) -> Result<ServerReply<i64>, Error> {
    if error.kind() != ErrorKind::WrongType {
        return Err(error);
    }
    Ok(ServerReply { outcome, notified: Vec::new() })
}

/// Reads the reply to [`Call::inspect`](crate::Call::inspect).
///
/// # Errors
///
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
pub(crate) fn decode_inspection(received: Received) -> Result<Inspection, Error> {
    let Reply::Array(parts) = received.map_err(ServerError::into_error)? else {
        return Err(unexpected());
    };
    let [held, clock, waiting, waiters @ ..] = parts.as_slice() else {
        return Err(unexpected());
    };
    let (clock, waiting) = number(clock).zip(number(waiting)).ok_or_else(unexpected)?;
    let Held { token, units, holders } = decode_held(Ok(held.clone()))?;
    let waiters = waiters.chunks(2).map(|entry| match entry {
        [Reply::Bytes(id), record] => waiter(id, record, clock, units.is_none()),
        _ => None,
    });
    let waiters = waiters.collect::<Option<Vec<_>>>().ok_or_else(unexpected)?;
    let unlisted = waiting.saturating_sub(waiters.len() as u64);
    let queue: Vec<Waiter> = waiters.into_iter().flatten().collect();
    let waiting = unlisted + queue.len() as u64;
    let holders = holders.into_iter().map(|holder| {
        // The token shows when the lease was granted, because tokens are derived from the server's
        // clock. Many grants or a requested minimum token can push tokens beyond the clock.
        let granted_at = holder.token().map(|token| token / Grant::TOKENS_PER_MICROSECOND);
        let held_for = granted_at.map(|at| Duration::from_micros(clock.saturating_sub(at)));
        holder.with_held_for(held_for)
    });
    let inspection = Inspection::free().with_last_token(token).with_queue(waiting, queue);
    let inspection = holders.fold(inspection, Inspection::with_holder);
    Ok(match units {
        Some(units) => inspection.with_units(units),
        None => inspection,
    })
}

/// Reads the reply to [`Call::force_release`](crate::Call::force_release).
///
/// # Errors
///
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
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
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
pub(crate) fn decode_revocation(received: Received) -> Result<Revocation, Error> {
    match received.map_err(ServerError::into_error)? {
        Reply::Int(1) => Ok(Revocation::Requested),
        Reply::Int(0) => Ok(Revocation::NotHeld),
        _ => Err(unexpected()),
    }
}

/// Reads the reply to [`Call::status`](crate::Call::status) and [`Call::join`](crate::Call::join).
///
/// # Errors
///
/// Returns the server's error, or [`ErrorKind::Unexpected`] if the reply cannot be read.
pub(crate) fn decode_status(received: Received) -> Result<MemberStatus, Error> {
    let Reply::Array(parts) = received.map_err(ServerError::into_error)? else {
        return Err(unexpected());
    };
    let [Reply::Bytes(id), configuration, min_token, Reply::Int(age)] = parts.as_slice() else {
        return Err(unexpected());
    };
    let configuration = match configuration {
        Reply::Nil => None,
        Reply::Bytes(text) => Some(str::from_utf8(text).map_err(|_| unexpected())?),
        _ => return Err(unexpected()),
    };
    let id = str::from_utf8(id).ok().and_then(StoreId::parse).ok_or_else(unexpected)?;
    let age = Duration::from_micros(u64::try_from(*age).map_err(|_| unexpected())?);
    Ok(MemberStatus::new(id)
        .with_configuration(configuration.map(QuorumConfiguration::from_text))
        .with_min_token(number(min_token).ok_or_else(unexpected)?)
        .with_age(age))
}

/// The holders of a key.
struct Held {
    token: Option<u64>,
    /// The number of permits in use, or `None` for a mutex.
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
                [Reply::Bytes(id), Reply::Int(remaining), record] => {
                    holder_of_units(id, *remaining, record)
                }
                _ => None,
            });
            let holders = holders.collect::<Option<Vec<_>>>().ok_or_else(unexpected)?;
            Ok(Held { token, units: u64::try_from(*units).ok(), holders })
        }
        _ => Err(unexpected()),
    }
}

/// Reads why one of several locks was not granted, from the remaining values of the reply.
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

/// Creates the holder of permits from its ID and its record (`lease.lua`). Returns `None` if the
/// record cannot be read.
fn holder_of_units(id: &[u8], remaining: i64, record: &Reply) -> Option<Holder> {
    let remaining = Duration::from_millis(u64::try_from(remaining).unwrap_or_default());
    let holder = Holder::new(Fingerprint::of(id)).with_remaining(Some(remaining));
    let record = match record {
        // A different program has deleted the record.
        Reply::Nil => return Some(holder),
        Reply::Array(record) => record,
        _ => return None,
    };
    let [Reply::Int(units), Reply::Int(limit), Reply::Int(token), Reply::Bytes(description)] =
        &record[..]
    else {
        return None;
    };
    let (units, limit) = (u32::try_from(*units).ok()?, u32::try_from(*limit).ok()?);
    let description = str::from_utf8(description).ok().and_then(|it| Description::new(it).ok());
    Some(
        holder
            .with_mode(Mode::Units { units, limit })
            .with_token(u64::try_from(*token).ok())
            .with_description(description),
    )
}

/// Creates a waiter from its ID and its record (`inspect.lua`). Returns `Some(None)` if the queue
/// entry has expired according to `clock`, or is reserved for clients that do not queue. Returns
/// `None` if the record cannot be read.
fn waiter(id: &[u8], record: &Reply, clock: u64, may_be_whole: bool) -> Option<Option<Waiter>> {
    let Reply::Array(record) = record else { return None };
    let [Reply::Int(ends), Reply::Int(units), Reply::Int(limit), Reply::Bytes(value)] = &record[..]
    else {
        return None;
    };
    if id == b"*" || u64::try_from(*ends).ok()?.saturating_mul(1_000) <= clock {
        return Some(None);
    }
    let (units, limit) = (u32::try_from(*units).ok()?, u32::try_from(*limit).ok()?);
    let is_mutex = limit == 1 && may_be_whole;
    let mode = if is_mutex { Mode::Exclusive } else { Mode::Units { units, limit } };
    let waiter = Waiter::new(Fingerprint::of(id), mode);
    Some(Some(waiter.with_description(description(value))))
}

/// Returns the description in the value of a lock. The value may come from any client.
fn description(value: &[u8]) -> Option<Description> {
    let text = value.splitn(2, |&byte| byte == b' ').nth(1)?;
    Description::new(str::from_utf8(text).ok()?).ok()
}

/// Creates the holder of a lock from the value of its key. The value may come from any client.
fn holder(value: &[u8], remaining: i64) -> Holder {
    let id = value.split(|&byte| byte == b' ').next().unwrap_or_default();
    let remaining = u64::try_from(remaining).ok().map(Duration::from_millis);
    Holder::new(Fingerprint::of(id))
        .with_mode(Mode::Exclusive)
        .with_description(description(value))
        .with_remaining(remaining)
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

pub(crate) fn unexpected() -> Error {
    let message = "the server sent an unexpected reply; check that it is Redis, and that no proxy changes its replies";
    Error::new(ErrorKind::Unexpected, message)
}

#[cfg(test)]
mod tests;
