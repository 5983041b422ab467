//! A cluster that is started anew.

use super::*;

#[tokio::test]
async fn keeps_locks_and_lets_tokens_go_on() {
    let mut etcd = Etcd::start().await;
    // The lease lasts longer than all restarts, so the test renews it, not the watchdog.
    let client = client(&patiently(&etcd.url()), LONG).await;
    let held = lock(&client, "held").await;
    let mut last = held.token().number();

    for _ in 0..3 {
        etcd.kill();
        let error = held.extend(LONG).await.unwrap_err();
        assert!(error.is_retryable() && held.is_held(), "{error}");
        etcd.restart().await;
        let guard = lock(&client, "job").await;
        assert!(guard.token().number() > last);
        last = guard.token().number();
        drop(guard);
        held.extend(LONG).await.unwrap();
        assert_eq!(held.state(), LeaseState::Held);
    }

    held.release().await.unwrap();
}
