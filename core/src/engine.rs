//! The engine, which processes every lock request in a pipeline and renews and releases the leases
//! after the call.

pub(crate) mod pipeline;

pub(crate) mod one_or_many;
pub(crate) mod request;
pub(crate) mod wait;

pub(crate) mod reentrancy;

pub(crate) mod queue;
pub(crate) mod retry_state;

pub(crate) mod acquire;

pub(crate) mod watchdog;

pub(crate) mod background;
pub(crate) mod deadline;
mod fallback_thread;
pub(crate) mod held_by_caller;
pub(crate) mod process;
pub(crate) mod record;
pub(crate) mod releases;

mod lifecycle;
