//! What operators may do.

use std::sync::Arc;

use crate::backend::ForcedRelease;
use crate::engine::Engine;
use crate::error::Error;
use crate::inspection::Inspection;
use crate::key::IntoKey;

/// The operator's handle: looks into keys and ends leases that are not its own.
///
/// Kept apart from locks and guards, so that code which takes locks cannot break those of others.
/// Whoever may write to the store can do the same without it: rights are the store's to give.
pub struct Admin {
    engine: Arc<Engine>,
}

impl Admin {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }

    /// Tells who holds `key`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot tell; else what the store failed with.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop.
    pub async fn inspect(&self, key: impl IntoKey) -> Result<Inspection, Error> {
        self.engine.backend().inspect(&key.into_key()?).await
    }

    /// Ends whatever leases are in force on `key`, and says `why` in the log.
    ///
    /// Their holders learn of it as soon as the store can tell them, at the latest by their next
    /// renewal or deadline. Until then they may go on: a resource that checks fencing tokens
    /// refuses them from [`ForcedRelease::min_token`] on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot do it,
    /// [`ErrorKind::WrongType`](crate::ErrorKind::WrongType) if something else lies under the key.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop; the leases may then have ended or not.
    pub async fn force_release(
        &self,
        key: impl IntoKey,
        why: &str,
    ) -> Result<ForcedRelease, Error> {
        let key = key.into_key()?;
        let forced = self.engine.backend().force_release(&key).await?;
        for holder in forced.ended() {
            tracing::warn!(%key, lease = %holder.fingerprint(), why, "lease ended by an operator");
        }
        Ok(forced)
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("backend", &self.engine.backend()).finish()
    }
}
