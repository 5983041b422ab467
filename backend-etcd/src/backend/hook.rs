//! The leases of etcd's on which entries hang.

use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp, TxnResponse};
use leasehold_core::backend::{Lease, Tenure};

use super::EtcdBackend;
use super::acquire::Asked;
use crate::error::Failure;
use crate::queue::Queue;
use crate::session::{self, Session, Use};

/// One of etcd's leases, on which the entry of a claim hangs.
#[derive(Clone, Copy)]
pub(super) enum Hook {
    Session(Session),
    /// One of its own, with the whole TTL.
    Own(i64),
}

impl Hook {
    pub(super) fn id(self) -> i64 {
        match self {
            Self::Session(session) => session.id,
            Self::Own(id) => id,
        }
    }
}

impl EtcdBackend {
    /// Something for an entry to hang on: a session for that use, if it is kept.
    pub(super) async fn hook(
        &self,
        tenure: Tenure,
        of: Use,
        ttl: Duration,
    ) -> Result<Hook, Failure> {
        Ok(match tenure {
            Tenure::Kept => {
                if of == Use::Locks {
                    self.connection.warn_if_short(ttl);
                }
                Hook::Session(self.sessions.current(&self.connection, of, ttl).await?)
            }
            Tenure::Fixed => Hook::Own(self.sessions.own(&self.connection, ttl).await?),
        })
    }

    /// The same, kept alive if need be and possible.
    pub(super) async fn refreshed(&self, hook: Hook, ttl: Duration) -> Hook {
        if let Hook::Session(session) = hook
            && !self.sessions.is_fresh(&session)
            && let Ok(renewed) = self.sessions.renewed(&self.connection, session.of, ttl).await
            && renewed.id == session.id
        {
            return Hook::Session(renewed);
        }
        hook
    }

    /// Gives back the leases that were not needed.
    pub(super) async fn drop_hooks(&self, hooks: &[Option<Hook>]) {
        for hook in hooks.iter().flatten() {
            if let Hook::Own(id) = hook {
                self.drop_lease(*id).await;
            }
        }
    }

    /// Ends the leases on which the entries hung before.
    pub(super) async fn drop_replaced(&self, asked: &[Asked<'_>], queues: &[Queue]) {
        for (asked, queue) in asked.iter().zip(queues) {
            if asked.claim.lease().tenure() == Tenure::Fixed
                && let Some(own) = queue.entry(&asked.tag)
            {
                self.drop_lease(own.lease).await;
            }
        }
    }

    /// Gives up one of etcd's leases that nothing hangs on any more.
    pub(super) async fn drop_lease(&self, id: i64) {
        if !self.sessions.spare(id) {
            self.end_lease(id).await;
        }
    }

    /// Ends one of etcd's leases that nothing of worth hangs on. If that fails, its TTL does it, and so it does for those of other
    /// clients: many may hang on them.
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
        let mut creating = self.doubts.creating(leases);
        let reply = sent.await;
        if !reply.as_ref().is_err_and(Failure::leaves_doubt) {
            creating.settle();
        }
        reply
    }

    /// A transaction that hangs something on these of etcd's leases. If one has ended, they are used no more.
    pub(super) async fn hang(&self, ids: &[i64], txn: Txn) -> Result<TxnResponse, Failure> {
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
        // No server listens there.
        let config = EtcdConfig::from_url("etcd://127.0.0.1:1").unwrap();
        let backend = EtcdBackend::connect_lazily(config);
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(10));

        let reply = backend.create([&lease], async { Err::<(), _>(senseless()) }).await;

        assert!(reply.is_err());
        assert!(backend.doubts.concern(&lease));
    }
}
