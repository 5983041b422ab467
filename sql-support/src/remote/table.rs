//! The table with one row per key, on a server.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Finding, JoinRequest, MemberStatus, QuorumConfiguration, StoreId};
use leasehold_core::{Error, LockKey};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::call::Call;
use crate::failure::Failure;
use crate::reading::Reading;
use crate::remote::{Reply, Row, Rows, RunError};
use crate::request::List;
use crate::rows::{Change, Clock, State};
use crate::values::{FreeClaim, HeldLease, Replacement};

/// Executes statements.
#[async_trait]
pub trait Execute: Debug + Send + Sync {
    /// Executes a statement as a transaction of its own.
    ///
    /// # Errors
    ///
    /// Returns a [`RunError`] that states whether the server may have applied the transaction.
    async fn execute(&self, call: &Call) -> Result<Reply, RunError>;
}

/// The result of [`Table::purge`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Purged {
    /// The last key that was visited, or `None` if there was none.
    pub last: Option<String>,
    /// The number of deleted rows.
    pub rows: u64,
}

/// The statements on the table with one row per key.
///
/// [`postgres::KeyTable`](crate::postgres::KeyTable) and
/// [`mysql::KeyTable`](crate::mysql::KeyTable) implement this trait. The documentation of
/// [`rows::Database`](crate::rows::Database) describes the operations.
#[async_trait]
pub trait Table: Debug + Send + Sync + 'static {
    /// Returns the statements that read the settings that can endanger locks.
    fn diagnose(&self) -> Call;

    /// Evaluates the reply to [`diagnose`](Self::diagnose).
    fn findings(&self, rows: &Rows) -> Result<Vec<Finding>, Error>;

    /// Returns whether calls must be sent with escaped texts, because the database's encoding may lack
    /// characters.
    fn escapes_texts(&self) -> bool {
        false
    }

    /// Returns the maximum number of claims or releases in one call.
    fn max_together(&self) -> usize;

    /// Grants each whole key if nothing of its row is in force. Returns the largest token of each grant
    /// and the number of its spare tokens, or `None` for each key that was not granted. In this case,
    /// the key may be free, because rows that other transactions have locked are skipped.
    ///
    /// No two claims have the same key. If a claim belongs to a quorum, it is the only one.
    ///
    /// # Errors
    ///
    /// An error of the whole call applies to all claims.
    async fn acquire_free(
        &self,
        run: &dyn Execute,
        claims: &[FreeClaim<'_>],
    ) -> Result<Vec<Result<Option<(i64, i64)>, RunError>>, RunError>;

    /// Releases leases in the simple state, which are given by key and tag. Returns whether each lease
    /// was in force, or `None` for each lease that was not released. No two leases have the same key.
    async fn release_simple(
        &self,
        run: &dyn Execute,
        leases: &[(&str, Uuid)],
    ) -> Result<Vec<Option<bool>>, RunError>;

    /// Renews leases in the simple state. Returns whether each lease is known to be renewed.
    async fn renew_simple(
        &self,
        run: &dyn Execute,
        leases: &[HeldLease<'_>],
    ) -> Result<Vec<bool>, RunError>;

    /// Reads the rows of the keys, in the order of the keys.
    async fn read(&self, run: &dyn Execute, keys: &[&str]) -> Result<Vec<Reading>, RunError>;

    /// Creates free rows for the keys that have none.
    async fn create(&self, run: &dyn Execute, keys: &[&str]) -> Result<(), RunError>;

    /// Replaces the rows if none of them has changed, and if the database is a member of the quorum.
    /// Only a replacement of one row can require a membership. `news` are the messages for other
    /// clients.
    async fn swap(
        &self,
        run: &dyn Execute,
        replacements: &[Replacement<'_>],
        membership: Option<&str>,
        news: &[String],
    ) -> Result<bool, RunError>;

    /// Returns the keys in force.
    async fn list(&self, run: &dyn Execute, list: &List) -> Result<Vec<String>, RunError>;

    /// Deletes the rows of some keys after the key `after` that were last granted at least `age`
    /// microseconds ago and have expired.
    async fn purge(&self, run: &dyn Execute, after: &str, age: i64) -> Result<Purged, RunError>;

    /// Returns whether the database is a member of the quorum.
    async fn is_member(&self, run: &dyn Execute, configuration: &str) -> Result<bool, RunError>;

    /// Returns the membership status. Tables without an identity get the identity `fresh`. If
    /// `request` is given, the tables join the quorum first.
    async fn member_status(
        &self,
        run: &dyn Execute,
        fresh: StoreId,
        request: Option<&JoinRequest>,
    ) -> Result<MemberStatus, RunError>;
}

/// Reads rows, lets `step` change the states of their keys, and writes the changed rows if no row
/// has changed in the meantime. Otherwise, starts again.
///
/// `known` is the row of the only key, if the client knows the row already. The row is not read if
/// the only lease of the change is its only holder.
///
/// # Errors
///
/// Returns the errors of `step`, the errors of the statements, and
/// [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if other clients have changed the rows
/// until `give_up`.
pub async fn change<T, F>(
    table: &dyn Table,
    run: &dyn Execute,
    change: &Change,
    mut known: Option<Reading>,
    give_up: Instant,
    mut step: F,
) -> Result<T, Error>
where
    T: Send,
    F: FnMut(&mut [State], Clock) -> Result<T, Error> + Send,
{
    let names: Vec<_> = change.keys.iter().map(LockKey::as_str).collect();
    let membership = change.membership.as_ref().map(|membership| membership.as_str());
    let mut lost = 0;
    while Instant::now() < give_up {
        if let Some(configuration) = membership
            && !table.is_member(run, configuration).await.map_err(RunError::harmless)?
        {
            return Err(Failure::NotMember.error(Failure::NotMember.message()));
        }
        let guess = known.take();
        let is_guess = guess.is_some();
        let readings = match guess {
            Some(reading) => vec![reading],
            None => table.read(run, &names).await.map_err(RunError::harmless)?,
        };
        let now = readings.iter().map(|reading| reading.now).min().unwrap_or_default();
        let clock = Clock { now, wall: now };
        let generations: Vec<_> = readings.iter().map(|reading| reading.generation).collect();
        let state = |(key, reading): (&LockKey, Reading)| {
            State::new(key.clone(), reading.row, reading.min_token, clock)
        };
        let mut states: Vec<_> = change.keys.iter().zip(readings).map(state).collect();
        if is_guess && !change.leases.iter().all(|tag| states[0].is_held_by(tag)) {
            continue;
        }
        let done = step(&mut states, clock)?;
        let written: Vec<_> = states.iter().map(|state| state.written()).collect();
        let missing: Vec<_> = names
            .iter()
            .zip(&states)
            .zip(&written)
            .filter(|((_, state), written)| state.row().is_none() && written.is_some())
            .map(|((name, _), _)| *name)
            .collect();
        if !missing.is_empty() {
            table.create(run, &missing).await.map_err(RunError::harmless)?;
            continue;
        }
        let mut replacements = Vec::with_capacity(states.len());
        for (n, (state, row)) in states.iter().zip(&written).enumerate() {
            if let (Some(old), Some(row)) = (state.row(), row) {
                replacements.push(Replacement {
                    key: names[n],
                    generation: generations[n],
                    old_token: old.token,
                    old_ends: old.ends,
                    told: old.document.as_deref().filter(|_| is_guess).map(|text| (text, now)),
                    row,
                });
            }
        }
        // All transactions lock rows in the same order.
        replacements.sort_unstable_by_key(|replacement| replacement.key);
        let mut news: Vec<_> = states.iter().flat_map(State::messages).collect();
        let told = states.iter().zip(&written).zip(&generations);
        news.extend(told.filter_map(|((state, row), generation)| {
            state.message_to_holder(row.as_ref()?, *generation, clock)
        }));
        if replacements.is_empty() || table.swap(run, &replacements, membership, &news).await? {
            return Ok(done);
        }
        // The first retry is immediate.
        if lost > 0 {
            sleep(Duration::from_micros(fastrand::u64(..1_000 * lost))).await;
        }
        lost += 1;
    }
    Err(Failure::NotApplied.error("other clients changed the lock all the time"))
}

/// Reads the identity, the configuration, the last token and the age of the data.
pub(crate) fn member_status(row: Option<&[Option<String>]>) -> Result<MemberStatus, RunError> {
    let row = row.ok_or_else(|| {
        let message = "the row of the quorum member is missing; run the statements that `leasehold tables` prints";
        RunError::without_source(Failure::Layout, message)
    })?;
    let store = text(row, 0)?.as_deref().and_then(StoreId::parse).ok_or_else(nonsense)?;
    let configuration = text(row, 1)?.map(|text| QuorumConfiguration::from_text(&text));
    if text(row, 2)?.is_none() {
        return Err(no_min_token());
    }
    let min_token = number(row, 2)?.try_into().map_err(|_| nonsense())?;
    let age = Duration::from_micros(number(row, 3)?.try_into().unwrap_or_default());
    let status = MemberStatus::new(store).with_configuration(configuration);
    Ok(status.with_min_token(min_token).with_age(age))
}

/// Returns the identity of a store in the form that statements take.
pub(crate) fn uuid(store: StoreId) -> Uuid {
    Uuid::parse_str(&store.to_string()).expect("the identity of a store is a UUID")
}

/// Returns the rows by the tags in their first column.
pub(crate) fn by_tag(rows: Vec<Row>) -> Result<HashMap<Uuid, Row>, RunError> {
    let tag = |row: &Row| row.first()?.as_deref()?.parse().ok();
    rows.into_iter().map(|row| Some((tag(&row)?, row))).collect::<Option<_>>().ok_or_else(nonsense)
}

pub(crate) fn number(row: &[Option<String>], column: usize) -> Result<i64, RunError> {
    let text = text(row, column)?.ok_or_else(nonsense)?;
    text.parse().map_err(|_| nonsense())
}

pub(crate) fn text(row: &[Option<String>], column: usize) -> Result<Option<String>, RunError> {
    row.get(column).cloned().ok_or_else(nonsense)
}

pub(crate) fn nonsense() -> RunError {
    let message = "the reply does not match the request";
    RunError::new(Failure::Unexpected, message, "unexpected columns")
}

/// Returns the error of MySQL for an empty table of the minimum token.
pub(crate) fn no_min_token() -> RunError {
    let message = "a row is missing from the table leasehold_min_token; run the statements that `leasehold tables` prints";
    RunError::without_source(Failure::Layout, message)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use leasehold_core::backend::{Claim, Lease, Patience, Release, unpoisoned};
    use leasehold_entry::Tag;

    use super::*;
    use crate::layout::Layout;
    use crate::postgres::KeyTable;
    use crate::remote::Urgency;

    const TTL: Duration = Duration::from_secs(60);

    /// Returns prepared replies, and records whether each statement reads or writes.
    #[derive(Debug)]
    struct Scripted {
        replies: Mutex<VecDeque<Vec<Row>>>,
        reads: Mutex<Vec<bool>>,
    }

    #[async_trait]
    impl Execute for Scripted {
        async fn execute(&self, call: &Call) -> Result<Reply, RunError> {
            unpoisoned(&self.reads).push(call.text().contains("LEFT JOIN LATERAL"));
            let rows = unpoisoned(&self.replies).pop_front().expect("a statement is expected");
            Ok(Reply { rows, ..Reply::default() })
        }
    }

    fn claim() -> Claim {
        let key = LockKey::new("job").unwrap();
        Claim::new(Lease::new(&key, TTL)).with_patience(Patience::Waits)
    }

    fn clock(now: i64) -> Clock {
        Clock { now, wall: now }
    }

    /// Returns the message about a claim that is queued behind `held`.
    fn told(held: &Claim) -> Reading {
        let mut row = None;
        let mut message = None;
        for claim in [held, &claim()] {
            let mut state = State::new(held.key().clone(), row, 0, clock(1));
            let tokens = state.tokens(0, clock(1));
            state.entry().unwrap().acquire(Tag::of(&claim.id()), claim, tokens, 1).unwrap();
            row = state.written();
            message = state.message_to_holder(row.as_ref().unwrap(), 3, clock(1));
        }
        Reading::told(message.unwrap().strip_prefix('q').unwrap()).unwrap()
    }

    /// Releases a lease whose row is `known`. Returns the reply and which statements read.
    async fn release(held: &Claim, known: Reading, replies: &[&[Row]]) -> (Release, Vec<bool>) {
        let tag = Tag::of(&held.id());
        let request = Change {
            keys: vec![held.key().clone()],
            leases: vec![tag.id],
            membership: None,
            urgency: Urgency::Releases,
        };
        let replies = Mutex::new(replies.iter().map(|rows| rows.to_vec()).collect());
        let run = Scripted { replies, reads: Mutex::default() };
        let release = |states: &mut [State], clock: Clock| {
            Ok(states[0].entry()?.release(&tag, clock.now).reply)
        };
        let table = KeyTable::new(&Layout::default(), None);
        let give_up = Instant::now() + TTL;
        let released = change(&table, &run, &request, Some(known), give_up, release).await;
        (released.unwrap(), unpoisoned(&run.reads).clone())
    }

    fn row(columns: &[&str]) -> Row {
        columns.iter().map(|text| (!text.is_empty()).then(|| (*text).to_owned())).collect()
    }

    #[tokio::test]
    async fn a_known_row_is_released_without_a_read() {
        let held = claim();

        let released = release(&held, told(&held), &[&[row(&["job", "1"])]]).await;

        assert_eq!(released, (Release::Released, vec![false]));
    }

    #[tokio::test]
    async fn a_row_that_has_changed_since_is_read() {
        let free = [row(&["job", "3", "9", "0", "", "-1", "", "", "", "", "0", "2"])];
        let held = claim();

        let changed = release(&held, told(&held), &[&[], &free]).await;
        let of_another = release(&held, told(&claim()), &[&free]).await;

        assert_eq!(changed, (Release::NotHeld, vec![false, true]));
        assert_eq!(of_another, (Release::NotHeld, vec![true]));
    }
}
