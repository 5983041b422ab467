//! Waiting for what will be so.

use std::fmt;
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// What takes longer than this will never be, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Short beside what is waited for, long beside what a look costs.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds.
///
/// # Panics
///
/// If it does not after a minute; `what` says then what is missing, and is asked for it only then.
pub async fn until<F>(what: impl fmt::Display, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    until_some(what, || {
        let holds = condition();
        async { holds.await.then_some(()) }
    })
    .await;
}

/// Waits until `look` finds something, and returns it.
///
/// # Panics
///
/// If it does not after a minute; `what` says then what is missing, and is asked for it only then.
pub async fn until_some<T, F>(what: impl fmt::Display, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not so after {PATIENCE:?}: {what}"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_condition_that_takes_a_while_is_waited_for() {
        let looks = Cell::new(0);

        until("looked at three times", async || looks.replace(looks.get() + 1) == 2).await;
        let found = until_some("a fourth look", async || Some(looks.get())).await;

        assert_eq!(found, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "pigs fly")]
    async fn a_condition_that_never_holds_is_told() {
        until("pigs fly", async || false).await;
    }
}
