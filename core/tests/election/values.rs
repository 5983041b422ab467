//! Values that leaders proclaim.

use super::*;

#[tokio::test(start_paused = true)]
async fn that_are_proclaimed_are_seen_at_once_and_after_later_renewals() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let observing = fixture.process(options()).0.election("k").unwrap();
    let mut observer = observing.observe();
    let term = client.election("k").unwrap().campaign("one").await.unwrap();
    assert_eq!(told(&mut observer).await, value("one"));

    term.proclaim("two").await.unwrap();

    assert_eq!(term.value().as_str(), "two");
    assert_eq!(observing.leader().await.unwrap().unwrap().value().as_str(), "two");
    assert_eq!(told(&mut observer).await, value("two"));
    let renewals = faults.calls(Operation::Renew);
    pass(TTL * 2).await;
    assert!(faults.calls(Operation::Renew) > renewals + 3);
    assert_eq!(observing.leader().await.unwrap().unwrap().value().as_str(), "two");
    assert!(is_quiet_for(&mut observer, TTL).await);
    term.resign().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn that_the_store_did_not_answer_are_carried_by_the_next_renewal() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::SwallowRequest] {
        let fixture = Fixture::new();
        let (client, faults) = fixture.process(options());
        let election = client.election("k").unwrap();
        let term = election.campaign("one").await.unwrap();
        faults.inject(Operation::Renew, fault, 1);

        let error = term.proclaim("two").await.unwrap_err();

        assert!(error.is_retryable(), "{error}");
        assert_eq!(error.operation(), Some(Operation::Renew));
        assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "one");
        assert_eq!((term.state(), term.value().as_str()), (LeaseState::Unconfirmed, "two"));
        pass(TTL / 3).await;
        assert_eq!(term.state(), LeaseState::Held, "{fault:?}");
        assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "two");
    }
}

#[tokio::test(start_paused = true)]
async fn that_are_proclaimed_at_once_come_in_the_order_of_asking() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let election = client.election("k").unwrap();
    let term = election.campaign("0").await.unwrap();
    faults.inject(Operation::Renew, Fault::DelayRequest(ms(50)), 1);

    let (one, two) = tokio::join!(term.proclaim("1"), term.proclaim("2"));

    assert!(one.is_ok() && two.is_ok());
    assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "2");
}

#[tokio::test(start_paused = true)]
async fn are_not_proclaimed_by_former_leaders() {
    let fixture = Fixture::new();
    let client = fixture.process(options()).0;
    let term = client.election("k").unwrap().campaign("one").await.unwrap();
    client.admin().force_release("k", "test").await.unwrap();

    let error = term.proclaim("two").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert!(client.election("k").unwrap().leader().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn that_cannot_be_are_refused_before_anything_is_sent() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let election = client.election("k").unwrap();
    let term = client.election("other").unwrap().campaign("x".repeat(256)).await.unwrap();
    let requests = || faults.calls(Operation::Acquire) + faults.calls(Operation::Renew);
    let before = requests();

    for text in [String::new(), "x".repeat(257), "two\nlines".to_owned()] {
        let refused = [
            election.campaign(&text).await.unwrap_err(),
            election.try_campaign(&text).await.unwrap_err().into(),
            election.try_campaign_for(&text, TTL).await.unwrap_err().into(),
            election.run_leader(&text, async |_| ()).await.unwrap_err(),
            term.proclaim(text.as_str()).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text:?}");
            assert!(error.key().is_some() && error.operation().is_some());
        }
    }

    assert_eq!(requests(), before);
    assert_eq!(term.value().as_str(), "x".repeat(256));
}
