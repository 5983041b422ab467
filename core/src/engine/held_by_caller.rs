//! The locks that the currently running code holds through `run`. Code that holds a lock and waits
//! for the same lock would deadlock.

use std::sync::Arc;

use crate::contract::backend::Mode;
use crate::contract::key::LockKey;
use crate::contract::owner::OwnerId;
use crate::engine::background::Background;
use crate::engine::record::LeaseRecord;

/// A lock that is released only after the work under it has finished.
#[derive(Clone, Debug)]
pub(crate) struct HeldByCaller {
    /// Identifies the client by the address of its state.
    client: usize,
    record: Arc<LeaseRecord>,
}

impl HeldByCaller {
    pub(crate) fn under(record: &Arc<LeaseRecord>, background: &Arc<Background>) -> Self {
        Self { client: identity(background), record: Arc::clone(record) }
    }
}

tokio::task_local! {
    /// Sorted from the outermost to the innermost lock.
    static RUNS: Vec<HeldByCaller>;
}

/// Runs `work` under the locks `inner`, in addition to the locks under which the caller runs.
pub(crate) async fn within<F: Future>(
    inner: impl Iterator<Item = HeldByCaller>,
    work: F,
) -> F::Output {
    RUNS.scope(and(inner), work).await
}

/// Runs synchronous `work`, like [`within`].
#[cfg(feature = "blocking")]
pub(crate) fn sync_within<T>(
    inner: impl Iterator<Item = HeldByCaller>,
    work: impl FnOnce() -> T,
) -> T {
    RUNS.sync_scope(and(inner), work)
}

/// Returns the locks under which the caller runs, followed by `inner`.
fn and(inner: impl Iterator<Item = HeldByCaller>) -> Vec<HeldByCaller> {
    let mut runs = RUNS.try_with(Clone::clone).unwrap_or_default();
    runs.extend(inner);
    runs
}

/// Returns whether the caller runs under a lock of this client that excludes `mode` of `key`, so
/// that the caller would wait for itself.
pub(crate) fn excludes(
    background: &Arc<Background>,
    key: &LockKey,
    mode: Mode,
    owner: Option<OwnerId>,
) -> bool {
    let client = identity(background);
    let keeps_out = |run: &HeldByCaller| {
        let (held, by) = (run.record.mode(), run.record.owner());
        run.client == client
            && run.record.lease().key() == key
            && is_full(held, mode)
            // An owner can lock its own locks again.
            && (by.is_none() || by != owner)
            && !run.record.is_over(background.now())
    };
    RUNS.try_with(|runs| runs.iter().any(keeps_out)).unwrap_or_default()
}

/// Returns whether `held` does not leave enough capacity for `wanted`. Locks of different kinds do
/// not wait for each other.
fn is_full(held: Mode, wanted: Mode) -> bool {
    match (held, wanted) {
        (Mode::Exclusive, Mode::Exclusive) => true,
        (Mode::Units { units: held, .. }, Mode::Units { units, limit }) => {
            u64::from(held) + u64::from(units) > u64::from(limit)
        }
        (Mode::Exclusive, Mode::Units { .. }) | (Mode::Units { .. }, Mode::Exclusive) => false,
    }
}

fn identity(background: &Arc<Background>) -> usize {
    Arc::as_ptr(background).addr()
}
