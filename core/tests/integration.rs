//! The behaviour of the layers on stores in memory, in one binary: each file or folder is a subject.

mod attempts;
mod batcher;
mod batches;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "_simulation")]
mod bounded;
mod client;
mod election;
mod fixture;
mod hand_over;
mod in_order;
mod multi_lock;
mod news;
mod observe;
mod options;
mod outages;
mod queue;
mod runtimes;
mod sessions;
mod stress;
mod striped;
mod time;
mod under_the_lock;
mod user_code;
