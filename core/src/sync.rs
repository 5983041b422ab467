//! The synchronization primitives of this crate.
//!
//! The concurrency models (`core/src/models.rs`) replace this module, and `shuttle` then decides
//! which thread runs next. Counters that only create ids do not use this module.

#[cfg(all(test, shuttle))]
mod modelled;
#[cfg(not(all(test, shuttle)))]
mod native;

#[cfg(all(test, shuttle))]
pub(crate) use modelled::{
    Handle, Id, JoinHandle, Mutex, Notify, atomic, get_mut, lock, scheduling_point,
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use native::{Handle, Id, JoinHandle, Mutex, Notify, atomic, get_mut, lock};
