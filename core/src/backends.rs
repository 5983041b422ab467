//! The backends that need no server: the reference of all stores, and two that are made of other backends.

pub mod fault;
pub mod memory;
pub mod quorum;
