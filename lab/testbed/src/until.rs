//! Waits for a condition.

use std::fmt;
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// The upper bound for any awaited condition, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Short beside the wait, long beside the cost of a look.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds.
///
/// # Panics
///
/// If it does not after a minute; `name` names the condition in the message, and is formatted only then.
pub async fn until<F>(name: impl fmt::Display, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    until_some(name, || {
        let holds = condition();
        async { holds.await.then_some(()) }
    })
    .await;
}

/// Waits until `look` finds something, and returns it.
///
/// # Panics
///
/// If it does not after a minute; `name` names the condition in the message, and is formatted only then.
pub async fn until_some<T, F>(name: impl fmt::Display, mut look: impl FnMut() -> F) -> T
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
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not so after {PATIENCE:?}: {name}"))
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
