//! Metrics, for a recorder of the `metrics` crate.

use std::fmt::Debug;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, Unit, counter, gauge, histogram};

use super::Observer;
use super::event::{
    Acquired, AskedKind, Forced, GrantPath, HandedOver, LongHold, LongWait, Lost, Refused,
    ReleaseFailed, Released, RenewalFailed, Renewed, Store, StoreChange, StoreError, Subject,
    Unconfirmed, Waiting, Woken,
};
use crate::contract::key::LockKey;

/// An [`Observer`] that records metrics with the installed recorder of the `metrics` crate.
///
/// [`Metrics::ALL`] lists all metrics, and the page `docs/observability.md` explains each of them.
/// Each client of a program can have its own `Metrics`. The `store` label distinguishes clients
/// that use different types of stores.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::observe::Metrics;
///
/// // Install a recorder first, for example `metrics-exporter-prometheus`.
/// let client = LockClient::builder(MemoryBackend::new()).observer(Metrics::new()).build()?;
/// client.mutex("invoice:42")?.lock().await?.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    with_key: bool,
}

/// The name, type and labels of a metric.
///
/// ```
/// use leasehold_core::observe::Metrics;
///
/// assert!(Metrics::ALL.iter().any(|metric| metric.name == "leasehold_lost_total"));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MetricSpec {
    /// The name of the metric.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: MetricKind,
    /// The labels of the metric, without `key`.
    pub labels: &'static [&'static str],
    /// A short description of the metric.
    pub help: &'static str,
    /// Whether the metric is about individual locks. Only metrics about individual locks can have
    /// the `key` label.
    pub per_key: bool,
}

/// The type of a metric.
///
/// See [`MetricSpec`] for an example that finds a counter by its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MetricKind {
    /// A number that only increases.
    Counter,
    /// A number that can increase and decrease.
    Gauge,
    /// A distribution of times, in seconds.
    Histogram,
}

const ACQUIRES: MetricSpec = counter_of_locks(
    "leasehold_acquires_total",
    &["store", "kind", "outcome"],
    "Calls for a lock, by outcome",
);
const ACQUIRE_DURATION: MetricSpec = histogram_of_locks(
    "leasehold_acquire_duration_seconds",
    &["store", "kind", "outcome"],
    "Time from the call for a lock to its outcome",
);
const WAITING: MetricSpec =
    gauge_of_locks("leasehold_waiting", &["store", "kind"], "Calls that are waiting for a lock");
const LONG_WAITS: MetricSpec = counter_of_locks(
    "leasehold_long_waits_total",
    &["store", "kind"],
    "Calls that waited longer than the limit",
);
const WAKE_UPS: MetricSpec = counter_of_locks(
    "leasehold_wake_ups_total",
    &["store", "kind", "by"],
    "Requests of waiting calls to the store, by cause",
);
const HELD: MetricSpec =
    gauge_of_locks("leasehold_held", &["store", "kind"], "Leases held by this process");
const HOLD_DURATION: MetricSpec = histogram_of_locks(
    "leasehold_hold_duration_seconds",
    &["store", "kind", "end"],
    "Time from the grant or hand-off of a lease to its end",
);
const LONG_HOLDS: MetricSpec = counter_of_locks(
    "leasehold_long_holds_total",
    &["store", "kind"],
    "Holders that held a lock longer than the limit",
);
const HAND_OVERS: MetricSpec = counter_of_locks(
    "leasehold_hand_overs_total",
    &["store", "kind"],
    "Leases handed off within the process",
);
const RENEWALS: MetricSpec = counter_of_locks(
    "leasehold_renewals_total",
    &["store", "kind", "outcome"],
    "Renewals of leases, by outcome",
);
const RENEWAL_LAG: MetricSpec = histogram_of_locks(
    "leasehold_renewal_lag_seconds",
    &["store", "kind"],
    "Time from when a renewal was first due to its confirmation",
);
const UNCONFIRMED: MetricSpec = counter_of_locks(
    "leasehold_unconfirmed_total",
    &["store", "kind"],
    "Leases that became unconfirmed after a failed renewal",
);
const LOST: MetricSpec = counter_of_locks(
    "leasehold_lost_total",
    &["store", "kind", "reason"],
    "Leases lost before their release, by reason",
);
const RELEASE_FAILURES: MetricSpec = counter_of_locks(
    "leasehold_release_failures_total",
    &["store", "retried"],
    "Releases that the store did not confirm",
);
const FORCED: MetricSpec = counter_of_locks(
    "leasehold_forced_total",
    &["store"],
    "Leases ended by an operator through this process",
);
const STORE_ERRORS: MetricSpec = MetricSpec {
    per_key: false,
    ..counter_of_locks(
        "leasehold_store_errors_total",
        &["store", "operation", "error"],
        "Failed requests to the store, by type of error",
    )
};
const STORE_UP: MetricSpec = MetricSpec {
    per_key: false,
    ..gauge_of_locks(
        "leasehold_store_up",
        &["store"],
        "1 if the store responds and grants locks, otherwise 0",
    )
};

pub(super) const POLLS: MetricSpec = MetricSpec {
    per_key: false,
    ..counter_of_locks(
        "leasehold_polls_total",
        &["store"],
        "Reads of keys that waiting calls are queued for",
    )
};
const QUEUED_REQUESTS: MetricSpec = MetricSpec {
    per_key: false,
    ..gauge_of_locks(
        "leasehold_queued_requests",
        &["store"],
        "Requests that wait to be sent in a batch",
    )
};
const BATCHES: MetricSpec = MetricSpec {
    per_key: false,
    ..counter_of_locks(
        "leasehold_batches_total",
        &["store"],
        "Batches of requests sent to the store",
    )
};
const QUEUE_DURATION: MetricSpec = MetricSpec {
    per_key: false,
    ..histogram_of_locks(
        "leasehold_queue_duration_seconds",
        &["store"],
        "Time that a request in a batch waited to be sent",
    )
};

/// The counters of individual locks, each with its label (in addition to `store` and `kind`) and
/// the values of that label.
const COUNTERS: [(MetricSpec, &str, &[&str]); 8] = [
    (
        ACQUIRES,
        "outcome",
        &["granted", "handed_over", "reentered", "busy", "cancelled", "failed", "timed_out"],
    ),
    (LONG_WAITS, "", &[""]),
    (WAKE_UPS, "by", &["poll", "push"]),
    (LONG_HOLDS, "", &[""]),
    (HAND_OVERS, "", &[""]),
    (RENEWALS, "outcome", &["renewed", "failed"]),
    (UNCONFIRMED, "", &[""]),
    (LOST, "reason", &["expired", "max_hold", "shutdown", "taken", "vanished"]),
];

/// The label values for the operations and errors in [`STORE_ERRORS`].
const REQUESTS: [&str; 3] = ["acquire", "release", "renew"];
const ERRORS: [&str; 6] =
    ["denied", "indeterminate", "refused", "unavailable", "unexpected", "wrong_type"];

impl Metrics {
    /// All metrics.
    pub const ALL: &[MetricSpec] = &[
        ACQUIRES,
        ACQUIRE_DURATION,
        WAITING,
        LONG_WAITS,
        WAKE_UPS,
        HELD,
        HOLD_DURATION,
        LONG_HOLDS,
        HAND_OVERS,
        RENEWALS,
        RENEWAL_LAG,
        UNCONFIRMED,
        LOST,
        RELEASE_FAILURES,
        FORCED,
        STORE_ERRORS,
        STORE_UP,
        POLLS,
        QUEUED_REQUESTS,
        BATCHES,
        QUEUE_DURATION,
    ];

    /// Creates the observer, and describes all metrics to the recorder that is currently installed.
    #[expect(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Self {
        for MetricSpec { name, kind, help, .. } in Self::ALL {
            match kind {
                MetricKind::Counter => metrics::describe_counter!(*name, *help),
                MetricKind::Gauge => metrics::describe_gauge!(*name, *help),
                MetricKind::Histogram => {
                    metrics::describe_histogram!(*name, Unit::Seconds, *help);
                }
            }
        }
        Self { with_key: false }
    }

    /// Adds the `key` label to all metrics about individual locks.
    ///
    /// Use the `key` label only if the set of keys is small and fixed. Each key creates additional
    /// time series, which the recorder never removes.
    #[must_use]
    pub fn with_key_label(mut self) -> Self {
        self.with_key = true;
        self
    }

    /// Creates all counters of a lock type with the value 0. If a counter were created only at its
    /// first event, monitoring systems would not see that event as an increase.
    fn create_counters(lock: &[Label], kind: AskedKind) {
        for (metric, label, values) in COUNTERS {
            for value in values {
                let mut labels = lock.to_vec();
                labels.push(Label::from_static_parts("kind", kind.name()));
                if !label.is_empty() {
                    labels.push(Label::from_static_parts(label, value));
                }
                counter!(metric.name, labels).increment(0);
            }
        }
    }

    /// Creates the counters of failed releases and of forced releases.
    fn create_counters_of_releases(lock: &[Label]) {
        counter!(FORCED.name, lock.to_vec()).increment(0);
        for retried in ["false", "true"] {
            let mut labels = lock.to_vec();
            labels.push(Label::from_static_parts("retried", retried));
            counter!(RELEASE_FAILURES.name, labels).increment(0);
        }
    }

    fn labels<const N: usize>(&self, lock: &Subject<'_>, more: [Label; N]) -> Vec<Label> {
        let mut labels = self.labels_of_key(lock.store, lock.key);
        labels.push(Label::from_static_parts("kind", lock.kind.name()));
        labels.extend(more);
        labels
    }

    fn labels_of_key(&self, store: &'static str, key: &LockKey) -> Vec<Label> {
        let mut labels = vec![Label::from_static_parts("store", store)];
        if self.with_key {
            labels.push(Label::new("key", key.to_string()));
        }
        labels
    }

    fn count<const N: usize>(&self, metric: MetricSpec, lock: &Subject<'_>, more: [Label; N]) {
        counter!(metric.name, self.labels(lock, more)).increment(1);
    }

    fn change(&self, metric: MetricSpec, lock: &Subject<'_>, by: f64) {
        gauge!(metric.name, self.labels(lock, [])).increment(by);
    }

    fn time<const N: usize>(
        &self,
        metric: MetricSpec,
        lock: &Subject<'_>,
        more: [Label; N],
        time: Duration,
    ) {
        histogram!(metric.name, self.labels(lock, more)).record(time);
    }

    /// Records the outcome of a call.
    fn outcome(&self, lock: &Subject<'_>, outcome: &'static str, took: Duration, waited: bool) {
        let outcome = || [Label::from_static_parts("outcome", outcome)];
        self.count(ACQUIRES, lock, outcome());
        self.time(ACQUIRE_DURATION, lock, outcome(), took);
        if waited {
            self.change(WAITING, lock, -1.0);
        }
    }

    /// Records that a holder no longer holds its lease.
    fn ended(&self, lock: &Subject<'_>, end: &'static str, held: Duration) {
        self.time(HOLD_DURATION, lock, [Label::from_static_parts("end", end)], held);
    }
}

impl Observer for Metrics {
    fn on_start(&self, store: &'static str) {
        let of_store = [Label::from_static_parts("store", store)];
        for metric in [POLLS, BATCHES] {
            counter!(metric.name, of_store.to_vec()).increment(0);
        }
        for (operation, error) in REQUESTS.iter().flat_map(|it| ERRORS.map(|error| (it, error))) {
            let mut labels = of_store.to_vec();
            labels.push(Label::from_static_parts("operation", operation));
            labels.push(Label::from_static_parts("error", error));
            counter!(STORE_ERRORS.name, labels).increment(0);
        }
        // The counters of a key are created when the key is first used.
        if !self.with_key {
            Self::create_counters_of_releases(&of_store);
            AskedKind::ALL.into_iter().for_each(|kind| Self::create_counters(&of_store, kind));
        }
    }

    fn on_waiting(&self, Waiting { lock, .. }: &Waiting<'_>) {
        self.change(WAITING, lock, 1.0);
    }

    fn on_long_wait(&self, LongWait { lock, .. }: &LongWait<'_>) {
        self.count(LONG_WAITS, lock, []);
    }

    fn on_woken(&self, Woken { lock, by }: &Woken<'_>) {
        self.count(WAKE_UPS, lock, [Label::from_static_parts("by", by.name())]);
    }

    fn on_acquired(&self, Acquired { lock, path, took, waited, .. }: &Acquired<'_>) {
        if *path == GrantPath::Granted && self.with_key {
            let of_key = self.labels_of_key(lock.store, lock.key);
            Self::create_counters_of_releases(&of_key);
            Self::create_counters(&of_key, lock.kind);
        }
        self.outcome(lock, path.name(), *took, *waited);
        if *path == GrantPath::Granted {
            self.change(HELD, lock, 1.0);
        }
    }

    fn on_refused(&self, Refused { lock, why, took, waited, .. }: &Refused<'_>) {
        self.outcome(lock, why.name(), *took, *waited);
    }

    fn on_handed_over(&self, HandedOver { lock, held, .. }: &HandedOver<'_>) {
        self.count(HAND_OVERS, lock, []);
        self.ended(lock, "handed_over", *held);
    }

    fn on_long_hold(&self, LongHold { lock, .. }: &LongHold<'_>) {
        self.count(LONG_HOLDS, lock, []);
    }

    fn on_renewed(&self, Renewed { lock, lag, .. }: &Renewed<'_>) {
        self.count(RENEWALS, lock, [Label::from_static_parts("outcome", "renewed")]);
        self.time(RENEWAL_LAG, lock, [], *lag);
    }

    fn on_renewal_failed(&self, RenewalFailed { lock, .. }: &RenewalFailed<'_>) {
        self.count(RENEWALS, lock, [Label::from_static_parts("outcome", "failed")]);
    }

    fn on_unconfirmed(&self, Unconfirmed { lock, .. }: &Unconfirmed<'_>) {
        self.count(UNCONFIRMED, lock, []);
    }

    fn on_lost(&self, Lost { lock, reason, held, .. }: &Lost<'_>) {
        self.count(LOST, lock, [Label::new("reason", snake_case(reason))]);
        self.change(HELD, lock, -1.0);
        self.ended(lock, "lost", *held);
    }

    fn on_released(&self, Released { lock, held, .. }: &Released<'_>) {
        self.change(HELD, lock, -1.0);
        self.ended(lock, "released", *held);
    }

    fn on_release_failed(&self, ReleaseFailed { store, key, retried, .. }: &ReleaseFailed<'_>) {
        let retried = if *retried { "true" } else { "false" };
        let mut labels = self.labels_of_key(store, key);
        labels.push(Label::from_static_parts("retried", retried));
        counter!(RELEASE_FAILURES.name, labels).increment(1);
    }

    fn on_forced(&self, Forced { store, key, .. }: &Forced<'_>) {
        counter!(FORCED.name, self.labels_of_key(store, key)).increment(1);
    }

    fn on_store_error(&self, StoreError { store, operation, error }: &StoreError<'_>) {
        let labels = vec![
            Label::from_static_parts("store", store),
            Label::new("operation", snake_case(operation)),
            Label::new("error", snake_case(&error.kind())),
        ];
        counter!(STORE_ERRORS.name, labels).increment(1);
    }

    fn on_store(&self, Store { store, change }: &Store<'_>) {
        let up = matches!(change, StoreChange::Up { .. });
        gauge!(STORE_UP.name, "store" => *store).set(if up { 1.0 } else { 0.0 });
    }
}

/// The metrics of the queue in front of a store. Queues with the same store label share them.
pub(crate) struct QueueMetrics {
    /// The number of queued requests.
    pub(crate) queued: Gauge,
    /// The number of sent batches.
    pub(crate) batches: Counter,
    /// How long each request of a sent batch was queued. The number of values divided by the number
    /// of batches is the mean size of a batch.
    pub(crate) waited: Histogram,
}

impl QueueMetrics {
    /// Creates the metrics in the recorder that is currently installed.
    pub(crate) fn new(store: &'static str) -> Self {
        Self {
            queued: gauge!(QUEUED_REQUESTS.name, "store" => store),
            batches: counter!(BATCHES.name, "store" => store),
            waited: histogram!(QUEUE_DURATION.name, "store" => store),
        }
    }
}

const fn counter_of_locks(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind: MetricKind::Counter, labels, help, per_key: true }
}

const fn gauge_of_locks(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind: MetricKind::Gauge, labels, help, per_key: true }
}

const fn histogram_of_locks(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricSpec {
    MetricSpec { name, kind: MetricKind::Histogram, labels, help, per_key: true }
}

/// Returns the name of a variant without fields, in the format of a label value.
fn snake_case(variant: &impl Debug) -> String {
    let mut label = String::new();
    for (at, char) in format!("{variant:?}").char_indices() {
        if char.is_ascii_uppercase() && at > 0 {
            label.push('_');
        }
        label.push(char.to_ascii_lowercase());
    }
    label
}
