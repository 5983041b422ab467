//! The operators' side of a client.

use super::background::Background;
use crate::admin::{ForcedRelease, Inspection, Revocation};
use crate::contract::backend::Fingerprint;
use crate::contract::error::Error;
use crate::contract::key::{IntoKey, LockKey};

/// The operator's handle: the [`Admin`](crate::admin::Admin) of code without a runtime.
///
/// Its calls block until the store has answered.
///
/// See [`Admin`](crate::admin::Admin) for an example. Its methods have the same names in async code.
#[derive(Debug)]
pub struct Admin {
    admin: crate::admin::Admin,
    background: Background,
}

impl Admin {
    pub(super) fn new(admin: crate::admin::Admin, background: Background) -> Self {
        Self { admin, background }
    }

    /// Tells which leases are in force on `key`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Admin::inspect`](crate::admin::Admin::inspect), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn inspect(&self, key: impl IntoKey) -> Result<Inspection, Error> {
        self.background.block_on(self.admin.inspect(key))
    }

    /// Lists the keys in use whose names begin with `prefix`, which may be empty.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Admin::list`](crate::admin::Admin::list).
    pub fn list(&self, prefix: impl AsRef<[u8]>) -> Result<KeyList, Error> {
        Ok(KeyList { list: self.admin.list(prefix)?, background: self.background.clone() })
    }

    /// Ends all leases in force on `key`, and notes the reason `why` in the log.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Admin::force_release`](crate::admin::Admin::force_release), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn force_release(&self, key: impl IntoKey, why: &str) -> Result<ForcedRelease, Error> {
        self.background.block_on(self.admin.force_release(key, why))
    }

    /// Ends the lease on `key` that has this fingerprint, and notes the reason `why` in the log.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Admin::force_release_lease`](crate::admin::Admin::force_release_lease), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
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
    /// Returns the errors of [`Admin::request_lease_revocation`](crate::admin::Admin::request_lease_revocation), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn request_lease_revocation(
        &self,
        key: impl IntoKey,
        lease: Fingerprint,
    ) -> Result<Revocation, Error> {
        self.background.block_on(self.admin.request_lease_revocation(key, lease))
    }
}

/// The keys in use whose names begin alike, page by page: the [`KeyList`](crate::admin::KeyList) of code without a runtime.
///
/// See [`Admin::list`](crate::admin::Admin::list) for an example.
#[derive(Debug)]
pub struct KeyList {
    list: crate::admin::KeyList,
    background: Background,
}

impl KeyList {
    /// Blocks for the next page that has any keys; `None` after the last.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`KeyList::next_page`](crate::admin::KeyList::next_page), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn next_page(&mut self) -> Result<Option<Vec<LockKey>>, Error> {
        self.background.block_on(self.list.next_page())
    }
}
