//! Releases and revokes leases, and requests revocations.

use std::mem;
use std::str;
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, DeleteResponse, KeyValue, PutOptions, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};
use leasehold_core::backend::{Fingerprint, ForcedRelease, Lease, Release, Revocation, Tenure};
use leasehold_core::{Error, ErrorKind, LockKey};

use super::EtcdBackend;
use super::attachment::put;
use super::look::{described, got, revision, senseless};
use crate::batch::{Change, Changed};
use crate::entry::{self, Entry, State};
use crate::error::Failure;
use crate::late_entries::MARKED_FOR;
use crate::layout::tag;
use crate::session::{self, Use};

/// The maximum number of concurrent changes to the queue during one operation.
const MAX_TRIES: usize = 16;

/// The maximum number of entries that one transaction changes. The server's default limit is 128
/// operations per transaction.
const CHANGED_TOGETHER: usize = 120;

impl EtcdBackend {
    /// Deletes the entry of a holder or a waiter.
    pub(super) async fn end(&self, lease: &Lease) -> Result<Release, Failure> {
        let mut releasing = Releasing { backend: self, lease, done: false };
        let released = match self.delete(lease).await {
            // The session of the mark had expired, so nothing was applied.
            Err(Failure::LeaseGone(_)) => self.delete(lease).await,
            released => released,
        };
        releasing.done = released.is_ok();
        released
    }

    async fn delete(&self, lease: &Lease) -> Result<Release, Failure> {
        if let Some((entry, created)) = self.slots.granted(&self.layout, lease)
            && !self.late_entries.concern(lease)
            && self.delete_granted(&entry, created, lease).await?
        {
            return Ok(Release::Released);
        }
        let Some(entry) = self.locate(lease).await? else {
            self.abandon(lease);
            return Ok(Release::NotHeld);
        };
        let in_doubt = self.late_entries.concern(lease);
        let ended = self.delete_at(&entry, lease).await?;
        let mut was_held = ended == Some(State::Held);
        if in_doubt || ended.is_none() {
            let others = self.delete_others(lease).await;
            let message =
                "one entry of the lease was deleted, but a follow-up request was not applied";
            was_held |= match ended {
                Some(_) => others.map_err(|failure| failure.after(message))?,
                None => others?,
            };
        }
        Ok(if was_held { Release::Released } else { Release::NotHeld })
    }

    /// Deletes all entries of a lease, including entries with unexpected keys. Returns whether one
    /// of these entries held the lock. Additional entries exist if a different client has sent the
    /// same claim, or if a late request has created a queue entry in addition to the granted entry.
    async fn delete_others(&self, lease: &Lease) -> Result<bool, Failure> {
        let mut was_held = false;
        for other in self.queue(lease.key()).await?.entries_of(&tag(lease)) {
            if let Ok(entry) = str::from_utf8(&other.key) {
                was_held |= self.delete_at(entry, lease).await? == Some(State::Held);
            }
        }
        Ok(was_held)
    }

    /// Deletes the entry of a lease if the grant was confirmed and the entry still exists.
    ///
    /// The revision at which the entry was created is sufficient to identify it, and comparing it
    /// costs the server hardly more than finding the key.
    async fn delete_granted(
        &self,
        entry: &str,
        created: i64,
        lease: &Lease,
    ) -> Result<bool, Failure> {
        let is_own = Compare::create_revision(entry, CompareOp::Equal, created);
        let is_fixed = lease.tenure() == Tenure::Fixed;
        // The reply to a batch does not contain the previous values.
        let change = || {
            let (key, when) = (lease.key().clone(), vec![is_own.clone()]);
            let then = vec![TxnOp::delete(entry, None)];
            (!is_fixed).then_some(Change { key, is_release: true, when, then })
        };
        let alone = match self.batches.change(change).await? {
            Changed::Applied(_) => {
                self.slots.free(lease);
                return Ok(true);
            }
            Changed::Refused => return Ok(false),
            Changed::Alone(alone) => alone,
        };
        let options = is_fixed.then(|| DeleteOptions::new().with_prev_key());
        let txn = Txn::new().when([is_own]).and_then([TxnOp::delete(entry, options)]);
        let reply = self.connection.txn(txn).await?;
        drop(alone);
        if !reply.succeeded() {
            return Ok(false);
        }
        self.slots.free(lease);
        if is_fixed && let Some(own) = deleted(&reply).as_ref().and_then(|d| d.prev_kvs().first()) {
            self.drop_lease(own.lease()).await;
        }
        Ok(true)
    }

    /// Deletes the entry of a lease at this key, and returns its former state.
    async fn delete_at(&self, entry: &str, lease: &Lease) -> Result<Option<State>, Failure> {
        let (is_held, is_queued) = (entry::is_held(entry, lease), entry::is_queued(entry, lease));
        let delete = TxnOp::delete(entry, Some(DeleteOptions::new().with_prev_key()));
        let marks = self.marks_if_in_doubt(lease).await?;
        let in_doubt = marks.is_some();
        let txn = |marks: Option<i64>| {
            let mark = marks.map(|id| put(self.layout.mark(lease), String::new(), id));
            // The key may now belong to a different lease.
            let leave = Txn::new().when(is_queued.clone()).and_then([delete.clone()]);
            let with =
                |operation: TxnOp| [operation].into_iter().chain(mark.clone()).collect::<Vec<_>>();
            Txn::new()
                .when(is_held.clone())
                .and_then(with(delete.clone()))
                .or_else(with(TxnOp::txn(leave)))
        };
        let reply = match self.attach(marks.as_slice(), txn(marks)).await {
            // The server has no space left, so a late request cannot create an entry either.
            Err(Failure::Final(error)) if in_doubt && error.kind() == ErrorKind::Refused => {
                self.connection.txn(txn(None)).await?
            }
            reply => reply?,
        };
        self.late_entries.forget(lease);
        self.slots.free(lease);

        let deleted = deleted(&reply);
        let Some(own) = deleted.as_ref().and_then(|deleted| deleted.prev_kvs().first()) else {
            return Ok(None);
        };
        if lease.tenure() == Tenure::Fixed {
            if in_doubt {
                // A late entry may still be attached to this etcd lease.
                self.end_lease(own.lease()).await;
            } else {
                self.drop_lease(own.lease()).await;
            }
        }
        Ok(Some(if reply.succeeded() { State::Held } else { State::Queued }))
    }

    /// Returns the session for a mark if a late request may still create the entry of this lease.
    /// Returns `None` if a mark is not necessary, or if the server has no space for it.
    async fn marks_if_in_doubt(&self, lease: &Lease) -> Result<Option<i64>, Failure> {
        if !self.late_entries.concern(lease) {
            return Ok(None);
        }
        match self.sessions.current(&self.connection, Use::Marks, MARKED_FOR).await {
            Ok(session) => Ok(Some(session.id)),
            Err(Failure::Final(error)) if error.kind() == ErrorKind::Refused => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Revokes one lease on `key`, or all leases.
    pub(super) async fn end_forcibly(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Failure> {
        let mut forced = ForcedRelease::new();
        match self.end_each(key, only, &mut forced).await {
            Ok(()) => Ok(forced),
            Err(failure) if forced.ended().is_empty() => Err(failure),
            Err(failure) => Err(failure.after("only some of the leases were released")),
        }
    }

    /// Revokes one lease on `key` or all leases, in batches, and records the holders.
    async fn end_each(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
        forced: &mut ForcedRelease,
    ) -> Result<(), Failure> {
        let (mut failures, mut asked_at) = (0, None);
        while failures < MAX_TRIES {
            let queue = self.queue(key).await?;
            // Later holders have larger tokens and are not affected.
            let asked_at = *asked_at.get_or_insert(queue.revision);
            let is_meant = |holder: &&Entry| {
                holder.created <= asked_at && only.is_none_or(|only| holder.fingerprint == only)
            };
            let holders: Vec<&Entry> = queue.holders().filter(is_meant).collect();
            let together = &holders[..holders.len().min(CHANGED_TOGETHER)];
            if together.is_empty() {
                return Ok(());
            }
            let left = self.left(together.iter().map(|holder| holder.lease)).await?;
            let unchanged = together.iter().map(|holder| {
                Compare::mod_revision(holder.key.as_slice(), CompareOp::Equal, holder.modified)
            });
            let deletes = together.iter().map(|holder| TxnOp::delete(holder.key.as_slice(), None));
            let txn = Txn::new()
                .when(unchanged.collect::<Vec<_>>())
                .and_then(deletes.collect::<Vec<_>>());
            let reply = self.connection.txn(txn).await?;
            if !reply.succeeded() {
                failures += 1;
                continue;
            }
            let ended = together.iter().map(|holder| described(holder, &left));
            *forced = ended.fold(mem::take(forced), ForcedRelease::with_ended);
            if only.is_none() || queue.holders().count() == together.len() {
                *forced = mem::take(forced).with_min_token(entry::token(revision(&reply)?));
            }
            if together.len() == holders.len() {
                return Ok(());
            }
        }
        Err(too_busy())
    }

    /// Requests the revocation of leases on `key`.
    ///
    /// The request is stored in a separate key. The request remains until its TTL expires, or until
    /// a client finds the lock free and removes the request.
    pub(super) async fn write_revocation_request(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Failure> {
        let (range, revocation) = (self.layout.range(key), self.layout.revocation(key));
        for _ in 0..MAX_TRIES {
            let queue = self.queue(key).await?;
            let meant =
                || queue.holders().filter(|it| only.is_none_or(|only| it.fingerprint == only));
            if meant().next().is_none() {
                return Ok(Revocation::NotHeld);
            }
            let earlier = self.read(vec![TxnOp::get(revocation.as_str(), None)]).await?;
            let earlier = earlier.op_responses();
            let earlier = earlier.first().and_then(got).ok_or_else(senseless)?;
            let earlier = earlier.kvs().first();
            let value = match only {
                None => String::new(),
                Some(only) => entry::asking_too(earlier.map(KeyValue::value), only),
            };
            let left = self.left(queue.holders().map(|holder| holder.lease)).await?;
            // The request lasts until the last of these leases would expire without renewal. A
            // lease without a TTL counts as a lease of one day.
            let ends = |holder: &Entry| {
                left.get(&holder.lease).copied().unwrap_or(Duration::from_secs(86_400))
            };
            let longest = queue.holders().map(ends).max().unwrap_or_default();
            let lease = session::new_id();
            session::grant(&self.connection, lease, longest).await?;
            let options = PutOptions::new().with_lease(lease).with_prev_key();
            let request = TxnOp::put(revocation.as_str(), value, Some(options));
            // Holders whose entries are rewritten are notified immediately, and all remaining
            // holders at their next renewal. Foreign programs do not watch their entries.
            let touched = || meant().filter(|holder| !holder.is_foreign()).take(CHANGED_TOGETHER);
            let touches = touched().map(|holder| {
                let same = holder.held_still(holder.mode, holder.description.as_ref());
                let options = PutOptions::new().with_ignore_lease();
                TxnOp::put(holder.key.as_slice(), same, Some(options))
            });
            let unchanged = touched().map(|holder| {
                Compare::mod_revision(holder.key.as_slice(), CompareOp::Equal, holder.modified)
            });
            let of_earlier = earlier.map_or(0, KeyValue::mod_revision);
            let is_earlier =
                Compare::mod_revision(revocation.as_str(), CompareOp::Equal, of_earlier);
            let is_as_seen = [range.is_as_at(queue.revision), is_earlier];
            let when: Vec<Compare> = unchanged.chain(is_as_seen).collect();
            let changes: Vec<TxnOp> = [request].into_iter().chain(touches).collect();
            let txn = Txn::new().when(when).and_then(changes);
            let reply = self.connection.txn(txn).await?;
            let unused = if reply.succeeded() { replaced(&reply) } else { Some(lease) };
            if let Some(unused) = unused {
                // If the request fails, the etcd lease expires after its TTL.
                drop(session::revoke(&self.connection, unused).await);
            }
            if reply.succeeded() {
                return Ok(Revocation::Requested);
            }
        }
        Err(too_busy())
    }
}

/// Returns the deletion in the reply of a transaction or of its nested transaction.
fn deleted(reply: &TxnResponse) -> Option<DeleteResponse> {
    match reply.op_responses().into_iter().next()? {
        TxnOpResponse::Delete(deleted) => Some(deleted),
        TxnOpResponse::Txn(within) => deleted(&within),
        TxnOpResponse::Get(_) | TxnOpResponse::Put(_) => None,
    }
}

/// Returns the etcd lease of an earlier request that was replaced. No entry is attached to that
/// lease any longer.
fn replaced(reply: &TxnResponse) -> Option<i64> {
    let TxnOpResponse::Put(put) = reply.op_responses().into_iter().next()? else { return None };
    put.prev_key().map(KeyValue::lease).filter(|lease| *lease != 0)
}

/// A release in progress. If the release fails, the renewals of other leases must not keep the
/// entry alive.
struct Releasing<'a> {
    backend: &'a EtcdBackend,
    lease: &'a Lease,
    done: bool,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.backend.sessions.doubt();
            self.backend.slots.leave(self.lease);
        }
    }
}

fn too_busy() -> Failure {
    let message = "the lock changed during the request; try again";
    Failure::Final(Error::new(ErrorKind::Unavailable, message))
}
