//! The verbs.

pub(crate) mod acl;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod hold;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod tables;
pub(crate) mod top;
#[cfg(feature = "verify")]
pub(crate) mod verify;
pub(crate) mod watch;
