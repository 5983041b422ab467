//! The parts of a tokio runtime that locks need.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::contract::error::{Error, ErrorKind};

/// Checks that the caller's tokio runtime has a timer.
///
/// A backend calls it before it connects. In a runtime without a timer, a task would panic later, while locks are held.
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
/// Returns [`ErrorKind::Unsupported`] outside a runtime, and in a runtime without a timer. The error names the remedy.
pub fn check_timer() -> Result<(), Error> {
    Handle::try_current().map_err(|error| {
        let message = "locks need a tokio runtime: call from inside one";
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    if panics(|| drop(tokio::time::sleep(Duration::ZERO))) {
        let message = "locks need a timer, which this tokio runtime lacks; build it with enable_all() or enable_time()";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Checks that the caller's tokio runtime has a timer and can use sockets.
///
/// The same as [`check_timer`], for a backend that connects to a server.
///
/// # Errors
///
/// Returns [`ErrorKind::Unsupported`] as [`check_timer`] does, and in a runtime without I/O. The error names the remedy.
pub fn check_io() -> Result<(), Error> {
    check_timer()?;
    // Without I/O, the creation of any socket panics.
    if panics(|| drop(tokio::net::UnixDatagram::unbound())) {
        let message = "locks on this store need I/O, which this tokio runtime lacks; build it with enable_all()";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Whether `probe` panics. tokio says in no other way that a runtime lacks a part.
///
/// Such a panic is not reported. Reports of panics in other threads go to the program's own hook.
#[cfg(panic = "unwind")]
fn panics(probe: impl FnOnce()) -> bool {
    /// Another thread must not keep the hook below as the program's own.
    static HOOK: Mutex<()> = Mutex::new(());

    if thread::panicking() {
        return false;
    }
    let _one_at_a_time = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let probing = thread::current().id();
    let own = Arc::new(panic::take_hook());
    let forwards = Arc::clone(&own);
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != probing {
            forwards(info);
        }
    }));
    let panicked = panic::catch_unwind(AssertUnwindSafe(probe)).is_err();
    drop(panic::take_hook());
    if let Ok(own) = Arc::try_unwrap(own) {
        panic::set_hook(own);
    }
    panicked
}

/// A panic would end the program without a word, so it is left to the first task that needs the part.
#[cfg(not(panic = "unwind"))]
fn panics(_probe: impl FnOnce()) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_missing_part_is_named_and_no_panic_is_reported() {
        static REPORTS: AtomicUsize = AtomicUsize::new(0);
        panic::set_hook(Box::new(|_| {
            REPORTS.fetch_add(1, Ordering::Relaxed);
        }));
        let bare = Builder::new_current_thread().build().unwrap();
        let timed = Builder::new_current_thread().enable_time().build().unwrap();
        let all = Builder::new_current_thread().enable_all().build().unwrap();

        let outside = check_io().unwrap_err().to_string();
        let untimed = bare.block_on(async { check_io() }).unwrap_err().to_string();
        let without_io = timed.block_on(async { check_io() }).unwrap_err().to_string();

        assert!(outside.contains("call from inside one"), "{outside}");
        assert!(untimed.contains("enable_time()"), "{untimed}");
        assert!(without_io.contains("I/O") && without_io.contains("enable_all()"), "{without_io}");
        assert!(timed.block_on(async { check_timer() }).is_ok());
        assert!(all.block_on(async { check_io() }).is_ok());
        assert_eq!(REPORTS.load(Ordering::Relaxed), 0);
        // The program's own hook is in force again.
        assert!(panic::catch_unwind(|| panic!("part of the test")).is_err());
        assert_eq!(REPORTS.load(Ordering::Relaxed), 1);
    }
}
