//! Tools for operators to inspect keys, list keys, and end other clients' leases.

mod key_list;

pub use crate::contract::inspection::{Inspection, MemberView, Waiter};
pub use crate::contract::outcome::{ForcedRelease, Revocation};
pub use key_list::KeyList;

use std::sync::Arc;

use crate::contract::backend::{Fingerprint, Operation};
use crate::contract::error::Error;
use crate::contract::key::{IntoKey, LockKey};
use crate::engine::pipeline::Engine;
use crate::observe::{Event, Forced};

/// The operator tools, which inspect keys, list keys, and end other clients' leases.
///
/// `Admin` is separate from locks and guards, so that code that uses locks cannot accidentally end
/// another client's lease. `Admin` does not provide access control, because any program with write
/// access to the store can end leases. Use the store's permissions to control who can end leases.
///
/// See [`Admin::inspect`] for an example that prints the holders of a key.
pub struct Admin {
    engine: Arc<Engine>,
}

impl Admin {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Returns the holders of `key`, its queue and its last token.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, LockKind};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("job")?.lock().await?;
    ///
    /// let job = client.admin().inspect("job").await?;
    /// for holder in job.holders() {
    ///     println!("held by {holder}");
    ///     assert_eq!(holder.kind(), Some(LockKind::Mutex));
    ///     assert_eq!(holder.token(), Some(guard.token().number()));
    /// }
    /// for waiter in job.queue() {
    ///     println!("{waiter} waits");
    /// }
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support inspection. Returns the store's error if the request fails.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe, because it does not change anything in the store.
    pub async fn inspect(&self, key: impl IntoKey) -> Result<Inspection, Error> {
        self.engine.admin(Operation::Inspect)?.inspect(&key.into_key()?).await
    }

    /// Lists the keys in use whose names start with `prefix`, which may be empty. A key is in use
    /// if it is held or if it has queued claims.
    ///
    /// A key that stays in use until the whole list has been read appears at least once and may
    /// appear twice. If a key comes into use or stops being in use while the list is being read,
    /// the key may be missing. The keys are not sorted.
    ///
    /// On Redis, listing scans the whole database and requires an additional permission. The guide
    /// for operators describes the details.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::LockClient;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("invoice:42")?.lock().await?;
    ///
    /// let mut keys = client.admin().list("invoice:")?;
    /// while let Some(page) = keys.next_page().await? {
    ///     for key in page {
    ///         println!("{key}: {} holders", client.admin().inspect(&key).await?.holders().len());
    ///     }
    /// }
    /// guard.release().await?;
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if `prefix` is longer than
    /// [`LockKey::MAX_LEN`] bytes.
    pub fn list(&self, prefix: impl AsRef<[u8]>) -> Result<KeyList, Error> {
        let prefix = LockKey::encoded_prefix(prefix.as_ref())?;
        Ok(KeyList::new(Arc::clone(&self.engine), prefix))
    }

    /// Ends all leases on `key`, and logs the reason `why`.
    ///
    /// If the store supports notifications, the holders are notified of the loss. Without
    /// notifications, the holders notice the loss at their next renewal or at their deadline. A
    /// holder may continue to work until it notices that its lease is lost. If a resource checks
    /// fencing tokens, it rejects the former holders' writes as soon as it has received
    /// [`ForcedRelease::min_token`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LockClient, LossReason};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let guard = client.mutex("job")?.lock().await?;
    /// let forced = client.admin().force_release("job", "its host hangs").await?;
    /// assert_eq!(forced.ended().len(), 1);
    /// assert_eq!(guard.lost().await, Some(LossReason::Vanished));
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support forced releases. Returns [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if
    /// the key contains a value that is not a lock.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may or may not have ended the leases.
    pub async fn force_release(
        &self,
        key: impl IntoKey,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        self.end(&key.into_key()?, None, why).await
    }

    /// Ends the lease on `key` that has the fingerprint `lease`, and logs the reason `why`.
    ///
    /// Other holders keep their leases, including a holder that acquired the key after the
    /// fingerprint was read. If no current lease has this fingerprint, [`ForcedRelease::ended`] is
    /// empty.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{LeaseState, LockClient};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let workers = client.semaphore("workers", 2)?;
    /// let (hangs, works) = (workers.acquire(1).await?, workers.acquire(1).await?);
    /// let inspection = client.admin().inspect("workers").await?;
    /// let meant = inspection.holders().iter().find(|it| it.token() == Some(hangs.token().number()));
    ///
    /// let lease = meant.unwrap().fingerprint();
    /// client.admin().force_release_lease("workers", lease, "it hangs").await?;
    ///
    /// hangs.lost().await;
    /// assert_eq!(works.state(), LeaseState::Held);
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support forced releases. Returns [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if
    /// the key contains a value that is not a lock.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may or may not have ended the lease.
    pub async fn force_release_lease(
        &self,
        key: impl IntoKey,
        lease: Fingerprint,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        self.end(&key.into_key()?, Some(lease), why).await
    }

    /// Asks the holder of the lease with the fingerprint `lease` to finish early. The other holders
    /// of `key` do not receive the request.
    ///
    /// Returns [`Revocation::NotHeld`] if no current lease has this fingerprint. To ask all
    /// holders, use [`LockClient::request_revocation`](crate::LockClient::request_revocation).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store does not
    /// support revocation requests. Returns the store's error if the request fails.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may or may not have recorded the request.
    pub async fn request_lease_revocation(
        &self,
        key: impl IntoKey,
        lease: Fingerprint,
    ) -> Result<Revocation, Error> {
        let admin = self.engine.admin(Operation::RequestRevocation)?;
        admin.request_revocation(&key.into_key()?, Some(lease)).await
    }

    async fn end(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        let forced = self.engine.admin(Operation::ForceRelease)?.force_release(key, only).await?;
        let events = self.engine.events();
        let store = events.store();
        for holder in forced.ended() {
            events.emit(Event::Forced(Forced { store, key, holder, why }));
        }
        Ok(forced)
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("backend", &self.engine.backend()).finish()
    }
}
