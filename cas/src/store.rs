//! The trait for stores, with reads and conditional writes of documents.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{Fencing, KeyPage};
use leasehold_core::{Error, ErrorKind, LockKey};

use crate::clock::Reading;

/// A store that keeps one document per key.
///
/// Implement this trait to use all lock types with another store. [`CasBackend`](crate::CasBackend)
/// contains everything else. The crate's documentation has an example.
///
/// # Requirements
///
/// - **Linearizable reads.** [`load`](Self::load) returns the result of every write that was
///   acknowledged before the call. A cache or a replica that may be stale is not sufficient.
/// - **Atomic conditional writes.** [`write`](Self::write) compares the version and replaces the
///   document in one atomic step. The backend checks this before its first request, because some
///   stores accept the condition and ignore it.
/// - **A clock.** Each reply contains the time of the store, by which a client decides whether the
///   lease of another client has expired. A store in a file reads the [clock of its
///   machine](Reading::of_this_machine).
/// - **Documents remain.** The store must not delete documents on its own, because a document
///   contains the last token of its key.
/// - **Bounded time.** Each call returns within a bounded time.
///
/// # Errors
///
/// Return [`ErrorKind::Indeterminate`] if a write may have been applied, and any other kind only if
/// it was not applied: [`ErrorKind::Unavailable`] if a later request may succeed,
/// [`ErrorKind::Denied`] if a permission is missing, [`ErrorKind::Refused`] if the disk is full or
/// a quota is exceeded, and [`ErrorKind::WrongType`] if the store contains different data. Errors
/// do not need to name the key or the store.
///
/// # Cancel safety
///
/// A future may be dropped at any time. The store may apply its write later, or not at all.
#[async_trait]
pub trait CasStore: Debug + Send + Sync + 'static {
    /// Returns the properties of the store.
    fn facts(&self) -> Facts;

    /// Reads the document of a key.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the store does not reply, and
    /// [`ErrorKind::Denied`] if it rejects the credentials.
    async fn load(&self, key: &LockKey) -> Result<Loaded, Error>;

    /// Writes the document of a key, if the current version is `expected`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if the reply was lost, and the errors of
    /// [`load`](Self::load).
    async fn write(
        &self,
        key: &LockKey,
        expected: &Version,
        document: &str,
    ) -> Result<Written, Error>;

    /// Returns one page of the keys whose names start with `prefix`, as
    /// [`StoreAdmin::list`](leasehold_core::backend::StoreAdmin::list) describes. The page may
    /// contain keys that are free.
    ///
    /// # Errors
    ///
    /// The default implementation returns [`ErrorKind::Unsupported`].
    async fn list(&self, _prefix: &str, _after: Option<&str>) -> Result<KeyPage, Error> {
        Err(Error::new(ErrorKind::Unsupported, "this store cannot list keys"))
    }

    /// Drops all connections, as
    /// [`LockBackend::disconnect`](leasehold_core::backend::LockBackend::disconnect) describes.
    fn disconnect(&self) {}

    /// Closes the connections of this value. Later calls may fail. Other clients of the store,
    /// including clones of this value, must continue to work.
    async fn close(&self) {}
}

/// The properties of a store. The crate's documentation has an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// The name of the store in errors and logs.
    pub name: &'static str,
    /// The strength of the fencing tokens: [`Fencing::Strict`] unless the store can lose
    /// acknowledged writes.
    pub fencing: Fencing,
    /// The maximum difference between two clocks of the store, if several servers reply. The lease
    /// of a crashed holder may expire later by twice this time.
    pub skew: Duration,
    /// The resolution of the store's clock. The lease of a crashed holder may expire later by twice
    /// this time.
    pub resolution: Duration,
    /// Whether the client library may send a write again. A conflict may then be caused by the
    /// first copy of the same write.
    pub may_repeat: bool,
}

impl Facts {
    /// Creates the properties of a store with one clock and strict tokens, whose client library
    /// does not repeat writes.
    pub fn new(name: &'static str) -> Self {
        let (skew, resolution) = (Duration::ZERO, Duration::ZERO);
        Self { name, fencing: Fencing::Strict, skew, resolution, may_repeat: false }
    }

    /// Sets the strength of the fencing tokens.
    #[must_use]
    pub fn with_fencing(self, fencing: Fencing) -> Self {
        Self { fencing, ..self }
    }

    /// Sets the maximum difference between two clocks of the store.
    #[must_use]
    pub fn with_skew(self, skew: Duration) -> Self {
        Self { skew, ..self }
    }

    /// Sets the resolution of the store's clock, which is one second for the header `Date` of HTTP.
    #[must_use]
    pub fn with_resolution(self, resolution: Duration) -> Self {
        Self { resolution, ..self }
    }

    /// Declares that the client library may send a write again.
    #[must_use]
    pub fn with_repeated_writes(self) -> Self {
        Self { may_repeat: true, ..self }
    }
}

/// A version of a document, or of a missing document.
///
/// Two reads of a key return the same version only if nothing was written in between. A version may
/// be a hash of the content, because no two documents are equal. The crate's documentation has an
/// example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Version {
    /// The document does not exist.
    Absent,
    /// A number, such as a revision.
    Number(u64),
    /// A text, such as an entity tag.
    Text(Arc<str>),
}

/// The reply to a read. The crate's documentation has an example.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The document, if it exists.
    pub document: Option<String>,
    /// The version of the document.
    pub version: Version,
    /// The store's clock between the request and the reply.
    pub time: Reading,
}

/// The outcome of a write. The crate's documentation has an example.
#[derive(Clone, Debug)]
pub enum Written {
    /// The document was written.
    Written {
        /// The version of the new document.
        version: Version,
        /// The store's clock between the request and the reply.
        time: Reading,
    },
    /// The current version is not the expected one, so nothing was written.
    Conflict,
}
