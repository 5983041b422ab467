//! All lock types of Leasehold on any store with a conditional write.
//!
//! A store implements [`CasStore`], which reads and writes one document per key. On this basis,
//! [`CasBackend`] provides mutexes, semaphores, read-write locks, queues, fencing tokens,
//! elections, revocation, inspection and forced release. Each operation reads the document or
//! remembers its last version, applies a step, and writes the document if its version has not
//! changed.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//!
//! use async_trait::async_trait;
//! use leasehold_cas::{CasBackend, CasStore, Facts, Loaded, Reading, Version, Written};
//! use leasehold_core::{Error, LockClient, LockKey};
//!
//! #[derive(Debug, Default)]
//! struct MapStore(Mutex<HashMap<LockKey, (u64, String)>>);
//!
//! #[async_trait]
//! impl CasStore for MapStore {
//!     fn facts(&self) -> Facts {
//!         Facts::new("map")
//!     }
//!
//!     async fn load(&self, key: &LockKey) -> Result<Loaded, Error> {
//!         let documents = self.0.lock().expect("no call panics");
//!         let (version, document) = match documents.get(key) {
//!             Some((version, document)) => (Version::Number(*version), Some(document.clone())),
//!             None => (Version::Absent, None),
//!         };
//!         Ok(Loaded { document, version, time: Reading::of_this_machine() })
//!     }
//!
//!     async fn write(
//!         &self,
//!         key: &LockKey,
//!         expected: &Version,
//!         document: &str,
//!     ) -> Result<Written, Error> {
//!         let mut documents = self.0.lock().expect("no call panics");
//!         let current = documents.get(key).map(|(version, _)| *version);
//!         if *expected != current.map_or(Version::Absent, Version::Number) {
//!             return Ok(Written::Conflict);
//!         }
//!         let next = current.unwrap_or_default() + 1;
//!         documents.insert(key.clone(), (next, document.to_owned()));
//!         let time = Reading::of_this_machine();
//!         Ok(Written::Written { version: Version::Number(next), time })
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let client = LockClient::new(CasBackend::new(MapStore::default()));
//! client.mutex("k")?.run(async |guard| assert!(guard.token().number() > 0)).await?;
//! # Ok::<(), Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Time
//!
//! Each reply of the store contains its time, so a lease expires when the store's clock shows its
//! end. The times of the clients' machines do not matter. If several servers with different clocks
//! reply, [`Facts::skew`] limits their difference.
//!
//! A clock of the store must not be set forward by more than the skew while leases are in force.
//! Otherwise, a client may consider a lease expired too early. A client that read the key before
//! the last renewal waits until 99 % of the TTL after its last read without this renewal. If the
//! clock is set back, leases expire later.
//!
//! # Waiting
//!
//! A store does not notify clients of changes, so a waiter polls at least once per second. Each
//! attempt of a waiter reads and writes the document, because its queue entry is renewed. Callers
//! that share a [`CasBackend`] notify each other.
//!
//! # Documents
//!
//! The document of a key remains after the release, because it contains the last token. It is JSON,
//! has at most 500 bytes if the key is free, and grows with each holder and each queued claim. At
//! most [`Document::MAX_QUEUE`](leasehold_entry::Document::MAX_QUEUE) claims are queued. Further
//! claims poll.

mod admin;
mod backend;
mod clock;
mod documents;
mod observed;
mod pause;
mod probe;
mod state;
mod store;
mod stored;
mod turns;
mod unknown;

pub use backend::CasBackend;
pub use clock::Reading;
pub use store::{CasStore, Facts, Loaded, Version, Written};
