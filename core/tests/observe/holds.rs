//! Leases, from the grant to the end.

use super::*;

#[tokio::test(start_paused = true)]
async fn are_renewed_with_the_lag_of_a_round_trip() {
    let observed = Observed::new();
    let _guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
    observed.told();
    observed.faults.inject(Operation::Renew, Fault::DelayReply(ms(40)), 1);

    pass(RENEWAL + ms(50)).await;

    assert_eq!(observed.told(), ["renewed #1, lag 40ms"]);
}

#[tokio::test(start_paused = true)]
async fn that_are_not_renewed_are_unconfirmed_once_until_they_are() {
    let observed = Observed::new();
    let _guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
    observed.told();
    observed.faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 2);

    pass(RENEWAL + ms(5_100)).await;

    let told = observed.told();
    assert_eq!(
        told[..4],
        [
            "not renewed #1: Unavailable",
            "unconfirmed #1: Some(Unavailable), 19 left",
            "renew failed: Unavailable",
            "down at renew"
        ]
    );
    assert_eq!(told[4..6], ["not renewed #1: Unavailable", "renew failed: Unavailable"]);
    assert!(told[6].starts_with("renewed #1, lag 5"), "two pauses: {told:?}");
    assert!(told[7].starts_with("up after 5"), "{told:?}");
    assert_eq!(told.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn that_run_out_are_lost_after_the_last_renewal() {
    let observed = Observed::new();
    let guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
    observed.faults.set_lasting(Some(Fault::Fail(ErrorKind::Unavailable)));

    pass(TTL).await;

    assert!(!guard.is_held());
    let told = observed.told();
    let lost: Vec<_> = told.iter().filter(|line| line.starts_with("lost")).collect();
    assert_eq!(lost, ["lost #1: Expired after 29.698s"]);
    drop(guard);
    pass(TTL).await;
    assert!(!observed.told().iter().any(|line| line.starts_with("released")));
}

#[tokio::test(start_paused = true)]
async fn that_an_operator_ends_are_forced_and_lost() {
    let observed = Observed::new();
    let _guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
    observed.told();
    pass(ms(100)).await;

    observed.client.admin().force_release("k", "it hangs").await.unwrap();
    pass(ms(100)).await;

    let told = observed.told();
    assert!(told[0].starts_with("forced k of ") && told[0].ends_with(": it hangs"), "{told:?}");
    assert!(told[1].starts_with("lost #1: Vanished after 1"), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn that_last_are_told_of_once_per_holder_unless_they_lead() {
    // Between two renewals, and at the very time of one.
    for long in [RENEWAL * 3 / 2, RENEWAL * 2] {
        let observed = Observed::with(|builder| builder.long_hold(long));
        let guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
        let _term = observed.client.election("e").unwrap().campaign("host-1").await.unwrap();

        pass(RENEWAL * 5).await;
        let told = observed.told();
        guard.release().await.unwrap();

        let long: Vec<_> = told.iter().filter(|line| line.starts_with("long")).collect();
        assert_eq!(long, ["long hold #1 of 20"]);
    }
}

#[tokio::test(start_paused = true)]
async fn whose_release_fails_are_released_in_the_background() {
    let observed = Observed::new();
    let guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
    observed.told();
    observed.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 1_000);

    assert!(guard.release().await.is_err());
    pass(TTL).await;

    let told = observed.told();
    assert_eq!(
        told[..3],
        ["released #1 after 0ns", "release failed: Unavailable", "down at release"]
    );
    assert!(told.contains(&"not released k: Unavailable, tries again".to_owned()));
    assert_eq!(told.last().unwrap(), "not released k: Unavailable, gives up");
}

#[tokio::test(start_paused = true)]
async fn that_the_store_refuses_to_release_are_left_to_their_ttl() {
    let observed = Observed::new();
    let guard = observed.client.mutex("k").unwrap().lock().await.unwrap();
    observed.told();
    observed.faults.inject(Operation::Release, Fault::Fail(ErrorKind::Denied), 1);

    drop(guard);
    pass(ms(1)).await;

    assert_eq!(
        observed.told(),
        ["released #1 after 0ns", "release failed: Denied", "not released k: Denied, gives up"]
    );
}
