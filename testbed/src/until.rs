//! Waiting for what will be so.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// What takes longer than this will never be. Leases of tests are shorter.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` holds.
///
/// # Panics
///
/// If it does not after twenty seconds; `what` says then what is missing.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting)
        .await
        .unwrap_or_else(|_| panic!("not so after {PATIENCE:?}: {what}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_takes_a_while_is_waited_for() {
        let mut looks = 0;

        until("looked at three times", async || {
            looks += 1;
            looks == 3
        })
        .await;

        assert_eq!(looks, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "pigs fly")]
    async fn what_never_is_so_is_told() {
        until("pigs fly", async || false).await;
    }
}
