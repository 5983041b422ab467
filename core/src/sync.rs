//! The synchronization primitives of this crate.
//!
//! The concurrency models (`core/src/models.rs`) replace this module, so that `shuttle` can decide
//! which thread runs next.

#[cfg(all(test, shuttle))]
mod modelled;
#[cfg(not(all(test, shuttle)))]
mod native;

#[cfg(all(test, shuttle))]
pub(crate) use modelled::{
    Handle, Id, JoinHandle, Mutex, Notify, atomic, get_mut, lock, scheduling_point, timeout,
    yield_now,
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use native::{
    Handle, Id, JoinHandle, Mutex, Notify, atomic, get_mut, lock, timeout, yield_now,
};
