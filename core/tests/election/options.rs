//! Options of elections, allowed and refused.

use super::*;

#[tokio::test(start_paused = true)]
async fn without_renewal_end_a_leadership_at_its_deadline() {
    let fixture = Fixture::new();
    let unrenewed = LockOptions::new().ttl(TTL).renewal(RenewalMode::Off);
    let (client, faults) = fixture.process(unrenewed);
    let election = client.election("k").unwrap();
    let term = election.campaign("one").await.unwrap();
    pass(TTL / 2).await;
    // Since no retry follows, a late answer is better than none.
    faults.inject(Operation::Renew, Fault::DelayReply(TTL / 3), 1);
    term.proclaim("two").await.unwrap();
    let deadline = term.deadline();

    assert_eq!(term.lost().await, Some(LossReason::Expired));

    assert_eq!(fixture.clock.now(), deadline);
    // Proclaiming is a renewal too.
    assert!(election.leader().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn keep_an_election_closed_for_min_hold() {
    let fixture = Fixture::new();
    let closed = LockOptions::new().ttl(TTL).min_hold(ms(5_000));
    let election = fixture.process(closed).0.election("k").unwrap();
    let elected_at = fixture.clock.now();
    election.campaign("one").await.unwrap().resign().await.unwrap();

    let _term = fixture.process(options()).0.election("k").unwrap().campaign("two").await.unwrap();

    assert!(fixture.clock.now() >= elected_at + ms(5_000));
}

#[tokio::test(start_paused = true)]
async fn keep_the_last_value_while_min_hold_keeps_an_election_closed() {
    let fixture = Fixture::new();
    let closed = LockOptions::new().ttl(TTL).min_hold(ms(5_000));
    let election = fixture.process(closed).0.election("k").unwrap();
    let term = election.campaign("one").await.unwrap();
    term.proclaim("another").await.unwrap();

    term.resign().await.unwrap();

    let shown = fixture.process(options()).0.election("k").unwrap().leader().await.unwrap();
    assert_eq!(shown.unwrap().value().as_str(), "another");
}

#[test]
fn that_the_store_cannot_fulfil_are_refused_before_anything_is_sent() {
    let all = [Feature::Units, Feature::Queue];
    let bare = Capabilities::new("declared", Fencing::Strict);
    let declared = all.iter().fold(bare, |store, feature| store.with(*feature));
    let electing = |capabilities| {
        let Fixture { client, requests, .. } = Fixture::declaring(capabilities, options());
        let election = client.election("k");
        assert!(requests.is_empty());
        election
    };
    assert!(electing(declared.clone()).is_ok());

    for missing in all {
        let error = electing(declared.clone().without(missing)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("does not support elections"), "{missing:?}: {error}");
    }
    let without_admin = FaultBackend::new(MemoryBackend::new()).without_facets();
    let error = LockClient::new(without_admin).election("k").unwrap_err();
    assert!(error.to_string().contains("does not support elections"), "{error}");
    let client = LockClient::new(MemoryBackend::new());
    let impossible = LockOptions::new().ttl(Duration::ZERO);
    let refused = client.election("k").unwrap().with_options(impossible).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(client.election("").unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test(start_paused = true)]
async fn of_the_client_do_not_end_a_candidacy_or_a_leadership() {
    let fixture = Fixture::new();
    let limited = options().wait(ms(2_000)).max_hold(TTL * 2);
    let (client, _) = fixture.process(limited);
    let elections = [
        client.election("k").unwrap(),
        client.election("k").unwrap().with_options(client.options().fair(true)).unwrap(),
    ];
    let term = fixture.process(options()).0.election("k").unwrap().campaign("one").await.unwrap();

    for election in elections {
        let standby = tokio::spawn(async move { election.campaign("two").await });
        pass(TTL * 3).await;
        assert!(!standby.is_finished(), "the standby gave up");
        standby.abort();
    }
    term.resign().await.unwrap();
    let term = client.election("k").unwrap().campaign("two").await.unwrap();
    pass(TTL * 3).await;

    assert_eq!(term.state(), LeaseState::Held);
}

#[tokio::test(start_paused = true)]
async fn of_the_election_itself_limit_it() {
    let fixture = Fixture::new();
    let (client, _) = fixture.process(options());
    let limited = client.options().wait(ms(2_000)).max_hold(TTL * 2);
    let election = client.election("k").unwrap().with_options(limited).unwrap();
    let term = election.campaign("one").await.unwrap();

    assert_eq!(election.campaign("two").await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(term.lost().await, Some(LossReason::MaxHold));
}
