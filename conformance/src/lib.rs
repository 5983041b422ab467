//! The conformance suite for Leasehold backends, including your own.
//!
//! Implement [`Harness`] to start your store and connect to it. Then write a test file with a
//! `main` function that calls [`Suites`], and set `harness = false` for this file in `Cargo.toml`.
//! Your test runner shows each case separately.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use async_trait::async_trait;
//! use leasehold_conformance::{Harness, Suites};
//! use leasehold_core::backend::StoreAdmin;
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
//!     async fn probe(&self, key: &LockKey) -> Option<Holder> {
//!         self.0.inspect(key).await.unwrap().holders().first().cloned()
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     Suites::new().with::<Memory>("").main()
//! }
//! ```
//!
//! Each case has a [`Subject`]. In real time, the suite runs the test cases for the store, the
//! network and load. The suite omits the test cases for the client, because a real store only adds
//! latency to these cases. Set the environment variable `LEASEHOLD_CONFORMANCE_ALL` to run all
//! cases.
//!
//! The strictest cases compare the store with a model, and run only if the harness can advance the
//! store's clock ([`Time::Driven`]). A failed model prints the value of the environment variable
//! `LEASEHOLD_CONFORMANCE_SEED` with which the same operations run again.
//!
//! A failure has the form "place: found …, expected …", where *found* is what the store or the
//! client did, and *expected* is the specification. For backends that wrap another backend, see
//! [`decorator`].
//!
//! If a case needs a feature or facet that your backend does not support ([`Need`]), the suite
//! skips the case. A skipped case never counts as passed. [`report`] runs the same cases and
//! returns the outcomes as data.
//!
//! The list of cases and their needs is not covered by semantic versioning, because cases are added
//! over time.

#[macro_use]
mod found;

mod as_mutex;
mod driven;
mod harness;
mod scene;
mod silences;

mod case;
mod cases;
mod failure;
mod fault;
mod log;
mod model;
mod need;
mod pool;
mod profile;
mod run;
mod subject;

mod list;
mod report;
mod rule;
mod suites;
mod test;

pub mod decorator;
pub mod document;
pub mod fairness;
#[cfg(all(feature = "history", target_os = "linux"))]
pub mod history;
pub mod stalls;

pub use as_mutex::AsMutex;
pub use case::Case;
pub use failure::Failure;
pub use fault::FaultKind;
pub use harness::{Groups, Harness, Rounds, Time, Timing};
pub use list::cases;
pub use need::{Need, Outcome, Skipped};
pub use report::{Report, report};
pub use rule::Rule;
pub use subject::Subject;
pub use suites::Suites;
