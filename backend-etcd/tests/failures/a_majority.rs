//! A cluster without a majority.

use super::*;

#[tokio::test]
async fn that_is_away_for_a_while_is_waited_for() {
    let etcd = three_members().await;
    let client = client(&etcd.url(), LONG).await;
    lock(&client, "warm-up").await.release().await.unwrap();
    etcd.pause_member(1);
    etcd.pause_member(2);
    let mutex = client.mutex("job").unwrap();
    let error = Error::from(mutex.try_lock().await.unwrap_err());
    assert!(error.is_retryable(), "{error}");

    let acquiring = waiting(&client, "job");
    sleep(Duration::from_secs(2)).await;
    assert!(!acquiring.is_finished());
    etcd.resume();

    let granted = timeout(Duration::from_secs(10), acquiring).await;
    let_go(granted.expect("it asks again").unwrap()).await;
}

#[tokio::test]
async fn that_is_away_for_longer_than_the_ttl_ends_the_lock_for_good() {
    measure(async || {
        let etcd = three_members().await;
        let ttl = Duration::from_secs(3);
        let (holder, other) = (client(&etcd.url(), ttl).await, client(&etcd.url(), ttl).await);
        let guard = lock(&holder, "job").await;

        etcd.pause_member(0);
        etcd.pause_member(1);
        let by_its_deadline = guard.remaining() + PROMPT;
        let lost = Stalls::watch().promptly("the loss", by_its_deadline, guard.lost()).await?;
        assert_eq!(lost, Some(LossReason::Expired));
        etcd.resume();

        let next = timeout(Duration::from_secs(15), lock(&other, "job")).await;
        let next = next.expect("it is free again");
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        assert!(next.token() > guard.token());
        renewed(&next).await;
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert!(next.is_held());
        next.release().await.unwrap();
        Ok(())
    })
    .await;
}
