//! Leaders and the ends of their terms.

use super::*;

#[tokio::test(start_paused = true)]
async fn that_resign_hand_over_without_any_time_passing() {
    let fixture = Fixture::new();
    let term = fixture.process(options()).0.election("k").unwrap().campaign("first").await.unwrap();
    let successor = fixture.process(options()).0.election("k").unwrap();
    let waiting = tokio::spawn(async move { successor.campaign("second").await.unwrap() });
    pass(ms(5_000)).await;

    let resigned_at = fixture.clock.now();
    let token = term.token().number();
    term.resign().await.unwrap();
    let term = waiting.await.unwrap();

    assert_eq!(fixture.clock.now(), resigned_at);
    assert!(term.token().number() > token);
    assert_eq!(term.value().as_str(), "second");
}

#[tokio::test(start_paused = true)]
async fn that_are_dropped_resign() {
    let fixture = Fixture::new();
    let term = fixture.process(options()).0.election("k").unwrap().campaign("first").await.unwrap();
    let successor = fixture.process(options()).0.election("k").unwrap();
    let waiting = tokio::spawn(async move { successor.campaign("second").await.unwrap() });
    pass(ms(1)).await;

    let dropped_at = fixture.clock.now();
    drop(term);
    waiting.await.unwrap().resign().await.unwrap();

    assert_eq!(fixture.clock.now(), dropped_at);
}

#[tokio::test(start_paused = true)]
async fn that_die_know_it_before_they_are_succeeded_after_their_ttl() {
    let fixture = Fixture::new();
    let (dying, faults) = fixture.process(options());
    let elected_at = fixture.clock.now();
    let term = dying.election("k").unwrap().campaign("dying").await.unwrap();
    let clock = fixture.clock;
    let lost = tokio::spawn({
        let lost = term.lost();
        async move { (lost.await, clock.now()) }
    });
    // Nothing that it says arrives any more, and it never resigns.
    for operation in [Operation::Renew, Operation::Release] {
        faults.inject(operation, Fault::Fail(ErrorKind::Unavailable), 10_000);
    }
    let successor = fixture.process(options()).0.election("k").unwrap();

    let next = successor.campaign("next").await.unwrap();

    let succeeded_at = fixture.clock.now();
    let (reason, lost_at) = lost.await.unwrap();
    assert_eq!(reason, Some(LossReason::Expired));
    assert!(lost_at < elected_at + TTL && lost_at < succeeded_at);
    assert!(succeeded_at >= elected_at + TTL);
    assert!(succeeded_at <= elected_at + TTL + TICK * 2, "{succeeded_at:?}");
    assert_eq!(term.state(), LeaseState::Lost(LossReason::Expired));
    assert!(next.is_held() && next.token().number() > term.token().number());
    std::mem::forget(term);
}

#[tokio::test(start_paused = true)]
async fn lead_for_as_long_as_they_renew() {
    let fixture = Fixture::new();
    let election = fixture.process(options()).0.election("k").unwrap();
    let term = election.campaign("v").await.unwrap();

    pass(TTL * 10).await;

    assert_eq!(term.state(), LeaseState::Held);
    assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "v");
}

#[tokio::test(start_paused = true)]
async fn hear_of_requests_to_resign() {
    let fixture = Fixture::new();
    let client = fixture.process(options()).0;
    let term = client.election("k").unwrap().campaign("v").await.unwrap();

    client.request_revocation("k").await.unwrap();
    term.revocation_requested().await;

    assert!(term.is_revocation_requested() && term.is_held());
}

#[tokio::test(start_paused = true)]
async fn are_shown_with_their_value_lease_and_time() {
    let fixture = Fixture::new();
    let election = fixture.process(options()).0.election("k").unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
    let term = election.campaign("v").await.unwrap();
    pass(ms(1_000)).await;

    let leader = election.leader().await.unwrap().unwrap();

    assert_eq!(leader.value(), &term.value());
    assert_eq!(leader.remaining(), Some(TTL - ms(1_000)));
    let shown = format!("{term:?}");
    assert!(shown.contains(&leader.fingerprint().to_string()), "{shown}");
    term.resign().await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn are_not_made_out_where_another_kind_of_lock_lies() {
    let fixture = Fixture::new();
    let client = fixture.process(options()).0;
    let election = client.election("k").unwrap();

    let reader = client.rw_lock("k").unwrap().read().await.unwrap();
    let another = client.rw_lock("k").unwrap().read().await.unwrap();
    assert_eq!(election.leader().await.unwrap_err().kind(), ErrorKind::WrongType);
    drop(another);
    pass(ms(1)).await;
    assert_eq!(election.leader().await.unwrap_err().kind(), ErrorKind::WrongType);
    drop(reader);
    pass(ms(1)).await;
    let _mutex = client.mutex("k").unwrap().lock().await.unwrap();
    assert_eq!(election.leader().await.unwrap_err().kind(), ErrorKind::WrongType);
    let refused = Error::from(election.try_campaign("v").await.unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::WrongType);
}
