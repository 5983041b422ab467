//! The etcd leases that the keys of holders and waiters are attached to.

use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp, TxnResponse};
use leasehold_core::backend::{Lease, Tenure};

use super::EtcdBackend;
use super::keyed_claim::KeyedClaim;
use crate::error::Failure;
use crate::queue::Queue;
use crate::session::{self, Session, Use};

/// The etcd lease that the entry of a claim is attached to.
#[derive(Clone, Copy)]
pub(super) enum Attachment {
    Session(Session),
    /// An etcd lease for this entry only, with the full TTL.
    Own(i64),
}

impl Attachment {
    pub(super) fn id(self) -> i64 {
        match self {
            Self::Session(session) => session.id,
            Self::Own(id) => id,
        }
    }
}

impl EtcdBackend {
    /// Returns an etcd lease to which an entry can be attached. If the lease will be renewed, the
    /// etcd lease is a session for the given use.
    pub(super) async fn attachment(
        &self,
        tenure: Tenure,
        of: Use,
        ttl: Duration,
    ) -> Result<Attachment, Failure> {
        Ok(match tenure {
            Tenure::Kept => {
                if of == Use::Locks {
                    self.connection.warn_if_short(ttl);
                }
                Attachment::Session(self.sessions.current(&self.connection, of, ttl).await?)
            }
            Tenure::Fixed => Attachment::Own(self.sessions.own(&self.connection, ttl).await?),
        })
    }

    /// Returns the attachment after renewing its session if necessary. If the renewal fails, the attachment is
    /// returned unchanged.
    pub(super) async fn refreshed(&self, attachment: Attachment, ttl: Duration) -> Attachment {
        if let Attachment::Session(session) = attachment
            && !self.sessions.is_fresh(&session)
            && let Ok(renewed) = self.sessions.renewed(&self.connection, session.of, ttl).await
            && renewed.id == session.id
        {
            return Attachment::Session(renewed);
        }
        attachment
    }

    /// Disposes of the etcd leases that were not needed.
    pub(super) async fn drop_attachments(&self, attachments: &[Option<Attachment>]) {
        for attachment in attachments.iter().flatten() {
            if let Attachment::Own(id) = attachment {
                self.drop_lease(*id).await;
            }
        }
    }

    /// Revokes the etcd leases to which the entries were attached before.
    pub(super) async fn drop_replaced(&self, keyed_claims: &[KeyedClaim<'_>], queues: &[Queue]) {
        for (keyed, queue) in keyed_claims.iter().zip(queues) {
            if keyed.claim.lease().tenure() == Tenure::Fixed
                && let Some(own) = queue.entry(&keyed.tag)
            {
                self.drop_lease(own.lease).await;
            }
        }
    }

    /// Disposes of an etcd lease without attached entries.
    pub(super) async fn drop_lease(&self, id: i64) {
        if !self.sessions.spare(id) {
            self.end_lease(id).await;
        }
    }

    /// Revokes an etcd lease whose attached entries are no longer needed. If the request fails, the
    /// lease expires after its TTL. Leases of other clients are never revoked, because more entries
    /// may be attached to them.
    pub(super) async fn end_lease(&self, id: i64) {
        if self.sessions.is_own(id) {
            drop(session::revoke(&self.connection, id).await);
        }
    }

    /// Sends a transaction that may create the entries of `leases`.
    pub(super) async fn create<'a, T>(
        &'a self,
        leases: impl IntoIterator<Item = &'a Lease>,
        sent: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut creating = self.late_entries.creating(leases);
        let reply = sent.await;
        if !reply.as_ref().is_err_and(Failure::leaves_doubt) {
            creating.settle();
        }
        reply
    }

    /// Sends a transaction that attaches entries to these etcd leases. An etcd lease that has
    /// expired is not used again.
    pub(super) async fn attach(&self, ids: &[i64], txn: Txn) -> Result<TxnResponse, Failure> {
        let reply = self.connection.txn(txn).await;
        if let Err(Failure::LeaseGone(_)) = &reply {
            self.sessions.forget(ids).await;
        }
        reply
    }
}

pub(super) fn put(entry: impl Into<Vec<u8>>, value: String, lease: i64) -> TxnOp {
    TxnOp::put(entry, value, Some(PutOptions::new().with_lease(lease)))
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;

    use super::super::look::senseless;
    use super::*;
    use crate::config::EtcdConfig;

    #[tokio::test]
    async fn a_reply_that_makes_no_sense_leaves_doubt() {
        // There is no server at this address.
        let config = EtcdConfig::from_url("etcd://127.0.0.1:1").unwrap();
        let backend = EtcdBackend::connect_lazily(config);
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(10));

        let reply = backend.create([&lease], async { Err::<(), _>(senseless()) }).await;

        assert!(reply.is_err());
        assert!(backend.late_entries.concern(&lease));
    }
}
