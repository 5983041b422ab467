//! One request for all.

use super::*;
use leasehold_core::backend::StoreAdmin as _;

#[tokio::test(start_paused = true)]
async fn takes_all_that_is_free() {
    for added in [["a", "b", "c"], ["c", "b", "a"]] {
        let fixture = fixture();
        let whole = fixture.client.multi_lock().mutexes(added).unwrap();

        let guard = whole.lock().await.unwrap();

        assert_eq!(fixture.faults.calls(Operation::Acquire), 1);
        assert!(guard.guards().iter().map(|part| part.key().as_str()).eq(KEYS));
        assert_eq!(closed(&fixture).await, KEYS);
        guard.release().await.unwrap();
        assert_eq!(fixture.log(), [ALL, "-c", "-b", "-a"]);
        assert_eq!(fixture.left().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn is_made_however_one_asks() {
    let fixture = fixture();
    let whole = three(&fixture);

    whole.try_lock().await.unwrap().release().await.unwrap();
    whole.try_lock_for(ms(10)).await.unwrap().release().await.unwrap();
    whole.run(async |guard| assert!(guard.is_held())).await.unwrap();

    assert_eq!(fixture.faults.calls(Operation::Acquire), 3);
}

#[tokio::test(start_paused = true)]
async fn takes_locks_of_all_kinds_where_the_store_can() {
    let fixture = fixture();
    let whole = fixture.client.multi_lock().write("a").unwrap().mutex("b").unwrap();
    let whole = whole.permits("c", 2, 3).unwrap().read("d").unwrap();

    let guard = whole.lock().await.unwrap();

    assert_eq!(fixture.log(), ["+a+b+c+d"]);
    assert_eq!(guard.get("c").unwrap().units(), 2);
    // Where there is room beside us, others of this process have their turn.
    let semaphore = fixture.client.semaphore("c", 3).unwrap();
    let permit = semaphore.try_acquire_for(1, ms(10)).await.unwrap();
    permit.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(fixture.left().await, 0);
}

#[tokio::test(start_paused = true)]
async fn is_not_made_for_one_part() {
    let fixture = fixture();

    let _guard = fixture.client.multi_lock().mutex("a").unwrap().lock().await.unwrap();

    assert_eq!(fixture.log(), ["+a"]);
}

#[tokio::test(start_paused = true)]
async fn becomes_one_for_each_part_where_the_store_cannot() {
    let fixture = Fixture::one_by_one();

    let _guard = three(&fixture).lock().await.unwrap();

    assert_eq!(fixture.log(), ["+a", "+b", "+c"]);
    assert_eq!(fixture.faults.calls(Operation::Acquire), 3);
}

#[tokio::test(start_paused = true)]
async fn that_the_store_does_not_know_is_no_error() {
    // For example, a decorator that declares the feature but does not forward `acquire_all`.
    let Fixture { client, faults, .. } = fixture();
    faults.on_request(|request| match request {
        Request::AcquireAll(_) => Err(Error::new(ErrorKind::Unsupported, "not forwarded")),
        request => Ok(request),
    });
    let whole = client.multi_lock().mutexes(KEYS).unwrap();

    for guard in [Ok(whole.lock().await.unwrap()), whole.try_lock().await] {
        let Ok(guard) = guard.map_err(|error| error.into_busy().unwrap()) else { continue };
        assert_eq!(guard.guards().len(), 3);
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn gives_tokens_that_grow() {
    let fixture = fixture();
    let mut last = [0; 3];
    for _ in 0..3 {
        let guard = three(&fixture).lock().await.unwrap();
        for (part, last) in guard.guards().iter().zip(&mut last) {
            assert!(part.token().number() > *last);
            *last = part.token().number();
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn gives_leases_as_single_requests_do() {
    let delay = ms(5_000);
    let fixture = fixture_with(options().lock_delay(delay).max_hold(TTL * 2));
    fixture.faults.inject(Operation::Acquire, Fault::DelayReply(ms(1_000)), 1);

    let asked_at = fixture.clock.now();
    let guard = three(&fixture).lock().await.unwrap();

    for part in guard.guards() {
        assert_eq!(part.deadline(), asked_at + TTL - DRIFT, "counted from before the request");
        let inspection = fixture.store.inspect(part.key()).await.unwrap();
        let remaining = inspection.holders()[0].remaining();
        assert_eq!(remaining, Some(TTL + delay - ms(1_000)));
    }
    tokio::time::sleep(TTL).await;
    assert!(guard.is_held(), "the watchdog renews them");
    assert_eq!(guard.lost().await, Some((key("a"), LossReason::MaxHold)));
    assert_eq!(fixture.clock.now(), asked_at + TTL * 2 - DRIFT);
}

#[tokio::test(start_paused = true)]
async fn gives_leases_whose_loss_is_noticed() {
    for lost in KEYS {
        let fixture = fixture();
        let guard = three(&fixture).lock().await.unwrap();

        let asked_at = fixture.clock.now();
        fixture.client.backend().expire(&key(lost)).await.unwrap();

        assert_eq!(guard.lost().await, Some((key(lost), LossReason::Vanished)));
        assert!(fixture.clock.now().since(asked_at) < ms(100), "the store told");
    }
}
