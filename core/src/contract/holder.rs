//! The public information about a current lease.

use std::fmt;
use std::time::Duration;

use humantime::format_duration;

use crate::contract::backend::{Fingerprint, Mode};
use crate::contract::description::Description;

/// The public information about a current lease: who holds the lease, how many units it covers, and
/// when it expires.
///
/// See [`Admin::inspect`](crate::admin::Admin::inspect) for an example that prints the holders of a
/// key.
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

/// The type of a lock, as far as the store can determine it.
///
/// ```
/// use leasehold_core::LockKind;
/// use leasehold_core::backend::Mode;
///
/// assert_eq!(LockKind::of(Mode::Exclusive), LockKind::Mutex);
/// assert_eq!(LockKind::Mutex.name(), "mutex");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LockKind {
    /// A [`Mutex`](crate::Mutex), a [`ReentrantMutex`](crate::ReentrantMutex), or an exclusive lock
    /// that another program holds.
    Mutex,
    /// The leadership of an [`Election`](crate::election::Election).
    ///
    /// The store represents the leadership as the only permit of a key. A
    /// [`Semaphore`](crate::Semaphore) with one permit is therefore also reported as an election.
    Election,
    /// Permits of a [`Semaphore`](crate::Semaphore).
    Permits,
    /// A reader of an [`RwLock`](crate::RwLock).
    Reader,
    /// The writer of an [`RwLock`](crate::RwLock).
    Writer,
}

impl LockKind {
    /// Returns the type of lock that a claim for `mode` acquires.
    pub fn of(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Self::Mutex,
            Mode::Units { units: u32::MAX, .. } => Self::Writer,
            Mode::Units { limit: u32::MAX, .. } => Self::Reader,
            Mode::Units { limit: 1, .. } => Self::Election,
            Mode::Units { .. } => Self::Permits,
        }
    }

    /// Returns the name of the lock type, as one word.
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
    /// Creates a lease holder with this fingerprint.
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

    /// Sets the description of the holder.
    #[must_use]
    pub fn with_description(mut self, description: Option<Description>) -> Self {
        self.description = description;
        self
    }

    /// Sets the time until the lease expires if it is not renewed.
    #[must_use]
    pub fn with_remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }

    /// Sets the number of units that the holder uses. The default is 1.
    #[must_use]
    pub fn with_units(mut self, units: u32) -> Self {
        self.units = units;
        self
    }

    /// Sets the lock type and the number of units that the holder uses.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        (self.units, self.kind) = (mode.units(), Some(LockKind::of(mode)));
        self
    }

    /// Sets the fencing token of the grant.
    #[must_use]
    pub fn with_token(mut self, number: Option<u64>) -> Self {
        self.token = number;
        self
    }

    /// Sets how long ago the lease was granted, as measured by the store's clock.
    #[must_use]
    pub fn with_held_for(mut self, time: Option<Duration>) -> Self {
        self.held_for = time;
        self
    }

    /// Returns the fingerprint of the lease.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the description of the holder, if the holder set one.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// Returns the time until the lease expires if it is not renewed.
    ///
    /// Returns `None` if the lease never expires, or if the store did not report when the lease
    /// expires.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Returns the number of units that the holder uses. The holder of a mutex or a reader uses 1
    /// unit, and a writer uses all units.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Returns the lock type, if the store reports it.
    pub fn kind(&self) -> Option<LockKind> {
        self.kind
    }

    /// Returns the fencing token of the grant, if the store records it.
    ///
    /// If the lease has been [handed off](crate::LockOptions::hand_over) within a process since the
    /// grant, the current holder has a larger token.
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// Returns how long ago the lease was granted, if the store reports it. The age of the lease is
    /// measured by the store's clock, with a precision of 0.1 s.
    pub fn held_for(&self) -> Option<Duration> {
        self.held_for
    }

    /// Returns the description and the fingerprint of the lease, such as `vm/31219 (lease
    /// 9c92dba7)`. The `Display` text of a holder contains more details.
    ///
    /// ```
    /// use leasehold_core::Holder;
    ///
    /// # fn example(holder: &Holder) {
    /// println!("held by {}", holder.label());
    /// # }
    /// ```
    pub fn label(&self) -> String {
        label(self.description.as_ref(), self.fingerprint, Vec::new())
    }
}

impl Holder {
    /// Updates the times of the holder to reflect that `time` has passed without a renewal or a
    /// release.
    pub(crate) fn later(mut self, time: Duration) -> Self {
        self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(time));
        self.held_for = self.held_for.map(|held_for| held_for + time);
        self
    }
}

/// The text contains everything that the store reports about the holder, such as `vm/31219 (lease
/// 9c92dba7, token 42, acquired 2s ago, expires in 5.0s unless renewed)`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut facts = Vec::from_iter(permits(self.kind, self.units));
        facts.extend(self.token.map(|token| format!("token {token}")));
        facts.extend(self.held_for.map(|time| format!("acquired {} ago", rough(time))));
        facts.push(match self.remaining {
            Some(remaining) => format!("expires in {remaining:.1?} unless renewed"),
            None => "does not expire".to_owned(),
        });
        f.write_str(&label(self.description.as_ref(), self.fingerprint, facts))
    }
}

/// Formats a holder or a waiter: its description, the fingerprint of its lease, and `facts`.
pub(crate) fn label(
    description: Option<&Description>,
    fingerprint: Fingerprint,
    facts: Vec<String>,
) -> String {
    let lease = format!("lease {fingerprint}");
    match description {
        Some(description) => {
            format!("{description} ({})", [vec![lease], facts].concat().join(", "))
        }
        None if facts.is_empty() => lease,
        None => format!("{lease} ({})", facts.join(", ")),
    }
}

/// Says what a holder holds or a waiter requests, unless it is the whole lock or one permit.
pub(crate) fn permits(kind: Option<LockKind>, units: u32) -> Option<String> {
    match (kind, units) {
        (Some(LockKind::Reader), _) => Some("reading".to_owned()),
        (_, 1) => None,
        (_, u32::MAX) => Some("writing".to_owned()),
        (_, units) => Some(format!("{units} permits")),
    }
}

/// Formats a time in whole seconds, in its two largest units that are not zero, such as `3m 2s`.
fn rough(time: Duration) -> String {
    let time = format_duration(Duration::from_secs(time.as_secs())).to_string();
    let units: Vec<_> = time.split(' ').take(2).collect();
    units.join(" ").replace("day", " day")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_contains_everything_that_the_store_reports() {
        let lease = Fingerprint::of(b"secret");
        let holder = Holder::new(lease).with_remaining(Some(Duration::from_secs(5)));
        assert_eq!(holder.to_string(), format!("lease {lease} (expires in 5.0s unless renewed)"));
        assert_eq!(holder.label(), format!("lease {lease}"));

        let holder = holder
            .with_description(Description::new("vm/31219").ok())
            .with_mode(Mode::Units { units: 3, limit: 4 })
            .with_token(Some(42))
            .with_held_for(Some(Duration::from_secs(3_725)));
        assert_eq!(
            holder.to_string(),
            format!(
                "vm/31219 (lease {lease}, 3 permits, token 42, acquired 1h 2m ago, expires in 5.0s unless renewed)"
            )
        );
        assert_eq!(holder.label(), format!("vm/31219 (lease {lease})"));
    }

    #[test]
    fn times_are_shown_in_their_two_largest_units() {
        let shown = [0, 59, 60, 3_600, 90_061].map(|secs| rough(Duration::from_secs(secs)));
        assert_eq!(shown, ["0s", "59s", "1m", "1h", "1 day 1h"]);
    }
}
