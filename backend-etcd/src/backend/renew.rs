//! Renews leases.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures_util::future::join_all;
use leasehold_core::Error;
use leasehold_core::backend::{Lease, Operation, Renewal, Tenure};
use leasehold_core::clock::Instant;

use super::attachment::put;
use super::look::{got, senseless};
use super::{EtcdBackend, context};
use crate::entry::{self, Entry, State};
use crate::error::Failure;
use crate::layout::tag;
use crate::session::{self, Session, Use, seconds};

/// The maximum number of leases that one transaction reads. Each lease needs two reads, and the
/// server's default limit is 128 operations per transaction.
const LOOKED_AT_TOGETHER: usize = 64;

/// The maximum number of concurrent changes to an entry during one renewal.
const MAX_TRIES: usize = 4;

/// The information that the store contains about a lease.
struct Found {
    entry: Option<Entry>,
    revocation_requested: bool,
}

impl EtcdBackend {
    /// Renews the etcd leases to which these leases are attached, and then checks that the entries
    /// still exist.
    pub(super) async fn renew_leases(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let now = self.clock.now();
        self.doubt_strays(now);
        let sessions = self.renewed_sessions(leases).await;
        let chunks =
            leases.chunks(LOOKED_AT_TOGETHER).map(|chunk| self.renew_chunk(chunk, &sessions, now));
        join_all(chunks).await.into_iter().flatten().collect()
    }

    /// Renews the sessions of these leases and returns them by TTL.
    async fn renewed_sessions(&self, leases: &[Lease]) -> HashMap<i64, Result<Session, Error>> {
        let mut ttls: Vec<_> = leases
            .iter()
            .filter(|lease| lease.tenure() == Tenure::Kept)
            .map(|lease| (seconds(lease.ttl()), lease.ttl()))
            .collect();
        ttls.sort_unstable();
        ttls.dedup_by_key(|(seconds, _)| *seconds);
        let renewed = ttls.into_iter().map(async |(seconds, ttl)| {
            let session = self.sessions.renewed(&self.connection, Use::Locks, ttl).await;
            (seconds, session.map_err(Failure::into_error))
        });
        join_all(renewed).await.into_iter().collect()
    }

    async fn renew_chunk(
        &self,
        leases: &[Lease],
        sessions: &HashMap<i64, Result<Session, Error>>,
        now: Instant,
    ) -> Vec<Result<Renewal, Error>> {
        let found = match self.find(leases).await {
            Ok(found) => found,
            Err(failure) => {
                let error = failure.into_error();
                return leases.iter().map(|lease| Err(repeated(&error, lease))).collect();
            }
        };
        // The reply may have shown that a new leader was elected.
        let is_safe = |session: &Session| session::is_safe(&self.connection, session);
        let others = match sessions.values().flatten().all(is_safe) {
            true => None,
            false => Some(self.renewed_sessions(leases).await),
        };
        let sessions = others.as_ref().unwrap_or(sessions);
        let renewed = leases.iter().zip(found).map(async |(lease, found)| {
            let session = match sessions.get(&seconds(lease.ttl())) {
                Some(Err(error)) if lease.tenure() == Tenure::Kept => {
                    return Err(repeated(error, lease));
                }
                Some(Ok(session)) if lease.tenure() == Tenure::Kept => Some(session),
                _ => None,
            };
            let renewed = self.renew_found(lease, found, session).await;
            if let Ok(Renewal::Renewed | Renewal::RevocationRequested) = renewed {
                self.slots.renew(lease, now);
            }
            renewed.map_err(|failure| context(failure, Operation::Renew, lease.key()))
        });
        join_all(renewed).await
    }

    async fn find(&self, leases: &[Lease]) -> Result<Vec<Found>, Failure> {
        let mut reads = Vec::with_capacity(2 * leases.len());
        for lease in leases {
            let entry = self.locate(lease).await?.unwrap_or_else(|| self.layout.unused());
            reads.push(TxnOp::get(entry, None));
            reads.push(TxnOp::get(self.layout.revocation(lease.key()), None));
        }
        let reply = self.read(reads).await?;
        let found = reply.op_responses();
        let found: Vec<_> = found.iter().filter_map(got).collect();
        if found.len() != 2 * leases.len() {
            return Err(senseless());
        }
        let pairs = leases.iter().zip(found.chunks(2)).map(|(lease, pair)| Found {
            entry: pair[0].kvs().first().map(Entry::read).filter(|entry| entry.tag == tag(lease)),
            revocation_requested: pair[1]
                .kvs()
                .first()
                .is_some_and(|it| entry::asks(it.value(), lease)),
        });
        Ok(pairs.collect())
    }

    /// Returns the etcd lease, with its full TTL, for a lease that does not use a session.
    async fn own_lease(&self, current: i64, ttl: Duration) -> Result<i64, Failure> {
        if self.sessions.keep_own(&self.connection, current, ttl).await? {
            return Ok(current);
        }
        self.sessions.own(&self.connection, ttl).await
    }

    async fn renew_found(
        &self,
        lease: &Lease,
        mut found: Found,
        session: Option<&Session>,
    ) -> Result<Renewal, Failure> {
        for _ in 0..MAX_TRIES {
            let Some(own) = found.entry.filter(|own| own.state == State::Held) else {
                let queue = self.queue(lease.key()).await?;
                let own = queue.entry(&tag(lease));
                if own.is_some_and(|own| own.state == State::Held) {
                    // The entry has a different key, because a different client sent the same
                    // claim.
                    found.entry = own.cloned();
                    continue;
                }
                if own.is_none() {
                    self.abandon(lease);
                }
                let taken = queue.is_held_like(lease);
                return Ok(if taken { Renewal::Taken } else { Renewal::Vanished });
            };
            let (mode, description) = (lease.mode().capped_by(own.mode), lease.description());
            let attachment = match session {
                Some(session) => session.id,
                None => self.own_lease(own.lease, lease.ttl()).await?,
            };
            let renewed = if found.revocation_requested {
                Renewal::RevocationRequested
            } else {
                Renewal::Renewed
            };
            let says_so = own.mode == mode && own.description.as_ref() == description;
            if own.lease == attachment && says_so {
                return Ok(renewed);
            }
            let value = own.held_still(mode, description);
            let unchanged =
                Compare::mod_revision(own.key.as_slice(), CompareOp::Equal, own.modified);
            let txn = Txn::new().when([unchanged]).and_then([put(own.key, value, attachment)]);
            if self.attach(&[attachment], txn).await?.succeeded() {
                if own.lease != attachment && session.is_none() {
                    self.drop_lease(own.lease).await;
                }
                return Ok(renewed);
            }
            found = self.find(std::slice::from_ref(lease)).await?.remove(0);
        }
        Err(senseless())
    }
}

/// Converts an error that applies to several leases to the error of one lease.
fn repeated(error: &Error, lease: &Lease) -> Error {
    context(Failure::Final(error.repeated()), Operation::Renew, lease.key())
}
