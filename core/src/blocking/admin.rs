//! The blocking handle for operators.

use super::background::Background;
use crate::admin::{ForcedRelease, Inspection, Revocation};
use crate::contract::backend::Fingerprint;
use crate::contract::error::Error;
use crate::contract::key::{IntoKey, LockKey};

/// Inspects keys and releases locks held by any client. This is the blocking version of
/// [`Admin`](crate::admin::Admin).
///
/// All methods block until the store has replied.
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new())?;
/// let guard = client.mutex("invoice:42")?.lock()?;
///
/// let admin = client.admin();
/// for holder in admin.inspect("invoice:42")?.holders() {
///     println!("held by {holder}");
/// }
/// admin.force_release("invoice:42", "its host is down")?;
/// # drop(guard);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Admin {
    admin: crate::admin::Admin,
    background: Background,
}

impl Admin {
    pub(super) fn new(admin: crate::admin::Admin, background: Background) -> Self {
        Self { admin, background }
    }

    /// Returns the current leases on `key`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Admin::inspect`](crate::admin::Admin::inspect), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn inspect(&self, key: impl IntoKey) -> Result<Inspection, Error> {
        self.background.block_on(self.admin.inspect(key))
    }

    /// Lists the keys in use whose names start with `prefix`, which may be empty. This method
    /// itself does no I/O.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Admin::list`](crate::admin::Admin::list).
    pub fn list(&self, prefix: impl AsRef<[u8]>) -> Result<KeyList, Error> {
        Ok(KeyList { list: self.admin.list(prefix)?, background: self.background.clone() })
    }

    /// Ends all current leases on `key` and writes the reason `why` to the log.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Admin::force_release`](crate::admin::Admin::force_release), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn force_release(&self, key: impl IntoKey, why: &str) -> Result<ForcedRelease, Error> {
        self.background.block_on(self.admin.force_release(key, why))
    }

    /// Ends the lease on `key` that has this fingerprint, and writes the reason `why` to the log.
    ///
    /// # Errors
    ///
    /// Returns the same errors as
    /// [`Admin::force_release_lease`](crate::admin::Admin::force_release_lease), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn force_release_lease(
        &self,
        key: impl IntoKey,
        lease: Fingerprint,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        self.background.block_on(self.admin.force_release_lease(key, lease, why))
    }

    /// Asks the holder of the lease on `key` that has this fingerprint to finish early.
    ///
    /// # Errors
    ///
    /// Returns the same errors as
    /// [`Admin::request_lease_revocation`](crate::admin::Admin::request_lease_revocation), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn request_lease_revocation(
        &self,
        key: impl IntoKey,
        lease: Fingerprint,
    ) -> Result<Revocation, Error> {
        self.background.block_on(self.admin.request_lease_revocation(key, lease))
    }
}

/// The keys in use whose names start with a prefix, returned page by page. This is the blocking
/// version of [`KeyList`](crate::admin::KeyList).
///
/// ```
/// use leasehold_core::blocking::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new())?;
/// let mut keys = client.admin().list("invoice:")?;
/// while let Some(page) = keys.next_page()? {
///     page.iter().for_each(|key| println!("{key}"));
/// }
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug)]
pub struct KeyList {
    list: crate::admin::KeyList,
    background: Background,
}

impl KeyList {
    /// Blocks until the store has returned a page that contains keys, then returns the page.
    /// Returns `None` after the last page.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`KeyList::next_page`](crate::admin::KeyList::next_page), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if called from [async
    /// code](super).
    pub fn next_page(&mut self) -> Result<Option<Vec<LockKey>>, Error> {
        self.background.block_on(self.list.next_page())
    }
}
