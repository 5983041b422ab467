//! The one way in which the threads of this crate share state.
//!
//! The models of concurrency (`core/src/models.rs`) replace it: `shuttle` then decides which thread runs next. Counters that only make
//! ids stay outside of it.

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
