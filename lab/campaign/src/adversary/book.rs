//! What the callers have seen.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use leasehold_core::LockKey;
use leasehold_core::backend::Mode;
use leasehold_entry::Tag;
use leasehold_sql_support::Reading;

/// The grants of all callers.
#[derive(Debug, Default)]
pub(super) struct Book(Mutex<(HashMap<LockKey, Seen>, Report)>);

#[derive(Debug, Default)]
struct Seen {
    /// The permits in use. A lease of the whole key counts as [`WHOLE`].
    used: u32,
    last_token: u64,
    /// The last token of a lease of the whole key. Two callers may record permits in a different
    /// order than they were granted, but neither can have a lease of the whole key before its
    /// release.
    last_exclusive: u64,
    /// Until when the last holder of a lease that expires considers itself the holder.
    until: Option<Instant>,
    /// The row of the key as the last caller that was queued has read it.
    told: Option<Reading>,
    /// The waiter to which the key was transferred last, unless the waiter has confirmed the
    /// transfer.
    reserved: Option<Tag>,
}

const WHOLE: u32 = 1_000;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// The number of grants.
    pub grants: u64,
    /// The number of deleted rows.
    pub purged: u64,
    /// The number of releases that transferred the key to a waiter.
    pub transfers: u64,
    /// The number of transfers after which the waiter acquired the key.
    pub confirmed: u64,
    /// The number of grants while other leases did not admit them, and of leases that were not
    /// there when their holders released them.
    pub overlaps: u64,
    /// The number of tokens that were not larger than an earlier token of the key.
    pub disorder: u64,
    /// The number of permits that their callers recorded in a different order than they were
    /// granted.
    pub reordered: u64,
}

impl Report {
    /// Returns whether a rule was broken.
    pub fn is_broken(&self) -> bool {
        self.overlaps > 0 || self.disorder > 0
    }
}

impl Book {
    /// Records a grant with the tokens `first..=last`.
    pub(super) fn granted(&self, key: &LockKey, mode: Mode, first: u64, last: u64) {
        let mut book = self.0.lock().expect("no caller panics");
        let (seen, report) = &mut *book;
        let seen = seen.entry(key.clone()).or_default();
        let limit = if mode.is_mutex() { 0 } else { mode.limit() - mode.units() };
        report.overlaps += u64::from(seen.used > limit);
        seen.used += used(mode);
        report.token(seen, mode, first, last);
    }

    /// Records that the holder is about to release its lease.
    pub(super) fn releases(&self, key: &LockKey, mode: Mode) {
        let mut book = self.0.lock().expect("no caller panics");
        let seen = book.0.get_mut(key).expect("the lease was granted");
        seen.used -= used(mode);
    }

    /// Records that a lease was not there when its holder released it.
    pub(super) fn lost(&self) {
        self.0.lock().expect("no caller panics").1.overlaps += 1;
    }

    /// Records a grant of a lease that expires. Ignores a grant whose lease has already expired.
    pub(super) fn granted_until(&self, key: &LockKey, token: u64, until: Instant) -> bool {
        let mut book = self.0.lock().expect("no caller panics");
        let (seen, report) = &mut *book;
        let (seen, now) = (seen.entry(key.clone()).or_default(), Instant::now());
        if now >= until {
            return false;
        }
        report.overlaps += u64::from(seen.until.is_some_and(|other| other > now));
        report.token(seen, Mode::Exclusive, token, token);
        seen.until = Some(until);
        true
    }

    /// Records that the holder of a lease that expires considers itself the holder until `until`,
    /// and returns `false` if it no longer does.
    pub(super) fn holds_until(&self, key: &LockKey, until: Instant) -> bool {
        let mut book = self.0.lock().expect("no caller panics");
        let seen = book.0.entry(key.clone()).or_default();
        let now = Instant::now();
        let is_held = now < until;
        if is_held {
            seen.until = Some(until);
        }
        is_held
    }

    /// Records that the holder, which considers itself the holder until `until`, releases its
    /// lease.
    pub(super) fn ends(&self, key: &LockKey, until: Instant) {
        let mut book = self.0.lock().expect("no caller panics");
        let seen = book.0.entry(key.clone()).or_default();
        if seen.until == Some(until) {
            seen.until = None;
        }
    }

    /// Sends the row of a key to the holder, as a waiter does when it is queued.
    pub(super) fn tell(&self, key: &LockKey, row: Reading) {
        let mut book = self.0.lock().expect("no caller panics");
        // A notification does not contain the minimum token.
        book.0.entry(key.clone()).or_default().told = Some(Reading { min_token: 0, ..row });
    }

    /// Takes the row that a waiter has sent last, even if the waiter sent it to an earlier holder.
    pub(super) fn take_told(&self, key: &LockKey) -> Option<Reading> {
        self.0.lock().expect("no caller panics").0.get_mut(key)?.told.take()
    }

    /// Records that a release has transferred the key to this waiter.
    pub(super) fn transferred(&self, key: &LockKey, waiter: Tag) {
        let mut book = self.0.lock().expect("no caller panics");
        book.1.transfers += 1;
        book.0.entry(key.clone()).or_default().reserved = Some(waiter);
    }

    /// Records that a caller, which may have been a waiter, has acquired the key.
    pub(super) fn acquired(&self, key: &LockKey, caller: Tag) {
        let mut book = self.0.lock().expect("no caller panics");
        let (seen, report) = &mut *book;
        let reserved = &mut seen.entry(key.clone()).or_default().reserved;
        report.confirmed += u64::from(reserved.take_if(|waiter| *waiter == caller).is_some());
    }

    pub(super) fn purged(&self, rows: u64) {
        self.0.lock().expect("no caller panics").1.purged += rows;
    }

    pub(super) fn report(&self) -> Report {
        self.0.lock().expect("no caller panics").1
    }
}

impl Report {
    fn token(&mut self, seen: &mut Seen, mode: Mode, first: u64, last: u64) {
        self.grants += 1;
        let before = if mode.is_mutex() { seen.last_token } else { seen.last_exclusive };
        self.disorder += u64::from(first <= before);
        self.reordered += u64::from(before < first && first <= seen.last_token);
        seen.last_token = seen.last_token.max(last);
        if mode.is_mutex() {
            seen.last_exclusive = seen.last_exclusive.max(last);
        }
    }
}

fn used(mode: Mode) -> u32 {
    if mode.is_mutex() { WHOLE } else { mode.units() }
}
