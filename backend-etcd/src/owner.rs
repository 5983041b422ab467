//! Writes to etcd that only the holder of a lock gets through.

use etcd_client::{Compare, CompareOp};
use leasehold_core::LockGuard;

use crate::backend::EtcdBackend;
use crate::entry::granted_at;

/// Guards writes to the same etcd with a lock, as `IsOwner` does in etcd's own `concurrency` package.
///
/// Also for types that dereference to a [`LockGuard`]: those of readers, writers, permits and
/// leaders.
pub trait EtcdGuard {
    /// The comparisons by which a transaction succeeds only while the lock is held by this very grant.
    ///
    /// A holder that lost the lock without knowing it cannot write any more: the store itself is the resource that
    /// checks. Holders in one process that [hand the lease over](leasehold_core::LockOptions::hand_over) share a grant, so await writes before
    /// the release. `backend` is the one that the guard's client was made with, or a clone of it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold_core::LockClient;
    /// use leasehold_etcd::etcd_client::{Client, Txn, TxnOp};
    /// use leasehold_etcd::{EtcdBackend, EtcdGuard};
    ///
    /// let backend = EtcdBackend::connect("etcd://127.0.0.1").await?;
    /// let locks = LockClient::new(backend.clone());
    /// let mut etcd = Client::connect(["127.0.0.1:2379"], None).await?;
    ///
    /// let guard = locks.mutex("invoice:42")?.lock().await?;
    /// let write = Txn::new()
    ///     .when(guard.etcd_compare(&backend))
    ///     .and_then([TxnOp::put("invoices/42", "paid", None)]);
    /// assert!(etcd.txn(write).await?.succeeded(), "the lock was lost");
    /// # Ok(())
    /// # }
    /// ```
    fn etcd_compare(&self, backend: &EtcdBackend) -> Vec<Compare>;
}

impl EtcdGuard for LockGuard {
    fn etcd_compare(&self, backend: &EtcdBackend) -> Vec<Compare> {
        let entry = backend.entry_of(self.lease());
        let granted_at = granted_at(self.token().number());
        // It is there, and has been there since the grant, or since before it in the queue.
        vec![
            Compare::create_revision(entry.as_str(), CompareOp::Greater, 0),
            Compare::create_revision(entry.as_str(), CompareOp::Less, granted_at + 1),
        ]
    }
}
