//! The metrics of a batcher, which are recorded if the `metrics` feature is enabled.

#[cfg(feature = "metrics")]
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(feature = "metrics")]
use crate::observe::QueueMetrics;

/// Records the metrics of one batcher.
///
/// A recorder is foreign code, so the mutex of the batcher must not be locked during a call to
/// these methods, or while a [`Queued`] is dropped.
pub(super) struct Meter {
    #[cfg(feature = "metrics")]
    store: &'static str,
    /// The metrics of the recorder that was installed when the first request was queued.
    #[cfg(feature = "metrics")]
    metrics: OnceLock<QueueMetrics>,
}

/// A request that counts as queued until this value is dropped.
pub(super) struct Queued(#[cfg(feature = "metrics")] metrics::Gauge);

#[cfg(feature = "metrics")]
impl Meter {
    pub(super) fn new(store: &'static str) -> Self {
        Self { store, metrics: OnceLock::new() }
    }

    pub(super) fn queued(&self) -> Queued {
        let queued = self.metrics().queued.clone();
        queued.increment(1.0);
        Queued(queued)
    }

    /// Records a batch, and how long each of its requests was queued.
    pub(super) fn sent(&self, waited: impl Iterator<Item = Duration>) {
        let metrics = self.metrics();
        metrics.batches.increment(1);
        waited.for_each(|waited| metrics.waited.record(waited));
    }

    fn metrics(&self) -> &QueueMetrics {
        self.metrics.get_or_init(|| QueueMetrics::new(self.store))
    }
}

#[cfg(feature = "metrics")]
impl Drop for Queued {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

#[cfg(not(feature = "metrics"))]
impl Meter {
    pub(super) fn new(_store: &'static str) -> Self {
        Self {}
    }

    pub(super) fn queued(&self) -> Queued {
        Queued()
    }

    pub(super) fn sent(&self, _waited: impl Iterator<Item = Duration>) {}
}
