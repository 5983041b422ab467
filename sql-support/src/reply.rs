//! The answers of a [`Database`](crate::Database), as its rows say them.
//!
//! `called` are the tags of places in the queue that are to be asked for again: there is room for them (see
//! [`Database`](crate::Database)), the caller's own excepted. It may name more, such as the first few places, and it
//! may repeat itself: a call is a hint. It must not leave out a place for which there came to be room by this transaction.

use std::time::Duration;

use leasehold_core::admin::Waiter;
use leasehold_core::backend::{Grant, Share};
use leasehold_core::{Description, Error, ErrorKind, Holder};
use uuid::Uuid;

/// The outcome of a claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Acquired {
    /// The lease is in force.
    Granted(Granted),
    /// There is no room for it.
    Refused(Refused),
    /// The key is held as a lock of another kind.
    OtherKind,
}

/// The outcome of several claims.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AcquiredAll {
    /// All leases are in force: one for each claim, in order.
    Granted(Vec<Granted>),
    /// There is no room for the claim with this index, the first of its like.
    Refused(usize, Refused),
    /// The key of the claim with this index is held as a lock of another kind.
    OtherKind(usize),
}

/// A lease that is in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted {
    /// Its fencing token, the first of its numbers; never 0.
    pub token: u64,
    /// How many of the numbers that follow it has, too: no more than were asked for.
    pub spare: u32,
    /// See [the module](self).
    pub called: Vec<Uuid>,
}

/// Why there is no room.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Refused {
    /// The holder whose lease ends first.
    pub holder: Option<HolderRow>,
    /// When the first of the places before the claim's own ends by itself, if that may make room for it.
    pub first_place_ends: Option<Duration>,
    /// See [the module](self).
    pub called: Vec<Uuid>,
}

/// A lease in force, as others see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HolderRow {
    /// Its fingerprint, as stored.
    pub fingerprint: String,
    /// The holder, in words, as stored.
    pub description: Option<String>,
    /// How many units it has.
    pub units: u32,
    /// When it ends by itself.
    pub remaining: Duration,
}

/// The outcome of a renewal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Renewed {
    /// The lease is in force for another TTL.
    Renewed {
        /// Whether its holder is asked to finish.
        asked: bool,
        /// See [the module](self). Only a renewal that gives units back has any.
        called: Vec<Uuid>,
    },
    /// It is not in force, and another lease of the key is whose `whole` is that of the renewed one.
    Taken,
    /// It is not in force, and neither is another.
    Vanished,
}

/// The outcome of a release.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Released {
    /// Whether the lease was in force. It was not if it only had a place.
    pub was_held: bool,
    /// See [the module](self).
    pub called: Vec<Uuid>,
}

/// The outcome of a request to revoke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Whether there are holders.
    pub is_held: bool,
}

/// The outcome of a forced release.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Forced {
    /// The leases that were ended.
    pub ended: Vec<HolderRow>,
    /// The stripe's token, which has moved on, if any lease was ended.
    pub min_token: Option<u64>,
    /// See [the module](self).
    pub called: Vec<Uuid>,
}

/// A row of a key, with all that an operator may see.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ShownRow {
    /// Its lease, or that which its claim is to have.
    pub holder: HolderRow,
    /// Whether it is for the whole key.
    pub whole: bool,
    /// The limit that its claim named.
    pub capacity: u32,
    /// The fencing token of the grant; none of a place in the queue.
    pub token: Option<u64>,
}

/// The state of a key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inspected {
    /// The leases in force, in the order of their ends: at most [`Inspected::LISTED`].
    pub holders: Vec<ShownRow>,
    /// The places in the queue, in order: at most [`Inspected::LISTED`].
    pub queue: Vec<ShownRow>,
    /// How many places there are, listed or not.
    pub waiting: u64,
    /// The database's wall clock, by which tokens go, in microseconds since 1970.
    pub clock: u64,
    /// How many units all of them have, listed or not.
    pub units: u64,
    /// The stripe's token, unless it is 0.
    pub last_token: Option<u64>,
}

impl Inspected {
    /// How many holders and places are listed: more than fit on a screen, and a short reply.
    pub const LISTED: usize = 128;
}

impl ShownRow {
    fn share(&self) -> Share {
        if self.whole {
            Share::Whole
        } else {
            Share::Units { units: self.holder.units, limit: self.capacity }
        }
    }

    /// Makes the contract's holder of it.
    ///
    /// A token is a time of the database's clock, unless many grants or a wish have pushed it beyond: so it tells when it was granted.
    pub(crate) fn holder(self, clock: u64) -> Result<Holder, Error> {
        let (share, token) = (self.share(), self.token);
        let granted_at = token.map(|token| token / Grant::TOKENS_PER_MICROSECOND);
        let held_for = granted_at.map(|at| Duration::from_micros(clock.saturating_sub(at)));
        let holder = self.holder.holder()?.with_share(share).with_token(token);
        Ok(holder.with_held_for(held_for))
    }

    /// Makes the contract's waiter of it.
    pub(crate) fn waiter(self) -> Result<Waiter, Error> {
        let share = self.share();
        let holder = self.holder.holder()?;
        let waiter = Waiter::new(holder.fingerprint(), share);
        Ok(waiter.with_description(holder.description().cloned()))
    }
}

impl HolderRow {
    /// Makes the contract's holder of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unexpected`] if the fingerprint is none. A description that Leasehold did not write is left out.
    pub(crate) fn holder(self) -> Result<Holder, Error> {
        let fingerprint = self.fingerprint.parse().map_err(|error| {
            let message = "the fingerprint of a lease is not as Leasehold writes it";
            Error::new(ErrorKind::Unexpected, message).with_source(error)
        })?;
        let description = self.description.and_then(|text| Description::new(text).ok());
        Ok(Holder::new(fingerprint)
            .with_description(description)
            .with_remaining(Some(self.remaining))
            .with_units(self.units))
    }
}

/// The time from `now` to `ends`, both in microseconds as the tables have them; zero if it has passed.
pub fn remaining(ends: i64, now: i64) -> Duration {
    Duration::from_micros(ends.saturating_sub(now).try_into().unwrap_or(0))
}
