//! Candidates that campaign.

use super::*;

/// The record of all candidates of a test.
#[derive(Default)]
struct Stage {
    leading: AtomicUsize,
    terms: AtomicUsize,
    last_token: AtomicU64,
}

impl Stage {
    fn enter(&self, term: &Leadership) -> OnStage<'_> {
        let token = term.token().number();
        assert_eq!(self.leading.fetch_add(1, Ordering::SeqCst), 0, "two lead at once");
        assert!(self.last_token.swap(token, Ordering::SeqCst) < token);
        self.terms.fetch_add(1, Ordering::SeqCst);
        OnStage(self)
    }
}

struct OnStage<'a>(&'a Stage);

impl Drop for OnStage<'_> {
    fn drop(&mut self) {
        self.0.leading.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn lead_one_at_a_time_however_many_there_are_and_however_they_leave() {
    let (fixture, stage) = (Fixture::new(), Arc::new(Stage::default()));
    let unavailable = Fault::Fail(ErrorKind::Unavailable);
    let mut candidates = JoinSet::new();
    for process in 0..6_u64 {
        let (client, faults) = fixture.process(options());
        for n in 0..4_u64 {
            let election = client.election("k").unwrap();
            let (stage, faults) = (Arc::clone(&stage), faults.clone());
            candidates.spawn(async move {
                for round in 0..5 {
                    let term = election.campaign(format!("{process}.{n}")).await.unwrap();
                    let led = term.while_held(async {
                        let _leading = stage.enter(&term);
                        if (n + round) % 4 == 3 {
                            // Cut off, it works on until it is stopped.
                            faults.inject(Operation::Renew, unavailable, 1_000);
                            std::future::pending::<()>().await;
                        }
                        pass(ms(process * 7 + n)).await;
                    });
                    let led = led.await;
                    assert_eq!(led.is_err(), (n + round) % 4 == 3);
                    match (n + round) % 4 {
                        0 => term.resign().await.unwrap(),
                        1 => drop(term),
                        2 => {
                            faults.inject(Operation::Release, Fault::LoseReply, 1);
                            drop(term.resign().await);
                        }
                        _ => faults.heal(),
                    }
                }
            });
        }
    }

    while let Some(candidate) = candidates.join_next().await {
        candidate.unwrap();
    }

    assert_eq!(stage.terms.load(Ordering::SeqCst), 6 * 4 * 5);
    pass(TTL).await;
    assert_eq!(fixture.store.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn are_elected_in_the_order_of_asking() {
    let fixture = Fixture::new();
    let first =
        fixture.process(options()).0.election("k").unwrap().campaign("first").await.unwrap();
    let elected = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut candidates = JoinSet::new();
    for n in 0..8 {
        let election = fixture.process(options()).0.election("k").unwrap();
        let elected = Arc::clone(&elected);
        candidates.spawn(async move {
            let term = election.campaign(format!("{n}")).await.unwrap();
            elected.lock().unwrap().push(n);
            pass(ms(3)).await;
            term.resign().await.unwrap();
        });
        pass(ms(1)).await;
    }

    first.resign().await.unwrap();
    candidates.join_all().await;

    assert_eq!(*elected.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test(start_paused = true)]
async fn of_one_process_are_elected_in_their_own_order_and_fair_ones_in_that_of_all() {
    for (fair, expected) in [(false, ["a1", "b", "a2"]), (true, ["a1", "a2", "b"])] {
        let fixture = Fixture::new();
        let options = LockOptions::new().ttl(TTL).fair(fair);
        let (a, b) = (fixture.process(options.clone()).0, fixture.process(options).0);
        let first = fixture.other.election("k").unwrap().campaign("first").await.unwrap();
        let elected = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut candidates = JoinSet::new();
        for (client, name) in [(&a, "a1"), (&a, "a2"), (&b, "b")] {
            let (election, elected) = (client.election("k").unwrap(), Arc::clone(&elected));
            candidates.spawn(async move {
                let term = election.campaign(name).await.unwrap();
                elected.lock().unwrap().push(name);
                term.resign().await.unwrap();
            });
            pass(ms(1)).await;
        }

        first.resign().await.unwrap();
        candidates.join_all().await;

        assert_eq!(*elected.lock().unwrap(), expected, "fair: {fair}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_do_not_wait_pass_none_that_do() {
    let fixture = Fixture::new();
    let (one, other) = (
        fixture.process(options()).0.election("k").unwrap(),
        fixture.process(options()).0.election("k").unwrap(),
    );
    let term = one.campaign("first").await.unwrap();
    assert!(matches!(other.try_campaign("impatient").await, Err(TryLockError::Busy(_))));
    let waiting = tokio::spawn(async move { other.campaign("patient").await.unwrap() });
    pass(ms(1)).await;

    term.resign().await.unwrap();

    assert!(matches!(one.try_campaign("impatient").await, Err(TryLockError::Busy(_))));
    assert_eq!(waiting.await.unwrap().value().as_str(), "patient");
}

#[tokio::test(start_paused = true)]
async fn wait_as_long_as_they_were_told_and_not_longer() {
    let fixture = Fixture::new();
    let _term =
        fixture.process(options()).0.election("k").unwrap().campaign("first").await.unwrap();
    let options = LockOptions::new().ttl(TTL).wait(ms(2_000));
    let election = fixture.process(options.clone()).0.election("k").unwrap();
    let election = election.with_options(options).unwrap();

    let asked_at = fixture.clock.now();
    assert!(matches!(election.try_campaign_for("v", ms(1_000)).await, Err(TryLockError::Busy(_))));
    assert_eq!(fixture.clock.now(), asked_at + ms(1_000));
    assert_eq!(election.campaign("v").await.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(fixture.clock.now(), asked_at + ms(3_000));
    let past = fixture.clock.now();
    assert!(matches!(election.try_campaign_until("v", past).await, Err(TryLockError::Busy(_))));
    assert_eq!(fixture.clock.now(), asked_at + ms(3_000));
}

#[tokio::test(start_paused = true)]
async fn whose_grant_was_not_heard_of_lead_all_the_same() {
    let fixture = Fixture::new();
    let (client, faults) = fixture.process(options());
    faults.inject(Operation::Acquire, Fault::LoseReply, 1);
    let election = client.election("k").unwrap();

    let term = election.campaign("v").await.unwrap();

    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(leader.value(), &term.value());
    assert_eq!(faults.calls(Operation::Acquire), 2);
}

/// Polls `future` at most `polls` times, then drops it.
async fn polled<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// More polls than any campaign here takes.
const MANY: usize = 60;

#[tokio::test(start_paused = true)]
async fn that_are_dropped_at_any_point_leave_nothing_behind() {
    for fault in [Fault::DelayRequest(ms(3)), Fault::DelayReply(ms(3)), Fault::LoseReply] {
        let fixture = Fixture::new();
        let mut completed = false;
        for polls in 0..MANY {
            let (client, faults) = fixture.process(options());
            faults.inject(Operation::Acquire, fault, 1);
            let election = client.election("k").unwrap();

            completed = polled(polls, election.campaign("v")).await.is_some();

            // Releases are done in the background.
            pass(ms(10)).await;
            assert_eq!(fixture.store.keys(), 0, "dropped after {polls} polls, {fault:?}");
            if completed {
                break;
            }
        }
        assert!(completed, "no campaign ended within {MANY} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_while_another_leads_hinder_no_other() {
    for fault in [Fault::DelayRequest(ms(3)), Fault::DelayReply(ms(3)), Fault::LoseReply] {
        for polls in 0..20 {
            let fixture = Fixture::new();
            let term =
                fixture.process(options()).0.election("k").unwrap().campaign("v").await.unwrap();
            let (client, faults) = fixture.process(options());
            faults.inject(Operation::Acquire, fault, 2);
            let election = client.election("k").unwrap();

            assert!(polled(polls, election.campaign("v")).await.is_none());

            pass(ms(10)).await;
            term.resign().await.unwrap();
            assert_eq!(fixture.store.keys(), 0, "dropped after {polls} polls, {fault:?}");
        }
    }
}
