//! One suite for every Leasehold backend, yours too.
//!
//! Tell it how to reach your store ([`Harness`]) and name it in a test file: `suite!` expands to
//! one `#[test]` per case, so that your test runner sees each of them.
//!
//! ```
//! use async_trait::async_trait;
//! use leasehold_conformance::{Harness, suite};
//! use leasehold_core::backend::LockBackend;
//! use leasehold_core::memory::MemoryBackend;
//! use leasehold_core::{Holder, LockKey};
//!
//! struct Memory(MemoryBackend);
//!
//! #[async_trait]
//! impl Harness for Memory {
//!     type Backend = MemoryBackend;
//!
//!     const NAME: &str = "memory";
//!
//!     async fn start() -> Self {
//!         Self(MemoryBackend::new())
//!     }
//!
//!     async fn connect(&self) -> MemoryBackend {
//!         self.0.clone()
//!     }
//!
//!     async fn witness(&self, key: &LockKey) -> Option<Holder> {
//!         self.0.inspect(key).await.unwrap().holders().first().cloned()
//!     }
//! }
//!
//! suite!(Memory);
//! ```
//!
//! Each case has a [`Subject`]. In real time, `suite!` runs the cases of the store, the network and the load, and leaves out those
//! of the layers above the contract, to which a store is only latency. With `LEASEHOLD_CONFORMANCE_ALL` in its
//! environment it runs all of them.
//!
//! A test file with several harnesses may have a `main` instead that marks cases without a verdict as ignored: [`Suites`].
//!
//! Cases that need a feature which your backend does not declare ([`Need`]) are skipped and counted
//! as such, never passed. [`report`] runs the same list and gives the outcome as data.
//!
//! The list of cases and of their needs is outside semantic versioning: it grows with experience.

mod as_mutex;
mod driven;
mod harness;
mod scene;
mod silences;

mod case;
mod cases;
mod log;
mod model;
mod pool;
mod profile;
mod run;

mod list;
mod report;
mod suites;
mod test;

pub mod document;
pub mod fairness;
#[cfg(all(feature = "history", target_os = "linux"))]
pub mod history;
pub mod stalls;

pub use as_mutex::AsMutex;
pub use case::{Case, Need, Outcome, Skipped, Subject};
pub use harness::{Disturbance, Groups, Harness, Rounds, Time, Timing};
pub use list::cases;
pub use report::{Report, report};
pub use suites::Suites;
pub use test::run_case;
