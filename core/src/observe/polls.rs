//! Counts the polls of backends.

#[cfg(feature = "metrics")]
use super::metrics::POLLS;

/// Counts a read of a key for which a call of this process is queued, in the metric
/// `leasehold_polls_total`. Has no effect without the Cargo feature `metrics`.
///
/// A backend calls this function if its store does not notify waiters. `store` is the name of the
/// store in [`Capabilities`](crate::backend::Capabilities).
///
/// ```
/// leasehold_core::observe::count_poll("mysql");
/// ```
#[cfg_attr(not(feature = "metrics"), expect(unused_variables, reason = "only metrics count polls"))]
pub fn count_poll(store: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(POLLS.name, "store" => store).increment(1);
}
