//! The guard of a segment.

use super::*;

#[tokio::test(start_paused = true)]
async fn is_that_of_a_mutex() {
    let fixture = Fixture::new();
    let guard = segments(&fixture, 2).lock().await.unwrap();

    assert!(guard.is_held());
    assert_eq!(guard.remaining(), TTL - DRIFT);
    fixture.client.backend().expire(guard.key()).await.unwrap();
    assert_eq!(guard.lost().await, Some(LossReason::Vanished));
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::LeaseLost);
}

#[tokio::test(start_paused = true)]
async fn is_there_while_work_is_run_and_gone_afterwards() {
    let fixture = Fixture::new();
    let striped = segments(&fixture, 2);
    fixture.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 999);

    let worked = striped.run(async |guard| guard.is_held()).await;

    assert!(worked.unwrap(), "a release that fails takes nothing away");
    fixture.faults.heal();
    assert_eq!(fixture.left().await, 0);
    let lost = striped.run(async |guard| {
        fixture.client.backend().expire(guard.key()).await.unwrap();
        std::future::pending::<()>().await;
    });
    assert_eq!(lost.await.unwrap_err().kind(), ErrorKind::LeaseLost);
}

/// Futures that users spawn must be `Send`, the closure form included.
#[tokio::test]
async fn may_be_awaited_for_in_a_task() {
    const fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Striped>();
    assert_send_sync::<StripedGuard>();
    let client = LockClient::new(MemoryBackend::new()).into_dyn();
    let striped = client.striped("stock", 2).unwrap();

    let spawned = tokio::spawn(async move {
        striped.lock().await.unwrap().release().await.unwrap();
        striped.try_lock_for(ms(1)).await.unwrap().release().await.unwrap();
        striped.run(async |guard| guard.segment()).await.unwrap()
    });

    assert!(spawned.await.unwrap() < 2);
}
