//! Checks of the tokio runtime.

use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::contract::error::{Error, ErrorKind};

/// Checks that the caller's tokio runtime has a timer.
///
/// A backend calls this function before it connects. Without the check, a task in a runtime without
/// a timer would panic later, when locks are already held.
///
/// ```
/// use leasehold_core::ErrorKind;
/// use leasehold_core::backend::check_timer;
///
/// let bare = tokio::runtime::Builder::new_current_thread().build()?;
/// let refused = bare.block_on(async { check_timer() }).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Unsupported);
///
/// let timed = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// timed.block_on(async { check_timer() })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] if there is no tokio runtime, or if the runtime does not have
/// a timer. The error message explains how to build a suitable runtime.
pub fn check_timer() -> Result<(), Error> {
    Handle::try_current().map_err(|error| {
        let message = "locks need a tokio runtime; make this call inside one";
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    if panics(|| drop(tokio::time::sleep(Duration::ZERO))) {
        let message = "locks need a timer, which this tokio runtime lacks; build it with enable_all() or enable_time()";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Checks that the caller's tokio runtime supports timers and I/O.
///
/// A backend for a server calls this function before it connects.
///
/// See [`check_timer`] for an example that shows the same check without I/O.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] if there is no tokio runtime, or if the runtime does not
/// support timers or I/O. The error message explains how to build a suitable runtime.
pub fn check_io() -> Result<(), Error> {
    check_timer()?;
    // In a runtime without I/O support, creating any socket panics.
    #[cfg(unix)]
    if panics(|| drop(tokio::net::UnixDatagram::unbound())) {
        let message = "locks on this store need I/O, which this tokio runtime lacks; build it with enable_all()";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Returns whether `probe` panics. Tokio does not offer any other way to detect that a runtime
/// lacks a driver.
fn panics(probe: impl FnOnce()) -> bool {
    // A second panic during unwinding would abort the process.
    !thread::panicking() && panic::catch_unwind(AssertUnwindSafe(probe)).is_err()
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_missing_part_is_named() {
        let bare = Builder::new_current_thread().build().unwrap();
        let timed = Builder::new_current_thread().enable_time().build().unwrap();
        let all = Builder::new_current_thread().enable_all().build().unwrap();

        let outside = check_io().unwrap_err().to_string();
        let untimed = bare.block_on(async { check_io() }).unwrap_err().to_string();
        let without_io = timed.block_on(async { check_io() }).unwrap_err().to_string();

        assert!(outside.contains("make this call inside one"), "{outside}");
        assert!(untimed.contains("enable_time()"), "{untimed}");
        assert!(without_io.contains("I/O") && without_io.contains("enable_all()"), "{without_io}");
        assert!(timed.block_on(async { check_timer() }).is_ok());
        assert!(all.block_on(async { check_io() }).is_ok());
    }
}
