//! The lock types, each of which is a thin layer over the engine.

pub(crate) mod handle;

pub mod election;
pub(crate) mod multi_lock;
pub(crate) mod mutex;
pub(crate) mod reentrant_mutex;
pub(crate) mod rw_lock;
pub(crate) mod semaphore;
pub(crate) mod striped;

pub(crate) mod guard;
