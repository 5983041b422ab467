//! The contract that a store fulfils, and the words in which both of its sides speak.

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
