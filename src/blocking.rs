//! Locks for code without an async runtime. A call that waits blocks its thread.
//!
//! This module re-exports [`leasehold_core::blocking`] and adds [`connect`] and [`connect_with`]. The documentation of that module lists the
//! differences from the async types.

pub use leasehold_core::blocking::*;

use leasehold_core::{Error, LockOptions};

/// Connects to the store at `url`, and blocks until it has answered.
///
/// # Errors
///
/// As [`leasehold::connect`](crate::connect), and those of [`LockClient::from_async`].
///
/// ```
/// let client = leasehold::blocking::connect("memory:")?;
/// let guard = client.mutex("invoice:42")?.lock()?;
/// guard.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn connect(url: &str) -> Result<LockClient, Error> {
    LockClient::from_async(async || crate::connect(url).await)
}

/// Connects to the store at `url`, with `options` for all locks that are not given others.
///
/// # Errors
///
/// As [`leasehold::connect_with`](crate::connect_with), and those of [`LockClient::from_async`].
///
/// ```
/// use leasehold::LockOptions;
///
/// let options = LockOptions::new().wait(std::time::Duration::from_secs(5));
/// let client = leasehold::blocking::connect_with("memory:", options)?;
/// # let _ = client;
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn connect_with(url: &str, options: LockOptions) -> Result<LockClient, Error> {
    LockClient::from_async(async || crate::connect_with(url, options).await)
}
