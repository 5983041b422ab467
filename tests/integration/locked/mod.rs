//! Functions under `#[locked]`, as programs write them.

mod async_traits;
mod forms;
mod outcomes;
#[cfg(feature = "redis")]
mod redis;
mod threads;

use leasehold::clock::TokioClock;
use leasehold::memory::MemoryBackend;
use leasehold::{ErrorKind, LockClient, LockOptions};

/// An error of an application's own.
#[derive(Debug)]
enum AppError {
    Lock(leasehold::Error),
    Number,
}

impl AppError {
    fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Lock(error) => Some(error.kind()),
            Self::Number => None,
        }
    }
}

impl From<leasehold::Error> for AppError {
    fn from(error: leasehold::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<std::num::ParseIntError> for AppError {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::Number
    }
}

/// A store whose time is that of the test's runtime.
fn store() -> MemoryBackend {
    MemoryBackend::with_clock(TokioClock::new())
}

fn client(store: &MemoryBackend, options: LockOptions) -> LockClient {
    let builder = LockClient::builder(store.clone()).clock(TokioClock::new()).options(options);
    builder.build().unwrap().into_dyn()
}
