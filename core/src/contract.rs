//! The contract between Leasehold and a store, and the types that both sides use.

pub mod backend;

pub(crate) mod busy;
pub(crate) mod description;
pub(crate) mod error;
pub(crate) mod holder;
pub(crate) mod inspection;
pub(crate) mod key;
pub(crate) mod loss;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod token;
pub(crate) mod try_lock_error;
