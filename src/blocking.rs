//! Lock types for code without an async runtime. A call that waits for a lock blocks its thread.
//!
//! This module re-exports [`leasehold_core::blocking`] and adds [`connect`] and [`connect_with`].
//! The documentation of [`leasehold_core::blocking`] lists the differences from the async types.

pub use leasehold_core::blocking::*;

use leasehold_core::{Error, LockOptions};

/// Connects to the store at `url`. Blocks the thread until the store responds.
///
/// # Errors
///
/// Returns [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the URL is not valid, and
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store's Cargo feature is
/// disabled. Returns [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if the store cannot
/// be reached, and [`ErrorKind::Denied`](crate::ErrorKind::Denied) if the store rejects the
/// credentials. [`LockClient::from_async`] lists the errors that only the blocking client can
/// return.
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

/// Connects to the store at `url` and uses `options` for all locks that do not set their own.
///
/// # Errors
///
/// Returns the errors of [`connect`]. Also returns
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) or
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the options are not valid for this
/// store.
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
