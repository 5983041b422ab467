//! Transactions in etcd that succeed only while a lock is held.

use etcd_client::{Compare, CompareOp};
use leasehold_core::LockGuard;

use crate::backend::EtcdBackend;
use crate::entry::granted_at;

/// Makes a write to the etcd cluster that stores the lock conditional on still holding the lock,
/// like `IsOwner` in etcd's `concurrency` package.
///
/// All guards that dereference to a [`LockGuard`] have this method, including the guards of
/// readers, writers, permits and leaders.
pub trait EtcdGuard {
    /// Returns comparisons for a transaction. The transaction succeeds only if the guard's grant
    /// still holds the lock.
    ///
    /// Once a holder has lost the lock, it can no longer write, even if it has not noticed the
    /// loss, because the store checks every write. If a process [hands off the
    /// lease](leasehold_core::LockOptions::hand_over) to another caller, both holders share one
    /// grant. Await all writes before you release the guard. `backend` must be the backend of the
    /// guard's client, or a clone of it.
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
        // The entry must exist, and must not have been created after the grant.
        vec![
            Compare::create_revision(entry.as_str(), CompareOp::Greater, 0),
            Compare::create_revision(entry.as_str(), CompareOp::Less, granted_at + 1),
        ]
    }
}
