//! The table with one row per key.

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{Finding, JoinRequest, MemberStatus, StoreId};
use uuid::Uuid;

use super::statements::setup;
use super::{RowStatements, diagnosis, texts};
use crate::call::{Call, bind};
use crate::failure::Failure;
use crate::layout::Layout;
use crate::reading::Reading;
use crate::remembered::Remembered;
use crate::remote::table::{by_tag, member_status, no_min_token, nonsense, number, text, uuid};
use crate::remote::{Execute, Purged, Row, Rows, RunError, Table};
use crate::request::{List, token};
use crate::values::{FreeClaim, HeldLease, Replacement};

/// The column of the minimum token in the reply to a read.
const MIN_TOKEN: usize = 10;

/// The table with one row per key, and the keys whose rows exist as far as this process knows.
#[derive(Debug)]
pub struct KeyTable {
    statements: RowStatements,
    clock: String,
    /// The keys whose rows exist.
    known: Remembered<()>,
    is_in_cluster: bool,
}

impl KeyTable {
    /// Creates the statements on the tables of this layout. By default, the database's clock is used.
    /// Tests pass the expression of a different clock.
    pub fn new(layout: &Layout, clock: Option<&str>) -> Self {
        let statements = RowStatements::new(layout, clock);
        let clock = clock.unwrap_or(RowStatements::CLOCK).to_owned();
        Self { statements, clock, known: Remembered::default(), is_in_cluster: false }
    }

    /// Sends each acquisition and release alone, because a Galera cluster may not report that it has
    /// aborted a transaction of several statements.
    #[must_use]
    pub fn in_cluster(self, is_in_cluster: bool) -> Self {
        Self { is_in_cluster, ..self }
    }

    /// Renews leases with the same TTL. Skips rows that another transaction has locked, unless there is
    /// only one lease.
    async fn renew_group(
        &self,
        run: &dyn Execute,
        leases: &[HeldLease<'_>],
    ) -> Result<Vec<bool>, RunError> {
        let mut renewed = vec![true; leases.len()];
        let mut unlocked = leases.to_vec();
        if leases.len() > 1 {
            let reply = run.execute(&self.statements.unlocked(leases)).await?;
            let rows = by_tag(reply.rows)?;
            renewed = leases.iter().map(|lease| rows.contains_key(&lease.tag)).collect();
            unlocked.retain(|lease| rows.contains_key(&lease.tag));
        }
        if unlocked.is_empty() {
            return Ok(renewed);
        }
        let reply = run.execute(&self.statements.renew(&unlocked)).await?;
        if usize::try_from(reply.changed).is_ok_and(|changed| changed == unlocked.len()) {
            return Ok(renewed);
        }
        // A lease has just expired, or its row has changed. Each lease must be checked.
        Ok(vec![false; leases.len()])
    }

    async fn acquire_one(
        &self,
        run: &dyn Execute,
        claim: &FreeClaim<'_>,
    ) -> Result<Option<(i64, i64)>, RunError> {
        let call = if claim.membership.is_none() && self.known.get(claim.key).is_some() {
            self.statements.acquire(claim)
        } else {
            self.statements.acquire_any(claim)
        };
        let reply = run.execute(&call).await?;
        if reply.changed == 0 {
            return Ok(None);
        }
        self.known.update(claim.key, |_| Some(()));
        if reply.insert_id <= 0 {
            // A trigger on the table hides the insert id.
            return self.read_grant(run, claim).await.map_err(RunError::after_grant);
        }
        let token = reply.insert_id;
        Ok(Some((token, RowStatements::spare_tokens(token))))
    }

    /// Reads the tokens of a grant. Returns `None` if the row does not show the grant, because another
    /// client has queued since then.
    async fn read_grant(
        &self,
        run: &dyn Execute,
        claim: &FreeClaim<'_>,
    ) -> Result<Option<(i64, i64)>, RunError> {
        let row = self.read(run, &[claim.key]).await?.pop().and_then(|reading| reading.row);
        let row = row.filter(|row| row.tag == Some(claim.tag));
        Ok(row.map(|row| (row.token, row.spare)))
    }
}

#[async_trait]
impl Table for KeyTable {
    fn diagnose(&self) -> Call {
        setup(bind(texts::DIAGNOSE, &[("clock", self.clock.clone())]))
    }

    fn findings(&self, rows: &Rows) -> Result<Vec<Finding>, Error> {
        diagnosis::findings(rows)
    }

    fn max_together(&self) -> usize {
        if self.is_in_cluster { 1 } else { 64 }
    }

    async fn acquire_free(
        &self,
        run: &dyn Execute,
        claims: &[FreeClaim<'_>],
    ) -> Result<Vec<Result<Option<(i64, i64)>, RunError>>, RunError> {
        if let [one] = claims {
            return Ok(vec![Ok(self.acquire_one(run, one).await?)]);
        }
        let granted = by_tag(run.execute(&self.statements.acquire_all(claims)).await?.rows)?;
        let mut replies = Vec::with_capacity(claims.len());
        for claim in claims {
            let Some(row) = granted.get(&claim.tag) else {
                replies.push(Ok(None));
                continue;
            };
            self.known.update(claim.key, |_| Some(()));
            replies.push(Ok(Some((number(row, 1)?, number(row, 2)?))));
        }
        Ok(replies)
    }

    async fn release_simple(
        &self,
        run: &dyn Execute,
        leases: &[(&str, Uuid)],
    ) -> Result<Vec<Option<bool>>, RunError> {
        if let [(key, tag)] = *leases {
            let reply = run.execute(&self.statements.release(key, tag)).await?;
            // If a trigger on the table hides the insert id, the lease is assumed to have been in force.
            return Ok(vec![(reply.changed > 0).then_some(reply.insert_id != 2)]);
        }
        let mut rows = run.execute(&self.statements.release_all(leases)).await?.rows;
        rows.retain(|row| row.first().is_some_and(Option::is_some));
        let released = by_tag(rows)?;
        let was_held = |row: &Row| Ok(number(row, 1)? == 1);
        leases.iter().map(|(_, tag)| released.get(tag).map(was_held).transpose()).collect()
    }

    async fn renew_simple(
        &self,
        run: &dyn Execute,
        leases: &[HeldLease<'_>],
    ) -> Result<Vec<bool>, RunError> {
        let mut order: Vec<_> = (0..leases.len()).collect();
        order.sort_by_key(|index| leases[*index].ttl);
        let mut renewed = vec![false; leases.len()];
        for group in order.chunk_by(|a, b| leases[*a].ttl == leases[*b].ttl) {
            let group_leases: Vec<_> = group.iter().map(|index| leases[*index]).collect();
            let replies = self.renew_group(run, &group_leases).await?;
            for (index, is_renewed) in group.iter().zip(replies) {
                renewed[*index] = is_renewed;
            }
        }
        Ok(renewed)
    }

    async fn read(&self, run: &dyn Execute, keys: &[&str]) -> Result<Vec<Reading>, RunError> {
        let reply = run.execute(&self.statements.read(keys)).await?;
        if reply.rows.iter().any(|row| row.get(MIN_TOKEN).is_some_and(Option::is_none)) {
            return Err(no_min_token());
        }
        let readings: Option<Vec<_>> = reply.rows.iter().map(|row| Reading::of(row)).collect();
        let mut readings = readings.ok_or_else(nonsense)?;
        readings.sort_by_key(|reading| keys.iter().position(|key| *key == reading.key));
        if readings.len() != keys.len() {
            return Err(nonsense());
        }
        for reading in &readings {
            let exists = reading.row.as_ref().map(|_| ());
            self.known.update(&reading.key, |_| exists);
        }
        Ok(readings)
    }

    async fn create(&self, run: &dyn Execute, keys: &[&str]) -> Result<(), RunError> {
        for key in keys {
            let ends = -fastrand::i64(1..i64::MAX / 2);
            run.execute(&self.statements.create(key, ends)).await?;
        }
        Ok(())
    }

    async fn swap(
        &self,
        run: &dyn Execute,
        replacements: &[Replacement<'_>],
        membership: Option<&str>,
        _news: &[String],
    ) -> Result<bool, RunError> {
        if let [one] = replacements {
            return Ok(run.execute(&self.statements.swap(one, membership)).await?.changed == 1);
        }
        match run.execute(&self.statements.swap_all(replacements)).await {
            Ok(_) => Ok(true),
            Err(error) if error.failure() == Failure::Changed => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, run: &dyn Execute, list: &List) -> Result<Vec<String>, RunError> {
        let count = i64::try_from(List::KEYS).expect("a page is small");
        let call = self.statements.list(&list.from, &list.after, &list.to, count);
        let reply = run.execute(&call).await?;
        reply.rows.iter().map(|row| text(row, 0)?.ok_or_else(nonsense)).collect()
    }

    async fn purge(&self, run: &dyn Execute, after: &str, age: i64) -> Result<Purged, RunError> {
        run.execute(&self.statements.raise_min_token(age)).await?;
        let page = run.execute(&self.statements.purge_page(after)).await?;
        let Some(last) = text(page.rows.first().ok_or_else(nonsense)?, 0)? else {
            return Ok(Purged { last: None, rows: 0 });
        };
        let purged = run.execute(&self.statements.purge(after, &last)).await?;
        Ok(Purged { last: Some(last), rows: purged.changed })
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
        run.execute(&self.statements.give_identity(uuid(fresh))).await?;
        if let Some(request) = request {
            let (store, configuration) = (uuid(request.store()), request.configuration());
            let min_token = token(request.min_token());
            for call in self.statements.join(store, configuration.as_str(), min_token) {
                run.execute(&call).await?;
            }
        }
        let reply = run.execute(&self.statements.member_status()).await?;
        let row = reply.rows.last().map(|row| row.split_at(1));
        if row.is_some_and(|(is_durable, _)| is_durable[0].as_deref() != Some("1")) {
            let message = "the server cannot be a member of a quorum, because it may lose acknowledged commits; set innodb_flush_log_at_trx_commit and sync_binlog to 1";
            return Err(RunError::without_source(Failure::Layout, message));
        }
        member_status(row.map(|(_, status)| status))
    }
}
