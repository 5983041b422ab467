//! The name of a lease in a store that other programs can read.

use leasehold_core::backend::entry::LeaseName;
use leasehold_core::backend::{Fingerprint, LeaseId};
use uuid::Uuid;

/// The name of a lease. A tag is derived from the [`LeaseId`], which is a secret, and does not
/// reveal it.
///
/// ```
/// use leasehold_core::backend::LeaseId;
/// use leasehold_entry::Tag;
///
/// let id = LeaseId::new();
/// assert_eq!(Tag::of(&id), Tag::of(&id));
/// assert_ne!(Tag::of(&id), Tag::of(&LeaseId::new()));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tag {
    /// Identifies the lease among the leases of its key.
    pub id: Uuid,
    /// The fingerprint for logs.
    pub fingerprint: Fingerprint,
}

impl Tag {
    /// Returns the tag of a lease.
    pub fn of(id: &LeaseId) -> Self {
        let secret = id.secret();
        Self { id: tag(&secret), fingerprint: Fingerprint::of(secret.as_bytes()) }
    }
}

impl LeaseName for Tag {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Returns the [`Tag::id`] for the lease id with this [secret](LeaseId::secret).
///
/// ```
/// use leasehold_entry::tag;
///
/// assert_ne!(tag("one secret"), tag("another secret"));
/// ```
pub fn tag(secret: &str) -> Uuid {
    /// A random namespace for the tags of leases.
    const NAMESPACE: Uuid = Uuid::from_u128(0x1b5b_0c1c_77f0_4a36_8a55_24a7_c37d_90e2);

    Uuid::new_v5(&NAMESPACE, secret.as_bytes())
}
