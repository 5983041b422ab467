//! A key's holders and queue. The rules match those in `core/src/backends/memory/machine/entry.rs`.

use uuid::Uuid;

use leasehold_sql_support::request::Acquire;

/// The columns of a row that decisions depend on.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) tag: Uuid,
    /// The position in the queue, or `None` for a holder.
    pub(crate) place: Option<i64>,
    pub(crate) whole: bool,
    pub(crate) units: u32,
    pub(crate) capacity: u32,
    pub(crate) patience: Option<i64>,
    pub(crate) ends: i64,
    pub(crate) asked: i64,
}

impl Row {
    /// The value of `asked` if revocation was requested for this lease only. The request applies
    /// until the lease ends, and does not apply to later holders.
    pub(crate) const ASKED_ALONE: i64 = i64::MAX;
}

/// The rows of a key that have not expired.
#[derive(Debug)]
pub(crate) struct Entry {
    holders: Vec<Row>,
    /// Sorted by their position in the queue.
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

    /// Returns whether the key is held as a different lock type.
    pub(crate) fn is_of_other_kind(&self, whole: bool) -> bool {
        self.holders.first().is_some_and(|first| first.whole != whole)
    }

    /// Returns whether the claim is compatible with all holders of the key and with all queue
    /// entries before the claim's entry. If the claim's lease is already in force, the claim is
    /// always admitted.
    pub(crate) fn admits(&self, claim: &Acquire) -> bool {
        let before = self.before(&claim.lease.tag).map(|row| u64::from(row.units));
        let total = self.units() + before.sum::<u64>() + u64::from(claim.units);
        self.holder(&claim.lease.tag).is_some() || total <= u64::from(claim.capacity)
    }

    /// Returns when the first queue entry before the claim expires, if the claim may be admitted
    /// then.
    pub(crate) fn first_place_before(&self, claim: &Acquire) -> Option<i64> {
        if self.is_held() && claim.whole {
            return None;
        }
        self.before(&claim.lease.tag).map(|row| row.ends).min()
    }

    /// Returns the queue entries that fit into the free permits.
    pub(crate) fn called(&self) -> impl Iterator<Item = &Row> {
        let mut total = self.units();
        self.queue.iter().take_while(move |row| {
            total += u64::from(row.units);
            total <= u64::from(row.capacity)
        })
    }

    /// Limits the queue entries that can be granted now to their patience. Returns the entries
    /// whose expiry became earlier.
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

    /// Returns the position of the claim in the queue. A new claim gets the last position.
    pub(crate) fn place_of(&self, tag: &Uuid) -> i64 {
        let own = self.queue.iter().find(|row| row.tag == *tag);
        let last = self.queue.last().and_then(|row| row.place).unwrap_or(0);
        own.and_then(|row| row.place).unwrap_or(last + 1)
    }

    /// Returns the lease with this tag, if it is in force.
    pub(crate) fn holder(&self, tag: &Uuid) -> Option<&Row> {
        self.holders.iter().find(|row| row.tag == *tag)
    }

    pub(crate) fn holders(&self) -> &[Row] {
        &self.holders
    }

    /// Returns the time until which the revocation request to all holders applies.
    pub(crate) fn asked(&self) -> i64 {
        let of_all = self.holders.iter().map(|row| row.asked).filter(|it| *it != Row::ASKED_ALONE);
        of_all.max().unwrap_or(0)
    }

    /// Returns when the first of the rows expires.
    pub(crate) fn first_end(&self) -> Option<i64> {
        self.holders.iter().chain(&self.queue).map(|row| row.ends).min()
    }

    /// Returns the number of permits that all holders have.
    pub(crate) fn units(&self) -> u64 {
        self.holders.iter().map(|row| u64::from(row.units)).sum()
    }

    /// Returns the number of queue entries.
    pub(crate) fn waiting(&self) -> u64 {
        u64::try_from(self.queue.len()).unwrap_or(u64::MAX)
    }

    /// Returns the queue entries before the entry with this tag. If there is no such entry, returns
    /// the whole queue.
    fn before(&self, tag: &Uuid) -> impl Iterator<Item = &Row> {
        self.queue.iter().take_while(move |row| row.tag != *tag)
    }
}
