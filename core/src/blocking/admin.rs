//! What operators may do.

use super::background::Background;
use crate::backend::ForcedRelease;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::key::IntoKey;

/// The operator's handle: the [`Admin`](crate::Admin) of code without a runtime.
///
/// Its calls block until the store has answered.
#[derive(Debug)]
pub struct Admin {
    admin: crate::Admin,
    background: Background,
}

impl Admin {
    pub(super) fn new(admin: crate::Admin, background: Background) -> Self {
        Self { admin, background }
    }

    /// Tells who holds `key`.
    ///
    /// # Errors
    ///
    /// As [`Admin::inspect`](crate::Admin::inspect), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn inspect(&self, key: impl IntoKey) -> Result<Inspection, Error> {
        self.background.block_on(self.admin.inspect(key))
    }

    /// Ends whatever leases are in force on `key`, and says `why` in the log.
    ///
    /// # Errors
    ///
    /// As [`Admin::force_release`](crate::Admin::force_release), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) in [async code](super).
    pub fn force_release(&self, key: impl IntoKey, why: &str) -> Result<ForcedRelease, Error> {
        self.background.block_on(self.admin.force_release(key, why))
    }
}
