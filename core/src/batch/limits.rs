//! The limits of batches.

use std::time::Duration;

/// The limits of a batcher.
///
/// See [`Batcher`](super::Batcher) for an example.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    pub(super) requests: usize,
    pub(super) weight: usize,
    pub(super) queued: usize,
    pub(super) time: Duration,
}

impl BatchLimits {
    /// The default for [`with_queued`](Self::with_queued).
    pub const DEFAULT_QUEUED: usize = 65_536;

    /// Creates limits without a maximum for the size of a batch.
    ///
    /// `time` is the longest time that one batch may take. If no lane has made progress for this
    /// time, the runtime of the lanes is considered stalled, and new lanes replace the existing
    /// lanes.
    pub const fn new(time: Duration) -> Self {
        Self { requests: usize::MAX, weight: usize::MAX, queued: Self::DEFAULT_QUEUED, time }
    }

    /// Limits the number of requests in a batch. If the limit is 1, each request is sent
    /// separately.
    #[must_use]
    pub fn with_requests(self, requests: usize) -> Self {
        Self { requests: requests.max(1), ..self }
    }

    /// Limits the total [weight](super::SendBatch::weight) of the requests in a batch. A request
    /// that is heavier than the limit is sent separately.
    #[must_use]
    pub fn with_weight(self, weight: usize) -> Self {
        Self { weight, ..self }
    }

    /// Limits the number of queued requests. [Urgent](super::SendBatch::is_urgent) requests are
    /// counted separately, so that a queue full of acquisitions does not prevent a renewal. If the
    /// queue is full, further requests are rejected.
    #[must_use]
    pub fn with_queued(self, queued: usize) -> Self {
        Self { queued, ..self }
    }
}
