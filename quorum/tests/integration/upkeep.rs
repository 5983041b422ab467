//! Leases that are held: renewals, repairs, and the end.

use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_core::backend::{Claim, Lease, LockBackend, Release, Renewal, StoreAdmin};
use tokio::time::sleep;

use crate::servers::{MAX_TTL, Servers, State, TTL, key, lock_once};

#[tokio::test(start_paused = true)]
async fn lock_outlives_a_rolling_restart_of_all_members() {
    let servers = Servers::found(5).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();

    for server in &servers.0 {
        server.set(State::Down);
        sleep(TTL * 3 / 2).await;
        // Away for longer than a lease, with its data.
        assert!(!server.store.inspect(&key()).await.unwrap().is_held());
        server.set(State::Up);
        sleep(TTL).await;
        assert!(guard.is_held());
    }

    assert_eq!(servers.holding(&key()).await, 5);
    guard.release().await.unwrap();
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn lock_outlives_the_loss_of_all_data_one_member_after_the_other() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();

    for server in &servers.0 {
        server.store.wipe();
        // A client locks from time to time, and takes the member back.
        for _ in 0..8 {
            sleep(MAX_TTL / 4).await;
            let other = leasehold_core::LockKey::new("other").unwrap();
            client.mutex(other).unwrap().lock().await.unwrap().release().await.unwrap();
        }
        assert!(guard.is_held());
        assert_eq!(servers.holding(&key()).await, 3);
    }

    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn lease_that_a_majority_lost_is_given_back_by_the_others() {
    let servers = Servers::found(3).await;
    let (client, quorum) = (servers.client(), servers.quorum());
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    for server in &servers.0[..2] {
        server.store.force_release(&key(), None).await.unwrap();
    }

    assert_eq!(quorum.renew(guard.lease()).await.unwrap(), Renewal::Vanished);

    quorum.close().await;
    assert_eq!(servers.holding(&key()).await, 0);
    assert_eq!(quorum.release(guard.lease()).await.unwrap(), Release::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn slow_member_keeps_its_lease() {
    let servers = Servers::found(5).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[1].set(State::Slow(Duration::from_millis(20)));

    for _ in 0..10 {
        sleep(TTL / 2).await;
        assert_eq!(servers.holding(&key()).await, 5);
    }
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn slow_member_grants_a_lost_lease_again() {
    let servers = Servers::found(5).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[1].set(State::Slow(Duration::from_millis(20)));
    servers.0[1].store.force_release(&key(), None).await.unwrap();
    assert_eq!(servers.holding(&key()).await, 4);

    sleep(TTL / 2).await;

    assert_eq!(servers.holding(&key()).await, 5);
    guard.release().await.unwrap();
    sleep(TTL / 10).await;
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn slow_member_grants_no_released_lease_again() {
    let servers = Servers::found(3).await;
    let (quorum, lease) = (servers.quorum(), Lease::new(&key(), TTL));
    quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    servers.0[1].store.force_release(&key(), None).await.unwrap();
    servers.0[1].set(State::Slow(Duration::from_millis(20)));
    assert_eq!(quorum.renew(&lease).await.unwrap(), Renewal::Renewed);
    servers.0[1].set(State::Up);

    assert_eq!(quorum.release(&lease).await.unwrap(), Release::Released);

    quorum.close().await;
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn repair_under_way_is_given_back_when_the_lease_is_lost() {
    let servers = Servers::found(3).await;
    let (quorum, lease) = (servers.quorum(), Lease::new(&key(), TTL));
    quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    servers.0[0].store.force_release(&key(), None).await.unwrap();
    assert_eq!(quorum.renew(&lease).await.unwrap(), Renewal::Renewed);
    servers.0[0].set(State::Slow(Duration::from_millis(50)));
    sleep(Duration::from_millis(1)).await;
    servers.0[0].set(State::Up);
    for server in &servers.0[1..] {
        server.store.force_release(&key(), None).await.unwrap();
    }

    assert_eq!(quorum.renew(&lease).await.unwrap(), Renewal::Vanished);

    quorum.close().await;
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn dead_member_is_no_reason_not_to_wait_for_a_slow_one() {
    let servers = Servers::found(3).await;
    let (quorum, lease) = (servers.quorum(), Lease::new(&key(), TTL));
    quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    servers.0[1].set(State::Silent);
    quorum.renew(&lease).await.unwrap();
    quorum.inspect(&key()).await.unwrap();
    servers.0[1].set(State::Slow(Duration::from_millis(20)));
    servers.0[2].set(State::Down);

    assert_eq!(quorum.renew(&lease).await.unwrap(), Renewal::Renewed);
}

#[tokio::test(start_paused = true)]
async fn renewal_without_a_majority_stays_unknown() {
    let servers = Servers::found(3).await;
    let (quorum, lease) = (servers.quorum(), Lease::new(&key(), TTL));
    quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    servers.0[..2].iter().for_each(|server| server.set(State::Silent));

    let renewal = quorum.renew(&lease).await.unwrap_err();
    let release = quorum.release(&lease).await.unwrap_err();

    assert_eq!(renewal.kind(), ErrorKind::Indeterminate);
    assert_eq!(release.kind(), ErrorKind::Indeterminate);
}

#[tokio::test(start_paused = true)]
async fn forced_release_is_below_all_later_tokens() {
    let servers = Servers::found(5).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[4].set(State::Down);

    let forced = client.admin().force_release(key(), "test").await.unwrap();

    let min_token = forced.min_token().unwrap();
    assert_eq!(forced.ended().len(), 1);
    assert!(guard.token().number() < min_token);
    servers.0[4].set(State::Up);
    servers.0[..2].iter().for_each(|server| server.set(State::Down));
    assert!(lock_once(&servers.client()).await.unwrap() >= min_token);
}

#[tokio::test(start_paused = true)]
async fn slow_member_delays_no_renewal() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[1].set(State::Slow(Duration::from_secs(60)));

    sleep(TTL * 5).await;

    assert!(guard.is_held());
    guard.release().await.unwrap();
}
