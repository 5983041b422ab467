//! A holder of a key, as others may see it.

use std::fmt;
use std::time::Duration;

use crate::contract::backend::{Fingerprint, Share};
use crate::contract::description::Description;

/// A lease in force, as anybody may see it.
///
/// See [`Admin::inspect`](crate::admin::Admin::inspect) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    fingerprint: Fingerprint,
    description: Option<Description>,
    remaining: Option<Duration>,
    units: u32,
    kind: Option<LockKind>,
    token: Option<u64>,
    held_for: Option<Duration>,
}

/// The kind of lock that a lease is of, as a store tells it.
///
/// See [`Admin::inspect`](crate::admin::Admin::inspect) for an example.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LockKind {
    /// The whole key: a [`Mutex`](crate::Mutex), a [`ReentrantMutex`](crate::ReentrantMutex), or a lock of another program.
    Mutex,
    /// The leadership of an [`Election`](crate::election::Election). A store holds it as the only permit of a key, so a
    /// [`Semaphore`](crate::Semaphore) of one permit is called an election, too.
    Election,
    /// Permits of a [`Semaphore`](crate::Semaphore).
    Permits,
    /// A reader of an [`RwLock`](crate::RwLock).
    Reader,
    /// The writer of an [`RwLock`](crate::RwLock).
    Writer,
}

impl LockKind {
    /// The kind that asks for such a share.
    pub fn of(share: Share) -> Self {
        match share {
            Share::Whole => Self::Mutex,
            Share::Units { units: u32::MAX, .. } => Self::Writer,
            Share::Units { limit: u32::MAX, .. } => Self::Reader,
            Share::Units { limit: 1, .. } => Self::Election,
            Share::Units { .. } => Self::Permits,
        }
    }

    /// Its name, in one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Election => "election",
            Self::Permits => "permits",
            Self::Reader => "read",
            Self::Writer => "write",
        }
    }
}

impl Holder {
    /// Creates the holder whose lease id has `fingerprint`.
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self {
            fingerprint,
            description: None,
            remaining: None,
            units: 1,
            kind: None,
            token: None,
            held_for: None,
        }
    }

    /// Adds the holder's description.
    #[must_use]
    pub fn with_description(mut self, description: Option<Description>) -> Self {
        self.description = description;
        self
    }

    /// Adds the time that is left of the lease if its holder does not renew it.
    #[must_use]
    pub fn with_remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }

    /// Says how many units of the key it holds, unless that is 1.
    #[must_use]
    pub fn with_units(mut self, units: u32) -> Self {
        self.units = units;
        self
    }

    /// Says how much of the key it holds: its units, and the kind of lock.
    #[must_use]
    pub fn with_share(mut self, share: Share) -> Self {
        (self.units, self.kind) = (share.units(), Some(LockKind::of(share)));
        self
    }

    /// Adds the fencing token of the grant.
    #[must_use]
    pub fn with_token(mut self, number: Option<u64>) -> Self {
        self.token = number;
        self
    }

    /// Adds how long ago the lease was granted, by the store's clock.
    #[must_use]
    pub fn with_held_for(mut self, time: Option<Duration>) -> Self {
        self.held_for = time;
        self
    }

    /// Names its lease.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The holder's description, if it gave one.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// How long the store keeps its lease without renewal; `None` if for ever, or if a refusal does not tell.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// How many units of the key it holds: 1 for a mutex or a reader, all of them for a writer.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// The kind of lock, if the store knows.
    pub fn kind(&self) -> Option<LockKind> {
        self.kind
    }

    /// The fencing token with which the lease was granted, if the store keeps it.
    ///
    /// A lease that was [handed over](crate::LockOptions::hand_over) within a process since then has a holder with a larger one.
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// How long ago the lease was granted, by the store's clock and to a tenth of a second, if the store knows.
    pub fn held_for(&self) -> Option<Duration> {
        self.held_for
    }
}

impl Holder {
    /// The holder `time` later, if it has neither renewed nor released its lease.
    pub(crate) fn later(mut self, time: Duration) -> Self {
        self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(time));
        self.held_for = self.held_for.map(|held_for| held_for + time);
        self
    }

    /// Its name and description.
    pub(crate) fn label(&self) -> impl fmt::Display + use<> {
        match &self.description {
            Some(description) => format!("{} ({description})", self.fingerprint),
            None => self.fingerprint.to_string(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.label())?;
        match (self.kind, self.units) {
            (Some(LockKind::Reader), _) => f.write_str(", reading")?,
            (_, 1) => {}
            (_, u32::MAX) => f.write_str(", writing")?,
            (_, units) => write!(f, ", {units} units")?,
        }
        if let Some(time) = self.held_for {
            write!(f, ", for {time:.1?} so far")?;
        }
        match self.remaining {
            Some(remaining) => write!(f, ", for another {remaining:.1?} unless renewed"),
            None => f.write_str(", for ever"),
        }
    }
}
