//! Panics of a backend.

use super::*;

#[tokio::test(start_paused = true)]
async fn of_a_renewal_leave_the_watchdog_of_all_others_running() {
    let Fixture { client, faults, .. } = Fixture::new();
    let guard = client.mutex("k").unwrap().lock().await.unwrap();
    let other = client.mutex("other").unwrap().lock().await.unwrap();
    faults.inject(Operation::Renew, Fault::Panic, 2);

    tokio::time::sleep(TTL * 3).await;

    assert!(guard.is_held() && other.is_held());
}

#[tokio::test(start_paused = true)]
async fn of_a_release_leave_the_reaper_running() {
    let Fixture { client, faults, .. } = Fixture::new();
    let (one, other) = (client.mutex("one").unwrap(), client.mutex("other").unwrap());
    let guards = (one.lock().await.unwrap(), other.lock().await.unwrap());
    faults.inject(Operation::Release, Fault::Panic, 1);

    drop(guards);
    tokio::time::sleep(Duration::from_millis(10)).await;

    let free = async |mutex: &Mutex| mutex.try_lock().await.is_ok();
    assert!(free(&one).await || free(&other).await, "both are left to their TTL");
}
