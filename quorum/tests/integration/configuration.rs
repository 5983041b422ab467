//! Quorums that cannot be, or not of these members.

use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_core::backend::{Claim, JoinRequest, Lease, LockBackend, Member as _, Mode, StoreId};
use leasehold_quorum::Quorum;

use crate::servers::{MAX_TTL, Member, Servers, State, TTL, client_of, key, lock_once};

#[test]
fn even_number_of_members_is_refused() {
    for count in [0, 1, 2, 4] {
        let error = Servers::start(count).builder().build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{count}: {error}");
    }
}

#[test]
fn members_of_one_name_are_refused() {
    let servers = Servers::start(3);
    let members = ["a", "b", "a"].into_iter().zip(servers.members());

    let error = Quorum::builder(members).build().unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test(start_paused = true)]
async fn one_server_under_two_names_is_refused() {
    let mut servers = Servers::start(3);
    servers.0[2] = servers.0[0].clone();

    let error = lock_once(&servers.client()).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("a and c are the same server"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn members_of_another_quorum_are_refused() {
    let servers = Servers::found(3).await;
    let other = ["a", "b", "d"].into_iter().zip(servers.members());
    let other = client_of(Quorum::builder(other).max_ttl(MAX_TTL).build().unwrap());

    for _ in 0..2 {
        let error = lock_once(&other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("a, b, c"), "{error}");
    }

    lock_once(&servers.client()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn new_member_in_place_of_another_is_refused() {
    let mut servers = Servers::found(3).await;
    servers.0[2] = Servers::start(1).0.remove(0);
    let other = ["a", "b", "d"].into_iter().zip(servers.members());
    let other = client_of(Quorum::builder(other).max_ttl(MAX_TTL).build().unwrap());

    assert_eq!(lock_once(&other).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn another_longest_ttl_is_refused() {
    let servers = Servers::found(3).await;
    let other = client_of(servers.builder().max_ttl(2 * MAX_TTL).build().unwrap());

    assert_eq!(lock_once(&other).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn first_lock_needs_all_members() {
    let servers = Servers::start(3);
    let client = servers.client();
    servers.0[1].set(State::Down);
    assert_eq!(lock_once(&client).await.unwrap_err().kind(), ErrorKind::Unavailable);

    servers.0[1].set(State::Up);
    lock_once(&client).await.unwrap();

    servers.0[1].set(State::Down);
    lock_once(&client).await.unwrap();
    lock_once(&servers.client()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_data_does_not_join_with_its_old_identity() {
    let store = Servers::found(3).await.0.remove(0).store;
    let before = store.status(StoreId::new()).await.unwrap();
    let configuration = before.configuration().unwrap().clone();
    let request = JoinRequest::new(before.store(), configuration);
    store.wipe();

    // Two clients that know of no loss, or one whose request comes twice.
    for _ in 0..2 {
        let after = store.join(&request).await.unwrap();

        assert_ne!(after.store(), before.store());
        assert_eq!(after.configuration(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn permits_and_readers_are_refused_with_a_reason() {
    let quorum = Servers::found(3).await.quorum();
    for mode in [Mode::READER, Mode::WRITER, Mode::Units { units: 1, limit: 3 }] {
        let claim = Claim::new(Lease::new(&key(), TTL).with_mode(mode));
        let error = quorum.acquire(&claim).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("mutexes only"), "{error}");
    }
    let client = client_of(quorum);
    let semaphore = client.semaphore(key(), 3).unwrap_err();
    let rw_lock = client.rw_lock(key()).unwrap_err();
    for error in [semaphore, rw_lock] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("mutexes only"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn ttl_above_the_longest_is_refused() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    let long = client.options().ttl(MAX_TTL + Duration::from_secs(1));

    assert_eq!(
        client.mutex(key()).unwrap().with_options(long).unwrap_err().kind(),
        ErrorKind::Invalid
    );
}

#[test]
fn quorums_can_be_sent_to_threads() {
    fn check<T: Send + Sync>() {}
    check::<Quorum<Member>>();
}
