//! The pause after a conflict.

use std::time::Duration;

use tokio::time::sleep;

/// The longest pause.
const LONGEST: Duration = Duration::from_millis(128);

/// Waits for a random time, which becomes longer with each attempt.
pub(crate) async fn pause(attempt: u32) {
    let longest = Duration::from_millis(1 << attempt.min(7)).min(LONGEST);
    sleep(longest.mul_f64(fastrand::f64())).await;
}
