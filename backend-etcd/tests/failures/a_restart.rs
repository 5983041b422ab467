//! A cluster that is started anew.

use super::*;

#[tokio::test]
async fn keeps_locks_and_lets_tokens_go_on() {
    let mut etcd = Etcd::start().await;
    let client = client(&etcd.url(), Duration::from_secs(6)).await;
    let held = lock(&client, "held").await;
    let mut last = held.token().number();

    for _ in 0..3 {
        etcd.restart().await;
        let guard = lock(&client, "job").await;
        assert!(guard.token().number() > last);
        last = guard.token().number();
        drop(guard);
    }

    renewed(&held).await;
    held.release().await.unwrap();
}
