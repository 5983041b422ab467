//! Observers of a leader.

use super::*;

/// A whole story. With news nothing takes any time; without, each chapter is seen by the next poll.
async fn follow(news: Notifications, at_most: Duration) {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    faults.set_notifications(news);
    let mut observer = client.election("k").unwrap().observe();
    assert_eq!(told(&mut observer).await, None);
    let (a, b) = (
        fixture.process(options()).0.election("k").unwrap(),
        fixture.process(options()).0.election("k").unwrap(),
    );
    let clock = fixture.clock;
    let mut quickly = async |expected: Option<String>| {
        let since = clock.now();
        assert_eq!(told(&mut observer).await, expected);
        assert!(clock.now() <= since + at_most + TICK, "it took too long");
    };

    let term = a.campaign("A").await.unwrap();
    quickly(value("A")).await;
    term.proclaim("A'").await.unwrap();
    quickly(value("A'")).await;
    term.resign().await.unwrap();
    quickly(None).await;
    let term = b.campaign("B").await.unwrap();
    quickly(value("B")).await;
    let waiting = tokio::spawn(async move { a.campaign("B").await.unwrap() });
    pass(ms(1)).await;
    term.resign().await.unwrap();
    // Another leader with the same value, whether or not the moment without one was seen.
    let term = waiting.await.unwrap();
    quickly(value("B")).await;

    term.resign().await.unwrap();
    quickly(None).await;
    assert!(is_quiet_for(&mut observer, TTL).await);
}

#[tokio::test(start_paused = true)]
async fn are_told_of_every_change_at_once_where_there_is_news() {
    // The least that looks are apart.
    follow(Notifications::True, ms(10)).await;
}

#[tokio::test(start_paused = true)]
async fn are_told_of_every_change_within_a_second_where_there_is_none() {
    follow(Notifications::Muted, ms(1_000)).await;
}

#[tokio::test(start_paused = true)]
async fn are_told_of_events_before_their_first_call() {
    let fixture = Fixture::new();
    let client = fixture.process(options()).0;
    let election = client.election("k").unwrap();
    let mut observer = election.observe();

    let _term = election.campaign("v").await.unwrap();

    assert_eq!(told(&mut observer).await, value("v"));
}

#[tokio::test(start_paused = true)]
async fn see_a_dead_leader_go_when_its_lease_ends() {
    let fixture = Fixture::new();
    let (dying, faults) = fixture.process(LockOptions::new().ttl(ms(500)));
    let mut observer = fixture.process(options()).0.election("k").unwrap().observe();
    let elected_at = fixture.clock.now();
    let term = dying.election("k").unwrap().campaign("v").await.unwrap();
    assert_eq!(told(&mut observer).await, value("v"));
    for operation in [Operation::Renew, Operation::Release] {
        faults.inject(operation, Fault::Fail(ErrorKind::Unavailable), 10_000);
    }

    assert_eq!(told(&mut observer).await, None);

    // Not only after the second that polls are apart.
    let seen_at = fixture.clock.now();
    assert!(seen_at >= elected_at + ms(500) && seen_at <= elected_at + ms(502) + TICK);
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn are_told_nothing_of_a_flood_of_news_that_changes_nothing() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    faults.set_notifications(Notifications::Scripted);
    let election = client.election("k").unwrap();
    let mut observer = election.observe();
    assert_eq!(told(&mut observer).await, None);
    let before = faults.calls(Operation::Inspect);

    let flood = async {
        for _ in 0..1_000 {
            faults.notify_falsely(election.key());
            pass(ms(1)).await;
        }
    };
    tokio::select! {
        told = observer.next() => panic!("it was told {told:?}"),
        () = flood => {}
    }

    let looks = faults.calls(Operation::Inspect) - before;
    assert!((50..=110).contains(&looks), "{looks} looks in a second");
}

#[tokio::test(start_paused = true)]
async fn hear_nothing_of_outages_that_are_soon_over() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let mut observer = client.election("k").unwrap().observe();
    assert_eq!(told(&mut observer).await, None);
    let term = fixture.process(options()).0.election("k").unwrap().campaign("0").await.unwrap();
    assert_eq!(told(&mut observer).await, value("0"));

    for next in ["1", "2", "3"] {
        faults.inject(Operation::Inspect, Fault::Fail(ErrorKind::Unavailable), 10_000);
        term.proclaim(next).await.unwrap();
        assert!(is_quiet_for(&mut observer, OUTAGE_WAIT - ms(10)).await);
        faults.heal();

        let healed_at = fixture.clock.now();
        assert_eq!(told(&mut observer).await, value(next));
        assert!(fixture.clock.now() <= healed_at + ms(1_000) + TICK);
    }
}

#[tokio::test(start_paused = true)]
async fn hear_of_an_outage_that_lasts_and_then_go_on() {
    for fault in [Fault::Fail(ErrorKind::Indeterminate), Fault::SwallowRequest] {
        let fixture = Fixture::new();
        let (client, faults) = fixture.process(options());
        let mut observer = client.election("k").unwrap().observe();
        assert_eq!(told(&mut observer).await, None);
        faults.inject(Operation::Inspect, fault, 10_000);

        for _ in 0..3 {
            let since = fixture.clock.now();
            let error = observer.next().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Indeterminate);
            assert_eq!(error.operation(), Some(Operation::Inspect));
            assert!(error.key().is_some() && error.backend().is_some());
            let took = fixture.clock.now().since(since);
            assert!(took >= OUTAGE_WAIT && took <= OUTAGE_WAIT + ms(7_000), "{took:?}");
        }
        faults.heal();

        assert!(is_quiet_for(&mut observer, TTL).await, "nothing has changed");
        let _term =
            fixture.process(options()).0.election("k").unwrap().campaign("v").await.unwrap();
        assert_eq!(told(&mut observer).await, value("v"));
    }
}

#[tokio::test(start_paused = true)]
async fn report_a_final_refusal_at_once_and_do_not_spin() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let mut observer = client.election("k").unwrap().observe();
    faults.inject(Operation::Inspect, Fault::Fail(ErrorKind::Denied), 10_000);

    let since = fixture.clock.now();
    assert_eq!(observer.next().await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(fixture.clock.now(), since);
    for _ in 0..10 {
        assert_eq!(observer.next().await.unwrap_err().kind(), ErrorKind::Denied);
    }

    assert!(fixture.clock.now().since(since) >= ms(25) * 10);
    faults.heal();
    assert_eq!(told(&mut observer).await, None);
}

#[tokio::test(start_paused = true)]
async fn that_are_dropped_and_asked_again_at_any_point_miss_nothing() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    let election = fixture.process(options()).0.election("k").unwrap();
    for delay in [Fault::DelayRequest(ms(5)), Fault::DelayReply(ms(5))] {
        for dropped_after in 0..20 {
            let mut observer = client.election("k").unwrap().observe();
            assert_eq!(told(&mut observer).await, None);
            faults.inject(Operation::Inspect, delay, 1);

            let observing = tokio::time::timeout(ms(dropped_after), observer.next());
            let acting = async {
                pass(ms(1)).await;
                election.campaign("v").await.unwrap()
            };
            let (early, term) = tokio::join!(observing, acting);
            let since = fixture.clock.now();
            let seen = match early {
                Ok(leader) => leader.unwrap().map(|leader| leader.value().to_string()),
                Err(_) => told(&mut observer).await,
            };

            assert_eq!(seen, value("v"), "dropped after {dropped_after} ms, {delay:?}");
            // By the news, and not only by the next poll.
            assert!(
                fixture.clock.now() <= since + ms(20),
                "{:?}",
                fixture.clock.now().since(since)
            );
            term.resign().await.unwrap();
            faults.heal();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn are_told_when_the_client_is_shut_down() {
    let fixture = Fixture::new();
    let client = fixture.process(options()).0;
    let mut observer = client.election("k").unwrap().observe();
    assert_eq!(told(&mut observer).await, None);
    let waiting = tokio::spawn(async move {
        let first = observer.next().await.unwrap_err();
        (first.kind(), observer.next().await.unwrap_err().kind())
    });
    pass(ms(100)).await;

    client.shutdown(TTL).await.unwrap();

    assert_eq!(waiting.await.unwrap(), (ErrorKind::Closed, ErrorKind::Closed));
}

#[tokio::test(start_paused = true)]
async fn may_be_streams() {
    let fixture = Fixture::new();
    let client = fixture.process(options()).0;
    let election = fixture.process(options()).0.election("k").unwrap();
    let stream = client.election("k").unwrap().observe().into_stream();
    let collecting = tokio::spawn(async move {
        let stream = stream.map(|told| match told {
            Ok(leader) => Ok(leader.map(|leader| leader.value().to_string())),
            Err(error) => Err(error.kind()),
        });
        stream.collect::<Vec<_>>().await
    });
    pass(ms(100)).await;

    let term = election.campaign("A").await.unwrap();
    pass(ms(100)).await;
    term.resign().await.unwrap();
    pass(ms(100)).await;
    client.shutdown(TTL).await.unwrap();

    let expected = [Ok(None), Ok(value("A")), Ok(None), Err(ErrorKind::Closed)];
    assert_eq!(collecting.await.unwrap(), expected);
}

#[test]
fn without_a_runtime_get_a_clear_error() {
    let client = LockClient::new(MemoryBackend::new());
    let mut observer = client.election("k").unwrap().observe();
    let mut asking = pin!(observer.next());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());

    let Poll::Ready(Err(error)) = asking.as_mut().poll(&mut cx) else { panic!() };

    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn see_a_leader_without_an_end() {
    let Fixture { client, faults, .. } = Fixture::new();
    faults.on_reply(|_request, reply| {
        let Reply::Inspection(seen) = reply else { return Ok(reply) };
        let holders = seen.holders().iter().cloned();
        let endless = holders.map(|holder| holder.with_remaining(Some(Duration::MAX)));
        Ok(Reply::Inspection(endless.fold(Inspection::free(), Inspection::with_holder)))
    });
    let election = client.election("k").unwrap();
    let term = election.campaign("A").await.unwrap();
    let mut observer = election.observe();

    assert_eq!(told(&mut observer).await, value("A"));
    drop(term);
    assert_eq!(told(&mut observer).await, None);
}
