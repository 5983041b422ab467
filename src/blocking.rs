//! Locks for code without a runtime: a call that waits blocks its thread.
//!
//! All of [`leasehold_core::blocking`], and [`connect`]. See there for what is different from the async types.

pub use leasehold_core::blocking::*;

use leasehold_core::Error;

/// Connects to the store at `url`, and blocks until it has answered.
///
/// A client with options of its own is made by [`LockClient::from_async`], with
/// [`leasehold::backend`](crate::backend).
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
