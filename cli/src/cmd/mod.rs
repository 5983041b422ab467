//! The verbs.

pub(crate) mod exec;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod status;
