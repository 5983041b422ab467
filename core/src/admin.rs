//! The operators' side: to look into keys, to list them and to end leases of others.

mod key_list;

pub use crate::contract::inspection::{Inspection, MemberView, Waiter};
pub use crate::contract::outcome::{ForcedRelease, Revocation};
pub use key_list::KeyList;

use std::sync::Arc;

use crate::contract::backend::Fingerprint;
use crate::contract::error::Error;
use crate::contract::key::{IntoKey, LockKey};
use crate::engine::pipeline::Engine;
use crate::observe::{Event, Forced};

/// The operator's handle: looks into keys and ends leases that are not its own.
///
/// Kept apart from locks and guards, so that code which takes locks cannot break those of others.
/// A user with the right to write to the store can do the same without it: rights are the store's to give.
pub struct Admin {
    engine: Arc<Engine>,
}

impl Admin {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Tells the holders of `key`, its queue and its last token.
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
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell; else the error of the store.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn inspect(&self, key: impl IntoKey) -> Result<Inspection, Error> {
        self.engine.store()?.inspect(&key.into_key()?).await
    }

    /// Lists the keys in use whose names begin with `prefix`, which may be empty: those that are held, and those that claims queue for.
    ///
    /// A key that is in use throughout is listed, and may be listed twice; one that comes or goes meanwhile may be missed. The order is the
    /// store's. On Redis this walks through the whole database and takes a right of its own, see the guide for operators.
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
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the prefix is longer than a key may be.
    pub fn list(&self, prefix: impl AsRef<[u8]>) -> Result<KeyList, Error> {
        let prefix = LockKey::encoded_prefix(prefix.as_ref())?;
        Ok(KeyList::new(Arc::clone(&self.engine), prefix))
    }

    /// Ends all leases in force on `key`, and says `why` in the log.
    ///
    /// Their holders learn of it as soon as the store can tell them, at the latest by their next
    /// renewal or deadline. Until then they may go on: a resource that checks fencing tokens
    /// refuses them from [`ForcedRelease::min_token`] on.
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
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot do it,
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if something else lies under the key.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe; the leases may then have ended or not.
    pub async fn force_release(
        &self,
        key: impl IntoKey,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        self.end(&key.into_key()?, None, why).await
    }

    /// Ends the lease on `key` that has this fingerprint, and says `why` in the log. Other holders keep theirs, and so does a holder that came
    /// since the fingerprint was read.
    ///
    /// [`ForcedRelease::ended`] is empty if no lease in force has the fingerprint.
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
    /// Returns the errors of [`force_release`](Self::force_release).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe; the lease may then have ended or not.
    pub async fn force_release_lease(
        &self,
        key: impl IntoKey,
        lease: Fingerprint,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        self.end(&key.into_key()?, Some(lease), why).await
    }

    /// Asks the holder of the lease on `key` that has this fingerprint to finish early, and no other holder.
    ///
    /// [`Revocation::NotHeld`] if no lease in force has the fingerprint. [`LockClient::request_revocation`](crate::LockClient::request_revocation)
    /// asks all holders.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`LockClient::request_revocation`](crate::LockClient::request_revocation).
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe; the store may have recorded the request or not.
    pub async fn request_lease_revocation(
        &self,
        key: impl IntoKey,
        lease: Fingerprint,
    ) -> Result<Revocation, Error> {
        self.engine.store()?.request_revocation(&key.into_key()?, Some(lease)).await
    }

    async fn end(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        let forced = self.engine.store()?.force_release(key, only).await?;
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
