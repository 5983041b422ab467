//! One key: its holders and its queue. The rules are those of `core/src/backends/memory/machine/entry.rs`.

use uuid::Uuid;

use leasehold_sql_support::request::Acquire;

/// A row of the key, as far as decisions need it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) tag: Uuid,
    /// Its order in the queue; `None` if it holds the key.
    pub(crate) place: Option<i64>,
    pub(crate) whole: bool,
    pub(crate) units: u32,
    pub(crate) capacity: u32,
    pub(crate) patience: Option<i64>,
    pub(crate) ends: i64,
    pub(crate) asked: i64,
}

impl Row {
    /// In `asked`: this holder alone is asked to finish, for as long as it has its lease, and later holders are not.
    pub(crate) const ASKED_ALONE: i64 = i64::MAX;
}

/// The rows of a key that are in force.
#[derive(Debug)]
pub(crate) struct Entry {
    holders: Vec<Row>,
    /// In the order of their places.
    queue: Vec<Row>,
}

impl Entry {
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        let (holders, mut queue): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| row.place.is_none());
        queue.sort_by_key(|row| row.place);
        Self { holders, queue }
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Whether it is held by leases of another kind.
    pub(crate) fn is_of_other_kind(&self, whole: bool) -> bool {
        self.holders.first().is_some_and(|first| first.whole != whole)
    }

    /// Whether there is room for the claim beside all holders of the key and all places before its own. A lease in force that is claimed
    /// again is always admitted.
    pub(crate) fn admits(&self, claim: &Acquire) -> bool {
        let before = self.before(&claim.lease.tag).map(|row| u64::from(row.units));
        let total = self.units() + before.sum::<u64>() + u64::from(claim.units);
        self.holder(&claim.lease.tag).is_some() || total <= u64::from(claim.capacity)
    }

    /// When the first of the places before the claim's own ends by itself, if that may make room for it.
    pub(crate) fn first_place_before(&self, claim: &Acquire) -> Option<i64> {
        if self.is_held() && claim.whole {
            return None;
        }
        self.before(&claim.lease.tag).map(|row| row.ends).min()
    }

    /// The places that there is room for.
    pub(crate) fn called(&self) -> impl Iterator<Item = &Row> {
        let mut total = self.units();
        self.queue.iter().take_while(move |row| {
            total += u64::from(row.units);
            total <= u64::from(row.capacity)
        })
    }

    /// Keeps the places that there is room for no longer than for their patience, and returns the places that end earlier by that.
    pub(crate) fn call_up(&mut self, now: i64) -> Vec<&Row> {
        let called = self.called().count();
        let called = self.queue[..called].iter_mut();
        let earlier = called.filter_map(|row| {
            let ends = now.saturating_add(row.patience?);
            (ends < row.ends).then(|| {
                row.ends = ends;
                &*row
            })
        });
        earlier.collect()
    }

    /// The place of the claim in the queue: its own, or one behind all others.
    pub(crate) fn place_of(&self, tag: &Uuid) -> i64 {
        let own = self.queue.iter().find(|row| row.tag == *tag);
        let last = self.queue.last().and_then(|row| row.place).unwrap_or(0);
        own.and_then(|row| row.place).unwrap_or(last + 1)
    }

    /// The lease with this tag, if it is in force.
    pub(crate) fn holder(&self, tag: &Uuid) -> Option<&Row> {
        self.holders.iter().find(|row| row.tag == *tag)
    }

    pub(crate) fn holders(&self) -> &[Row] {
        &self.holders
    }

    /// Until when all holders are asked to finish.
    pub(crate) fn asked(&self) -> i64 {
        let of_all = self.holders.iter().map(|row| row.asked).filter(|it| *it != Row::ASKED_ALONE);
        of_all.max().unwrap_or(0)
    }

    /// When the first of its rows ends by itself.
    pub(crate) fn first_end(&self) -> Option<i64> {
        self.holders.iter().chain(&self.queue).map(|row| row.ends).min()
    }

    /// How many units all holders have.
    pub(crate) fn units(&self) -> u64 {
        self.holders.iter().map(|row| u64::from(row.units)).sum()
    }

    /// How many places there are in the queue.
    pub(crate) fn waiting(&self) -> u64 {
        u64::try_from(self.queue.len()).unwrap_or(u64::MAX)
    }

    /// The places in the queue before that with this tag: all, if there is none.
    fn before(&self, tag: &Uuid) -> impl Iterator<Item = &Row> {
        self.queue.iter().take_while(move |row| row.tag != *tag)
    }
}
