//! The operations of the store. Each operation is one transaction.

use leasehold_core::backend::{Claim, Enlistment, Fingerprint, Standing, StoreId};
use leasehold_sql_support::reply::{
    Acquired, AcquiredAll, Asked, Forced, Granted, Refused, Released, Renewed, remaining,
};
use leasehold_sql_support::request::{Acquire, Key, Named, Renew, micros, token_at};

use crate::entry::{Entry, Row};
use crate::host::Now;
use crate::tables::{Stop, Tables, after};

/// Why a claim is not granted.
enum Obstacle {
    Held(Refused),
    OtherKind,
}

pub(crate) fn acquire(tables: &Tables<'_>, now: Now, claim: &Acquire) -> Result<Acquired, Stop> {
    tables.check_charter(claim)?;
    let last = tables.token(claim.lease.key.stripe)?;
    let mut entry = tables.expire(&claim.lease.key, now.us)?;
    call_up(tables, &claim.lease.key, &mut entry, now)?;
    match obstacle(tables, &entry, claim, now)? {
        Some(Obstacle::OtherKind) => Ok(Acquired::OtherKind),
        Some(Obstacle::Held(refused)) => {
            queue_up(tables, &entry, claim, now)?;
            Ok(Acquired::Refused(refused))
        }
        None => {
            let granted = grant(tables, &entry, claim, last, now)?;
            tables.clear(now.us)?;
            Ok(Acquired::Granted(granted))
        }
    }
}

pub(crate) fn acquire_all(
    tables: &Tables<'_>,
    now: Now,
    claims: &[Acquire],
) -> Result<AcquiredAll, Stop> {
    claims.iter().try_for_each(|claim| tables.check_charter(claim))?;
    let mut entries = Vec::with_capacity(claims.len());
    for (index, claim) in claims.iter().enumerate() {
        let entry = tables.expire(&claim.lease.key, now.us)?;
        match obstacle(tables, &entry, claim, now)? {
            Some(Obstacle::OtherKind) => return Ok(AcquiredAll::OtherKind(index)),
            Some(Obstacle::Held(refused)) => return Ok(AcquiredAll::Refused(index, refused)),
            None => entries.push(entry),
        }
    }
    let mut granted = Vec::with_capacity(claims.len());
    for (claim, entry) in claims.iter().zip(&entries) {
        // Several claims may use the same lock-table partition.
        let last = tables.token(claim.lease.key.stripe)?;
        granted.push(grant(tables, entry, claim, last, now)?);
        tables.clear(now.us)?;
    }
    Ok(AcquiredAll::Granted(granted))
}

pub(crate) fn renew(
    tables: &Tables<'_>,
    now: Now,
    renewals: &[Renew],
) -> Result<Vec<Renewed>, Stop> {
    let each = renewals.iter().map(|renewal| {
        if let Some(asked) = tables.renew(renewal, now.us)? {
            if renewal.floor > 0 {
                tables.raise(renewal.lease.key.stripe, renewal.floor)?;
            }
            return Ok(Renewed::Renewed { asked: asked > now.us, called: Vec::new() });
        }
        let is_held = tables.is_held_like(renewal, now.us)?;
        Ok(if is_held { Renewed::Taken } else { Renewed::Vanished })
    });
    each.collect()
}

pub(crate) fn release(tables: &Tables<'_>, now: Now, lease: &Named) -> Result<Released, Stop> {
    let was_held = tables.delete(lease, now.us)?;
    if was_held {
        let mut entry = tables.expire(&lease.key, now.us)?;
        call_up(tables, &lease.key, &mut entry, now)?;
    }
    Ok(Released { was_held, called: Vec::new() })
}

pub(crate) fn request_revocation(
    tables: &Tables<'_>,
    now: Now,
    key: &Key,
    only: Option<Fingerprint>,
) -> Result<Asked, Stop> {
    let entry = tables.expire(key, now.us)?;
    let is_held = match (only, entry.holders().iter().map(|row| row.ends).max()) {
        (_, None) => false,
        (None, Some(until)) => tables.ask(key, until, None)?,
        (Some(lease), Some(_)) => tables.ask(key, Row::ASKED_ALONE, Some(lease))?,
    };
    if is_held {
        tables.alarm()?;
    }
    Ok(Asked { is_held })
}

pub(crate) fn force_release(
    tables: &Tables<'_>,
    now: Now,
    key: &Key,
    only: Option<Fingerprint>,
) -> Result<Forced, Stop> {
    let entry = tables.expire(key, now.us)?;
    let ended = tables.end_holders(key, only, now.us)?;
    if ended.is_empty() {
        return Ok(Forced::default());
    }
    let (token, _) = number(tables, key, tables.token(key.stripe)?, 0, token_at(now.wall_us))?;
    tables.alarm()?;
    let is_last = ended.len() == entry.holders().len();
    Ok(Forced { ended, min_token: is_last.then_some(token), called: Vec::new() })
}

pub(crate) fn standing(
    tables: &Tables<'_>,
    now: Now,
    fresh: StoreId,
    enlistment: Option<&Enlistment>,
) -> Result<Standing, Stop> {
    let found = tables.standing(fresh, now.us)?;
    let Some(enlistment) = enlistment else { return Ok(found) };
    tables.enlist(enlistment)?;
    tables.standing(fresh, now.us)
}

fn obstacle(
    tables: &Tables<'_>,
    entry: &Entry,
    claim: &Acquire,
    now: Now,
) -> Result<Option<Obstacle>, Stop> {
    if entry.is_of_other_kind(claim.whole) {
        return Ok(Some(Obstacle::OtherKind));
    }
    if entry.admits(claim) {
        return Ok(None);
    }
    let first = entry.holders().iter().min_by_key(|row| row.ends);
    let holder = first.map(|row| tables.holder(&claim.lease.key, &row.tag, now.us)).transpose()?;
    let ends = entry.first_place_before(claim);
    let first_place_ends = ends.map(|ends| remaining(ends, now.us));
    Ok(Some(Obstacle::Held(Refused { holder, first_place_ends, called: Vec::new() })))
}

/// Limits the queue entries that can be granted now to their patience.
fn call_up(tables: &Tables<'_>, key: &Key, entry: &mut Entry, now: Now) -> rusqlite::Result<()> {
    for row in entry.call_up(now.us) {
        tables.set_ends(key, &row.tag, row.ends)?;
    }
    Ok(())
}

/// Creates or refreshes the queue entry of a claim that was not granted.
fn queue_up(tables: &Tables<'_>, entry: &Entry, claim: &Acquire, now: Now) -> rusqlite::Result<()> {
    let Some(place) = claim.place else { return Ok(()) };
    let row = Row {
        place: Some(entry.place_of(&claim.lease.tag)),
        patience: place.patience.map(micros),
        ends: after(now.us, place.time),
        asked: 0,
        ..row_of(claim)
    };
    tables.put(claim, &row, None)
}

fn grant(
    tables: &Tables<'_>,
    entry: &Entry,
    claim: &Acquire,
    last: i64,
    now: Now,
) -> Result<Granted, Stop> {
    let key = &claim.lease.key;
    let wish = claim.least_token;
    let is_near = wish <= token_at(after(now.wall_us, Claim::WISHED_AHEAD));
    let least = token_at(now.wall_us).max(if is_near { wish } else { 0 });
    let (token, spare) = number(tables, key, last, claim.spare, least)?;
    let before = entry.holder(&claim.lease.tag);
    let units = before.map_or(claim.units, |row| row.units.min(claim.units));
    let row = Row {
        place: None,
        units,
        patience: None,
        ends: after(now.us, claim.ttl),
        asked: entry.asked().max(before.map_or(0, |row| row.asked)),
        ..row_of(claim)
    };
    tables.put(claim, &row, i64::try_from(token).ok())?;
    Ok(Granted { token, spare, called: Vec::new() })
}

/// Chooses the token of a grant, and the number of additional tokens, which is at most `spare`. The
/// largest token is `least`, unless earlier tokens are larger. `least` is the time of day or a
/// requested minimum token. Additional tokens are therefore never ahead of the time, and tokens
/// remain in order even in a new file.
fn number(
    tables: &Tables<'_>,
    key: &Key,
    last: i64,
    spare: u32,
    least: i64,
) -> Result<(u64, u32), Stop> {
    let token = least.max(last + 1);
    if token >= tables.ceiling()? {
        return Err(Stop::Ceiling(token));
    }
    tables.set_token(key.stripe, token)?;
    let first = (last + 1).max(token - i64::from(spare));
    let numbers = |number: i64| u64::try_from(number).expect("tokens are positive");
    Ok((numbers(first), u32::try_from(token - first).expect("it is no more than was asked for")))
}

fn row_of(claim: &Acquire) -> Row {
    Row {
        tag: claim.lease.tag,
        place: None,
        whole: claim.whole,
        units: claim.units,
        capacity: claim.capacity,
        patience: None,
        ends: 0,
        asked: 0,
    }
}
