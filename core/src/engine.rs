//! The engine, which processes every lock request in a pipeline and renews and releases the leases
//! after the call.

pub(crate) mod pipeline;

pub(crate) mod few;
pub(crate) mod request;
pub(crate) mod wait;

pub(crate) mod reentrancy;

pub(crate) mod queue;
pub(crate) mod tries;

pub(crate) mod acquire;

pub(crate) mod watchdog;

pub(crate) mod deadline;
pub(crate) mod hold;
pub(crate) mod process;
pub(crate) mod reaper;
pub(crate) mod runs;
mod stand_in;
pub(crate) mod upkeep;

mod lifecycle;
