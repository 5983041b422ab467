//! Members are restarted while a lock is held.

use std::time::Duration;

use leasehold_core::{LockGuard, TryLockError};
use leasehold_testbed::{RedisOptions, until};
use tokio::time::sleep;

use super::servers::Servers;

/// A member has a twelfth of it to answer, with a file that is flushed each time.
const TTL: Duration = Duration::from_secs(9);

#[tokio::test]
async fn a_lock_is_held_through_a_rolling_restart() {
    let mut servers = Servers::start(5, &RedisOptions::new().append_only()).await;
    let (client, other) = (servers.client(TTL).await, servers.client(TTL).await);
    let guard = client.mutex("job").unwrap().lock().await.unwrap();
    let token = guard.token().number();
    let value = servers.value(0, "job").await;

    for number in 0..5 {
        servers.0[number].kill();
        // The lease of this member ends: it has to be granted there again.
        while_held(&guard, TTL + TTL / 10).await;
        servers.0[number].restart().await;
        assert_eq!(servers.value(number, "job").await, "$-1", "an ended lease");
        until(format!("server {number} has the lease again"), async || {
            assert!(guard.is_held(), "server {number} came back: {:?}", guard.state());
            servers.value(number, "job").await == value
        })
        .await;
        assert!(matches!(other.mutex("job").unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    }

    assert_eq!(guard.token().number(), token);
    guard.release().await.unwrap();
    let next = other.mutex("job").unwrap().lock().await.unwrap();
    assert!(next.token().number() > token);
    next.release().await.unwrap();
}

/// Looks at the guard for so long.
async fn while_held(guard: &LockGuard, time: Duration) {
    for _ in 0..20 {
        sleep(time / 20).await;
        assert!(guard.is_held(), "{:?}", guard.state());
    }
}
