//! Reads holders, waiters and the remaining time of leases from the store.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use futures_util::future::join_all;
use leasehold_core::backend::{Claim, Contention, Inspection, KeyPage, Lease};
use leasehold_core::{Error, ErrorKind, Holder, LockKey};

use super::EtcdBackend;
use crate::entry::{Entry, SPARE_TOKENS, token};
use crate::error::Failure;
use crate::layout::{Range, tag};
use crate::queue::Queue;
use crate::session;

/// The number of entries that are read for one page of a list.
const ENTRIES_PER_PAGE: i64 = 512;

/// The maximum number of waiters in an inspection. The limit exceeds what fits on a screen, and
/// keeps the reply short.
const LISTED: usize = 128;

/// The maximum number of leases whose remaining time is requested after an attempt that was not
/// granted. The remaining time is only a hint, and a semaphore may have many holders.
const LEASES_OF_A_HINT: usize = 16;

impl Range {
    /// Returns an operation that reads all keys in the range.
    pub(super) fn get(&self) -> TxnOp {
        TxnOp::get(self.start.as_str(), Some(GetOptions::new().with_range(self.end.as_str())))
    }

    /// Returns the condition that the range is empty.
    pub(super) fn is_empty(&self) -> Compare {
        Compare::create_revision(self.start.as_str(), CompareOp::Equal, 0)
            .with_range(self.end.as_str())
    }

    /// Returns the condition that no entry was created before the revision `created`.
    pub(super) fn has_come_since(&self, created: i64) -> Compare {
        Compare::create_revision(self.start.as_str(), CompareOp::Greater, created - 1)
            .with_range(self.end.as_str())
    }

    /// Returns the condition that all values are greater than `value`.
    pub(super) fn has_values_above(&self, value: &str) -> Compare {
        Compare::value(self.start.as_str(), CompareOp::Greater, value).with_range(self.end.as_str())
    }

    /// Returns the condition that no entry was created after `revision`.
    pub(super) fn has_no_arrival_since(&self, revision: i64) -> Compare {
        Compare::create_revision(self.start.as_str(), CompareOp::Less, revision + 1)
            .with_range(self.end.as_str())
    }

    /// Returns the condition that no entry was created or changed after `revision`. Entries may
    /// have been deleted.
    pub(super) fn is_as_at(&self, revision: i64) -> Compare {
        Compare::mod_revision(self.start.as_str(), CompareOp::Less, revision + 1)
            .with_range(self.end.as_str())
    }
}

impl EtcdBackend {
    /// Returns all holders and waiters of these locks at one revision.
    pub(super) async fn look(&self, ranges: &[&Range]) -> Result<Vec<Queue>, Failure> {
        let reads: Vec<TxnOp> = ranges.iter().map(|range| range.get()).collect();
        queues(ranges, &self.read(reads).await?)
    }

    /// Sends a transaction that changes nothing.
    pub(super) async fn read(&self, operations: Vec<TxnOp>) -> Result<TxnResponse, Failure> {
        let txn = Txn::new().and_then(operations);
        self.connection.txn(txn).await
    }

    /// Returns the remaining time of these etcd leases. Leases whose remaining time cannot be read
    /// are omitted.
    pub(super) async fn left(
        &self,
        leases: impl IntoIterator<Item = i64>,
    ) -> Result<HashMap<i64, Duration>, Failure> {
        let mut leases: Vec<i64> = leases.into_iter().filter(|lease| *lease != 0).collect();
        leases.sort_unstable();
        leases.dedup();
        let left = leases.iter().map(|lease| session::left(&self.connection, *lease));
        let mut known = HashMap::new();
        for (lease, left) in leases.iter().zip(join_all(left).await) {
            // A lease that has just expired has a remaining time of zero.
            known.insert(*lease, left?.unwrap_or_default());
        }
        Ok(known)
    }

    /// Describes the holders and the waiters ahead of a claim. Details that cannot be read are
    /// omitted.
    pub(super) async fn contention(&self, queue: &Queue, claim: &Claim, tag: &str) -> Contention {
        let leases =
            queue.holders().chain(queue.places_in_the_way(claim, tag)).map(|entry| entry.lease);
        let left = self.left(leases.take(LEASES_OF_A_HINT)).await.unwrap_or_default();
        let holder = queue.holders().min_by_key(|holder| ends(holder, &left));
        let place =
            queue.places_in_the_way(claim, tag).filter_map(|place| left.get(&place.lease)).min();
        let mut contention = Contention::new();
        if let Some(holder) = holder {
            contention = contention.with_holder(described(holder, &left));
        }
        match place {
            Some(left) => contention.with_retry_after(*left),
            None => contention,
        }
    }

    /// Returns the holders of `key`.
    pub(super) async fn describe(&self, key: &LockKey) -> Result<Inspection, Failure> {
        let queue = self.queue(key).await?;
        let left = self.left(queue.holders().map(|holder| holder.lease)).await?;
        let mut holders: Vec<&Entry> = queue.holders().collect();
        holders.sort_by_key(|holder| ends(holder, &left));
        // While a mutex is held, a newer grant cannot exist.
        let newest = match holders[..] {
            [holder] if holder.mode.is_mutex() => holder.granted,
            _ => queue.revision,
        };
        let waiting = u64::try_from(queue.waiters().count()).unwrap_or(u64::MAX);
        let waiters = queue.waiters().take(LISTED).map(Entry::waiter).collect();
        let inspection = Inspection::free()
            .with_last_token(Some(token(newest) + u64::from(SPARE_TOKENS)))
            .with_queue(waiting, waiters);
        let holders = holders.into_iter().map(|holder| described(holder, &left));
        Ok(holders.fold(inspection, Inspection::with_holder))
    }

    /// Returns one page of the locks that have holders or waiters.
    /// [`list`](leasehold_core::backend::LockBackend::list) defines the page.
    pub(super) async fn names(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<KeyPage, Failure> {
        let range = self.layout.names(prefix, after);
        let ask = |client: &Client| {
            let (mut keys, start) = (client.kv_client(), range.start.clone());
            let options = GetOptions::new().with_range(range.end.clone()).with_keys_only();
            let options = options.with_limit(ENTRIES_PER_PAGE);
            async move { keys.get(start, Some(options)).await }
        };
        let found = self.connection.call(ask).await?;
        let mut entries = found.kvs().iter().filter_map(|kv| kv.key_str().ok());
        let mut locks: Vec<LockKey> =
            entries.clone().filter_map(|it| self.layout.lock_of(it)).collect();
        // The client's part of an entry key may look like the beginning of a different lock's name.
        locks.retain(|lock| lock.as_str().starts_with(prefix));
        locks.sort_unstable();
        locks.dedup();
        let next = entries.next_back().filter(|_| found.more()).map(str::to_owned);
        Ok(KeyPage::new(locks).with_next(next))
    }

    /// Returns the key of a lease's entry, if the entry exists. A different client may have created
    /// the entry.
    pub(super) async fn locate(&self, lease: &Lease) -> Result<Option<String>, Failure> {
        if let Some(entry) = self.slots.find(&self.layout, lease) {
            return Ok(Some(entry));
        }
        let queue = self.queue(lease.key()).await?;
        let found = queue.entry(&tag(lease)).map(|entry| entry.key.clone());
        Ok(found.and_then(|key| String::from_utf8(key).ok()))
    }

    /// Returns all holders and waiters of `key`.
    pub(super) async fn queue(&self, key: &LockKey) -> Result<Queue, Failure> {
        let queues = self.look(&[&self.layout.range(key)]).await?;
        Ok(queues.into_iter().next().expect("one queue for one range"))
    }
}

/// Returns the remaining time of a holder's lease. Leases that never expire are sorted last.
fn ends(holder: &Entry, left: &HashMap<i64, Duration>) -> Duration {
    left.get(&holder.lease).copied().unwrap_or(Duration::MAX)
}

pub(super) fn described(holder: &Entry, left: &HashMap<i64, Duration>) -> Holder {
    holder.holder().with_remaining(left.get(&holder.lease).copied())
}

/// Returns the queues from the reply of a transaction that has only read queues.
pub(super) fn queues(ranges: &[&Range], reply: &TxnResponse) -> Result<Vec<Queue>, Failure> {
    let revision = revision(reply)?;
    let found = reply.op_responses();
    let queues: Vec<Queue> = ranges
        .iter()
        .zip(found.iter().filter_map(got))
        .map(|(range, found)| Queue::new(range, found, revision))
        .collect();
    if queues.len() == ranges.len() { Ok(queues) } else { Err(senseless()) }
}

pub(super) fn got(response: &TxnOpResponse) -> Option<&GetResponse> {
    match response {
        TxnOpResponse::Get(found) => Some(found),
        _ => None,
    }
}

/// Returns the store's revision after a transaction.
pub(super) fn revision(reply: &TxnResponse) -> Result<i64, Failure> {
    reply.header().map(etcd_client::ResponseHeader::revision).ok_or_else(senseless)
}

pub(super) fn senseless() -> Failure {
    let message = "the reply is malformed, so the outcome is unknown";
    Failure::Final(Error::new(ErrorKind::Unexpected, message))
}
