//! Callers that give up.

use super::*;

#[tokio::test(start_paused = true)]
async fn at_any_point_leaves_nothing() {
    for fault in [Fault::DelayRequest(ms(10)), Fault::DelayReply(ms(10)), Fault::LoseReply] {
        for polls in 0.. {
            let fixture = fixture_with(options().min_hold(TTL / 2));
            fixture.faults.inject(Operation::Acquire, fault, 1);
            let whole = three(&fixture);

            let locked = dropped_after(polls, whole.lock()).await;

            match locked {
                None => assert_eq!(fixture.left().await, 0, "{fault:?}, {polls} polls"),
                Some(guard) => {
                    assert!(polls > 1, "{fault:?}, {polls} polls");
                    drop(guard);
                    break;
                }
            }
            fixture.faults.heal();
            assert!(whole.try_lock().await.is_ok(), "{fault:?}, {polls} polls");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_any_point_of_a_contended_call_leaves_nothing() {
    drop_contended_calls_at_any_point(fixture).await;
}

#[tokio::test(start_paused = true)]
async fn by_a_shutdown_leaves_nothing() {
    for fault in [Fault::DelayReply(ms(1_000)), Fault::SwallowReply, Fault::SwallowRequest] {
        let fixture = fixture();
        fixture.faults.inject(Operation::Acquire, fault, 1);
        let whole = three(&fixture);
        let waiting = tokio::spawn(async move { whole.lock().await.unwrap_err().kind() });
        tokio::time::sleep(ms(100)).await;

        fixture.client.shutdown(TTL).await.unwrap();

        assert_eq!(waiting.await.unwrap(), ErrorKind::Closed);
        assert_eq!(fixture.store.keys(), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn by_a_shutdown_ends_held_leases() {
    let fixture = fixture();
    let guard = three(&fixture).lock().await.unwrap();

    fixture.client.shutdown(TTL).await.unwrap();

    assert_eq!(guard.lost().await.unwrap().1, LossReason::Shutdown);
    assert_eq!(fixture.store.keys(), 0);
    assert_eq!(three(&fixture).lock().await.unwrap_err().kind(), ErrorKind::Closed);
}
