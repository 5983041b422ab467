//! The facet of a store for operators.

use async_trait::async_trait;

use crate::contract::backend::{Finding, Fingerprint, KeyPage};
use crate::contract::error::Error;
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// The operations of a store for operators: inspecting and listing locks, and ending leases of
/// other clients.
///
/// A backend that supports these operations implements this trait and returns itself from
/// [`LockBackend::admin`](crate::backend::LockBackend::admin). Elections require this facet,
/// because candidates inspect the key to find the leader.
///
/// [`Machine`](crate::memory::Machine) is the reference implementation of all operations.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::time::Duration;
///
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::{Claim, Lease, LockBackend as _, StoreAdmin as _};
/// use leasehold_core::memory::MemoryBackend;
///
/// let store = MemoryBackend::new();
/// let key = LockKey::new("invoice:42")?;
/// store.acquire(&Claim::new(Lease::new(&key, Duration::from_secs(30)))).await?;
/// assert!(store.inspect(&key).await?.is_held());
/// assert_eq!(store.force_release(&key, None).await?.ended().len(), 1);
/// assert!(!store.inspect(&key).await?.is_held());
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait StoreAdmin: Send + Sync {
    /// Returns the leases that are in force on `key`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store does not
    /// respond.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it does not change anything in the store.
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error>;

    /// Returns one page of the keys in use whose [encoded name](LockKey::as_str) starts with
    /// `prefix`.
    ///
    /// A key is in use if it has leases or queued claims. `prefix` may be empty. To get the next
    /// page, pass the [`next`](KeyPage::next) value of the previous page as `after`. Both the size
    /// of a page and the work to produce the page are bounded.
    ///
    /// A key that stays in use during the whole listing appears on at least one page and may appear
    /// on several. If a key comes into use or stops being in use while the list is being read, the
    /// key may be missing. The keys are not sorted.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Denied`](crate::ErrorKind::Denied) if listing needs permissions that
    /// locking does not need. Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `after`
    /// does not come from a page.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it does not change anything in the store.
    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error>;

    /// Ends all leases on `key`, or only the lease with the fingerprint `only`, on behalf of an
    /// operator.
    ///
    /// The store must look up the lease by its fingerprint, or compare the id of the lease, in the
    /// same atomic step that ends the lease. A holder that acquired the key in the meantime
    /// therefore keeps its lease.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`](crate::ErrorKind::WrongType), without changing anything, if
    /// the key contains a value that is not a lock. Returns
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the reply was lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have ended the leases.
    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error>;

    /// Asks the holders of `key` to finish early, or only the holder whose lease has the
    /// fingerprint `only`.
    ///
    /// The next renewal of each of these holders returns
    /// [`Renewal::RevocationRequested`](crate::backend::Renewal::RevocationRequested). The
    /// revocation request changes nothing else in the store.
    ///
    /// A request to all holders remains until all leases that are in force at the time of the
    /// request would have expired without renewal, or until the key is free, whichever comes first.
    /// The request also applies to each holder that acquires the key while the request remains. A
    /// request to a single holder ends when the holder's lease ends, or possibly earlier, when that
    /// lease would have expired without renewal.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the reply was lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have recorded the request.
    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error>;

    /// Checks each server for conditions that can endanger locks, such as its version, role,
    /// persistence and clock.
    ///
    /// The checks use the same connections as locks, and change nothing. A server that does not
    /// respond, or that rejects a check, is reported as a finding, not as an error. The default
    /// implementation checks nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the backend cannot
    /// determine the list of servers.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it does not change anything in the store.
    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }
}
