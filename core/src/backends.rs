//! The backends that do not need a server: the in-memory backend, and two backends that wrap other
//! backends.

pub mod fault;
pub mod memory;
