//! The figures of a batcher.

use std::time::Duration;

/// The figures of a batcher at one moment.
///
/// Returned by [`Batcher::stats`](super::Batcher::stats).
///
/// See [`Batcher`](super::Batcher) for an example.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BatchStats {
    /// The number of requests that are queued.
    pub queued: usize,
    /// The number of batches that were taken from the queue.
    pub batches: u64,
    /// The number of requests in these batches.
    pub requests: u64,
    /// The total time that these requests were queued.
    pub waited: Duration,
}
