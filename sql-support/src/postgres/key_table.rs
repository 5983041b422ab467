//! The table with one row per key.

use std::collections::HashMap;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{Finding, JoinRequest, MemberStatus, StoreId};
use uuid::Uuid;

use super::statements::setup;
use super::texts::DEFAULT_SCHEMA;
use super::{RowStatements, diagnosis, texts};
use crate::call::Call;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::reading::Reading;
use crate::remembered::Remembered;
use crate::remote::table::{by_tag, member_status, nonsense, number, text, uuid};
use crate::remote::{Execute, Purged, Row, Rows, RunError, Table};
use crate::request::{List, token};
use crate::values::{FreeClaim, HeldLease, Replacement};

/// The number of writes to a row by this process, apart from acquisitions, after which its key moves to
/// a new row. Under an old snapshot, an update visits all versions of a row. Acquisitions are not
/// counted, because each acquisition is followed by another write.
const MOVE_AFTER: u32 = 256;

/// The table with one row per key, and the generations of the rows that this process uses.
#[derive(Debug)]
pub struct KeyTable {
    statements: RowStatements,
    diagnosis: String,
    known: Remembered<Known>,
    move_after: u32,
    escapes_texts: bool,
}

/// What this process knows about the row of a key.
#[derive(Clone, Copy, Debug)]
struct Known {
    generation: i64,
    /// The number of writes to this row by this process, apart from acquisitions. The first value is
    /// random unless this process has created the row, so that processes that lock a key only once also
    /// move the key.
    writes: u32,
}

impl KeyTable {
    /// Creates the statements on the tables of this layout. By default, the database's clock is used.
    /// Tests pass the expression of a different clock.
    pub fn new(layout: &Layout, clock: Option<&str>) -> Self {
        let statements = RowStatements::new(layout, clock);
        let diagnosis = layout.or_in_schema(DEFAULT_SCHEMA).fill(texts::DIAGNOSE, '"');
        let diagnosis = diagnosis.replace("$CLOCK", clock.unwrap_or(RowStatements::CLOCK));
        Self {
            statements,
            diagnosis,
            known: Remembered::default(),
            move_after: MOVE_AFTER,
            escapes_texts: false,
        }
    }

    /// Moves a key after fewer writes, for tests.
    #[must_use]
    pub fn with_moves_after(mut self, writes: u32) -> Self {
        self.move_after = writes;
        self
    }

    /// Lets the release of a lease in the simple state commit without waiting for the disk.
    #[must_use]
    pub fn with_lazy_releases(mut self) -> Self {
        self.statements = self.statements.with_lazy_releases();
        self
    }

    /// Escapes all characters outside ASCII, for a database whose encoding may lack these characters.
    #[must_use]
    pub fn with_escaped_texts(mut self) -> Self {
        self.escapes_texts = true;
        self
    }

    /// Returns the largest token of a grant and the number of its spare tokens, from a row that
    /// [`RowStatements::acquire`] returned. If a token is not above the minimum token that was read after
    /// the grant, raises it.
    ///
    /// Returns `None` if the row does not contain the grant any more. The key may have moved to another
    /// row, which may still contain the grant. If a statement fails, the outcome is unknown, because
    /// the grant is already committed.
    async fn above_minimum(
        &self,
        run: &dyn Execute,
        claim: &FreeClaim<'_>,
        generation: i64,
        mut row: Row,
    ) -> Result<Option<(i64, i64)>, RunError> {
        loop {
            let [token, spare, min_token] = [1, 2, 3].map(|column| number(&row, column));
            let (token, spare, min_token) = (token?, spare?, min_token?);
            if token - spare > min_token {
                return Ok(Some((token, spare)));
            }
            let FreeClaim { key, tag, ttl, description, .. } = *claim;
            let lease = HeldLease { key, generation, tag, ttl, description };
            let raise = self.statements.raise(&lease, token, min_token);
            let mut raised = run.execute(&raise).await.map_err(RunError::after_grant)?;
            match raised.rows.pop() {
                Some(raised) => row = raised,
                None => return Ok(None),
            }
        }
    }

    /// Counts a write to each of these rows. If there were many, moves one of the keys, so that a renewal
    /// of many leases does not wait for as many moves. The writes remain if the key cannot be moved.
    async fn count_writes<'a>(
        &self,
        run: &dyn Execute,
        rows: impl Iterator<Item = (&'a str, i64)> + Send,
    ) {
        let mut due = None;
        for (key, generation) in rows {
            self.known.update(key, |known| {
                let mut known = known?;
                if known.generation == generation {
                    known.writes += 1;
                    due =
                        if known.writes >= self.move_after { Some((key, generation)) } else { due };
                }
                Some(known)
            });
        }
        let Some((key, generation)) = due else { return };
        if let Err(error) = self.move_key(run, key, generation).await {
            tracing::debug!(%error, "a key was not moved to a new row");
        }
    }

    async fn move_key(
        &self,
        run: &dyn Execute,
        key: &str,
        generation: i64,
    ) -> Result<(), RunError> {
        let moved = run.execute(&self.statements.move_key(key, generation)).await?;
        match moved.rows.first() {
            Some(row) => {
                let generation = number(row, 0)?;
                self.known.update(key, |_| Some(Known { generation, writes: 0 }));
            }
            // Another client has moved the key or is using its row. The next read finds the row.
            None => self.known.update(key, |_| None),
        }
        Ok(())
    }

    /// Remembers a row that this process has used. Another call may have found a newer row in the
    /// meantime.
    fn remember(&self, key: &str, generation: i64) {
        self.known.update(key, |known| match known {
            Some(known) if known.generation >= generation => Some(known),
            _ => self.found(generation),
        });
    }

    fn found(&self, generation: i64) -> Option<Known> {
        Some(Known { generation, writes: fastrand::u32(..self.move_after) })
    }

    fn generation(&self, key: &str) -> Option<i64> {
        self.known.get(key).map(|known| known.generation)
    }
}

#[async_trait]
impl Table for KeyTable {
    fn escapes_texts(&self) -> bool {
        self.escapes_texts
    }

    fn diagnose(&self) -> Call {
        setup(self.diagnosis.clone())
    }

    fn findings(&self, rows: &Rows) -> Result<Vec<Finding>, Error> {
        diagnosis::findings(rows)
    }

    fn max_together(&self) -> usize {
        64
    }

    async fn acquire_free(
        &self,
        run: &dyn Execute,
        claims: &[FreeClaim<'_>],
    ) -> Result<Vec<Result<Option<(i64, i64)>, RunError>>, RunError> {
        let (mut known, mut new) = (Vec::new(), Vec::new());
        for claim in claims {
            match self.generation(claim.key) {
                Some(generation) => known.push((*claim, generation)),
                None => new.push((*claim, 0)),
            }
        }
        let mut granted = HashMap::with_capacity(claims.len());
        for (located, is_known) in [(known, true), (new, false)] {
            let call = match located[..] {
                [] => continue,
                [(claim, generation)] if is_known => self.statements.acquire(&claim, generation),
                _ if is_known => self.statements.acquire_all(&located),
                _ => {
                    let claims: Vec<_> = located.iter().map(|(claim, _)| *claim).collect();
                    self.statements.acquire_any(&claims)
                }
            };
            let mut rows = match run.execute(&call).await {
                Ok(reply) => by_tag(reply.rows)?,
                Err(error)
                    if located.len() == claims.len() || error.may_come_from_one_request() =>
                {
                    return Err(error);
                }
                Err(error) => {
                    let failed =
                        |(claim, _): &(FreeClaim<'_>, _)| (claim.tag, Err(error.repeated()));
                    granted.extend(located.iter().map(failed));
                    continue;
                }
            };
            for (claim, generation) in located {
                let Some(row) = rows.remove(&claim.tag) else { continue };
                self.remember(claim.key, generation);
                let tokens = self.above_minimum(run, &claim, generation, row).await;
                granted.insert(claim.tag, tokens);
            }
        }
        let replies = claims.iter().map(|claim| granted.remove(&claim.tag).unwrap_or(Ok(None)));
        Ok(replies.collect())
    }

    async fn release_simple(
        &self,
        run: &dyn Execute,
        leases: &[(&str, Uuid)],
    ) -> Result<Vec<Option<bool>>, RunError> {
        let located: Vec<_> = leases
            .iter()
            .map(|(key, tag)| (*key, self.generation(key).unwrap_or(0), *tag))
            .collect();
        let call = match located[..] {
            [(key, generation, tag)] => self.statements.release(key, generation, tag),
            _ => self.statements.release_all(&located),
        };
        let mut released = by_tag(run.execute(&call).await?.rows)?;
        let rows = located.iter().filter(|(_, _, tag)| released.contains_key(tag));
        self.count_writes(run, rows.map(|(key, generation, _)| (*key, *generation))).await;
        let mut was_held = |tag| released.remove(tag).map(|row| flag(&row, 1)).transpose();
        leases.iter().map(|(_, tag)| was_held(tag)).collect()
    }

    async fn renew_simple(
        &self,
        run: &dyn Execute,
        leases: &[HeldLease<'_>],
    ) -> Result<Vec<bool>, RunError> {
        let located = |lease: &HeldLease<'_>| self.generation(lease.key).unwrap_or(0);
        let leases: Vec<_> =
            leases.iter().map(|lease| HeldLease { generation: located(lease), ..*lease }).collect();
        let reply = run.execute(&self.statements.renew(&leases)).await?;
        let renewed_tags = by_tag(reply.rows)?;
        let renewed = leases.iter().filter(|lease| renewed_tags.contains_key(&lease.tag));
        self.count_writes(run, renewed.map(|lease| (lease.key, lease.generation))).await;
        Ok(leases.iter().map(|lease| renewed_tags.contains_key(&lease.tag)).collect())
    }

    async fn read(&self, run: &dyn Execute, keys: &[&str]) -> Result<Vec<Reading>, RunError> {
        let reply = run.execute(&self.statements.read(keys)).await?;
        let readings: Option<Vec<_>> = reply.rows.iter().map(|row| Reading::of(row)).collect();
        let mut readings = readings.ok_or_else(nonsense)?;
        let position = |reading: &Reading| keys.iter().position(|key| *key == reading.key);
        readings.sort_by_key(position);
        if readings.len() != keys.len() {
            return Err(nonsense());
        }
        for reading in &readings {
            match reading.row {
                // A purge may have deleted the rows of the known generation.
                Some(_) => self.known.update(&reading.key, |known| {
                    let is_same = |known: &Known| known.generation == reading.generation;
                    known.filter(is_same).or_else(|| self.found(reading.generation))
                }),
                None => self.known.update(&reading.key, |_| None),
            }
        }
        Ok(readings)
    }

    async fn create(&self, run: &dyn Execute, keys: &[&str]) -> Result<(), RunError> {
        let ends: Vec<_> = keys.iter().map(|_| -fastrand::i64(1..i64::MAX / 2)).collect();
        run.execute(&self.statements.create(keys, &ends)).await.map(drop)
    }

    async fn swap(
        &self,
        run: &dyn Execute,
        replacements: &[Replacement<'_>],
        membership: Option<&str>,
        news: &[String],
    ) -> Result<bool, RunError> {
        let swap = async |news| {
            let call = match replacements {
                [one] => self.statements.swap(one, membership, news),
                all => self.statements.swap_all(all, news),
            };
            run.execute(&call).await
        };
        let reply = match swap(news).await {
            // Without a notification, waiters poll.
            Err(error) if error.failure() == Failure::QueueFull => swap(&[]).await,
            reply => reply,
        };
        if reply?.rows.len() != replacements.len() {
            return Ok(false);
        }
        self.count_writes(run, replacements.iter().map(|one| (one.key, one.generation))).await;
        Ok(true)
    }

    async fn list(&self, run: &dyn Execute, list: &List) -> Result<Vec<String>, RunError> {
        let count = i64::try_from(List::KEYS).expect("a page is small");
        let call = self.statements.list(&list.from, &list.after, &list.to, count);
        let reply = run.execute(&call).await?;
        reply.rows.iter().map(|row| text(row, 0)?.ok_or_else(nonsense)).collect()
    }

    async fn purge(&self, run: &dyn Execute, after: &str, age: i64) -> Result<Purged, RunError> {
        let reply = run.execute(&self.statements.purge(after, age)).await?;
        let row = reply.rows.last().ok_or_else(nonsense)?;
        let rows = number(row, 1)?.try_into().map_err(|_| nonsense())?;
        Ok(Purged { last: text(row, 0)?, rows })
    }

    async fn is_member(&self, run: &dyn Execute, configuration: &str) -> Result<bool, RunError> {
        let reply = run.execute(&self.statements.is_member(configuration)).await?;
        Ok(!reply.rows.is_empty())
    }

    async fn member_status(
        &self,
        run: &dyn Execute,
        fresh: StoreId,
        request: Option<&JoinRequest>,
    ) -> Result<MemberStatus, RunError> {
        let status = self.statements.member_status(uuid(fresh));
        let mut reply = run.execute(&status).await?;
        if let Some(request) = request {
            let (store, configuration) = (uuid(request.store()), request.configuration());
            let min_token = token(request.min_token());
            let join = self.statements.join(store, configuration.as_str(), min_token);
            run.execute(&join).await?;
            reply = run.execute(&status).await?;
        }
        member_status(reply.rows.last().map(Vec::as_slice))
    }
}

fn flag(row: &[Option<String>], column: usize) -> Result<bool, RunError> {
    match text(row, column)?.as_deref() {
        Some("t") => Ok(true),
        Some("f") => Ok(false),
        _ => Err(nonsense()),
    }
}
