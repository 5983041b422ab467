//! Elections, under a driven clock: nothing here sleeps.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::fault::{Fault, FaultBackend, Faults, News};
use leasehold_core::{
    Attempt, Capabilities, Claim, Error, ErrorKind, Feature, Fencing, Inspection, Leadership,
    Lease, LeaseState, LockBackend, LockClient, LockKey, LockOptions, LossReason, MemoryBackend,
    Observer, Operation, Release, Renewal, RenewalMode,
};
use tokio::task::JoinSet;

const TTL: Duration = ms(30_000);
const OUTAGE_WAIT: Duration = ms(10_000);
/// Timers fire in the millisecond that they are set for, or in the next.
const TICK: Duration = ms(2);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

type Client = LockClient<FaultBackend<MemoryBackend>>;

/// One store in tokio's paused time, and the processes that use it.
struct World {
    clock: TokioClock,
    store: MemoryBackend,
}

impl World {
    fn new() -> Self {
        let clock = TokioClock::new();
        Self { clock, store: MemoryBackend::with_clock(clock) }
    }

    /// Another process, with faults of its own.
    fn process(&self) -> (Client, Faults) {
        self.process_with(LockOptions::new().ttl(TTL).outage_wait(OUTAGE_WAIT))
    }

    fn process_with(&self, options: LockOptions) -> (Client, Faults) {
        let backend = FaultBackend::new(self.store.clone());
        let faults = backend.faults().clone();
        let builder = LockClient::builder(backend).clock(self.clock).options(options);
        (builder.build().unwrap(), faults)
    }

    fn client(&self) -> Client {
        self.process().0
    }
}

/// Lets time pass to the millisecond, and all that is due happen.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What the observer tells next: the value, if anybody leads.
async fn told(observer: &mut Observer) -> Option<String> {
    observer.next().await.unwrap().map(|leader| leader.value().to_string())
}

/// Whether the observer has nothing to tell for so long.
async fn is_quiet_for(observer: &mut Observer, time: Duration) -> bool {
    tokio::time::timeout(time, observer.next()).await.is_err()
}

fn value(text: &str) -> Option<String> {
    Some(text.to_owned())
}

mod candidates {
    use super::*;

    /// What all candidates of a test do to each other.
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
        let (world, stage) = (World::new(), Arc::new(Stage::default()));
        let unavailable = Fault::Fail(ErrorKind::Unavailable);
        let mut candidates = JoinSet::new();
        for process in 0..6_u64 {
            let (client, faults) = world.process();
            for n in 0..4_u64 {
                let election = client.election("k").unwrap();
                let (stage, faults) = (Arc::clone(&stage), faults.clone());
                candidates.spawn(async move {
                    for round in 0..5 {
                        let term = election.campaign(format!("{process}.{n}")).await.unwrap();
                        let led = term.run(async {
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
        assert_eq!(world.store.keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn are_elected_in_the_order_of_asking() {
        let world = World::new();
        let first = world.client().election("k").unwrap().campaign("first").await.unwrap();
        let elected = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut candidates = JoinSet::new();
        for n in 0..8 {
            let election = world.client().election("k").unwrap();
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
            let world = World::new();
            let options = LockOptions::new().ttl(TTL).fair(fair);
            let (a, b) = (world.process_with(options.clone()).0, world.process_with(options).0);
            let first = world.client().election("k").unwrap().campaign("first").await.unwrap();
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
    async fn that_do_not_wait_pass_nobody_who_does() {
        let world = World::new();
        let (one, other) =
            (world.client().election("k").unwrap(), world.client().election("k").unwrap());
        let term = one.campaign("first").await.unwrap();
        assert!(other.try_campaign("impatient").await.unwrap().is_none());
        let waiting = tokio::spawn(async move { other.campaign("patient").await.unwrap() });
        pass(ms(1)).await;

        term.resign().await.unwrap();

        assert!(one.try_campaign("impatient").await.unwrap().is_none());
        assert_eq!(waiting.await.unwrap().value().as_str(), "patient");
    }

    #[tokio::test(start_paused = true)]
    async fn wait_as_long_as_they_were_told_and_not_longer() {
        let world = World::new();
        let _term = world.client().election("k").unwrap().campaign("first").await.unwrap();
        let options = LockOptions::new().ttl(TTL).wait(ms(2_000));
        let election = world.process_with(options).0.election("k").unwrap();

        let asked_at = world.clock.now();
        assert!(election.try_campaign_for("v", ms(1_000)).await.unwrap().is_none());
        assert_eq!(world.clock.now(), asked_at + ms(1_000));
        assert_eq!(election.campaign("v").await.unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(world.clock.now(), asked_at + ms(3_000));
        let past = std::time::Instant::now();
        assert!(election.try_campaign_until("v", past).await.unwrap().is_none());
        assert_eq!(world.clock.now(), asked_at + ms(3_000));
    }

    #[tokio::test(start_paused = true)]
    async fn whose_grant_was_not_heard_of_lead_all_the_same() {
        let world = World::new();
        let (client, faults) = world.process();
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
            let world = World::new();
            let mut completed = false;
            for polls in 0..MANY {
                let (client, faults) = world.process();
                faults.inject(Operation::Acquire, fault, 1);
                let election = client.election("k").unwrap();

                completed = polled(polls, election.campaign("v")).await.is_some();

                // Releases are done in the background.
                pass(ms(10)).await;
                assert_eq!(world.store.keys(), 0, "dropped after {polls} polls, {fault:?}");
                if completed {
                    break;
                }
            }
            assert!(completed, "no campaign ended within {MANY} polls");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_dropped_while_another_leads_are_in_nobodys_way() {
        for fault in [Fault::DelayRequest(ms(3)), Fault::DelayReply(ms(3)), Fault::LoseReply] {
            for polls in 0..20 {
                let world = World::new();
                let term = world.client().election("k").unwrap().campaign("v").await.unwrap();
                let (client, faults) = world.process();
                faults.inject(Operation::Acquire, fault, 2);
                let election = client.election("k").unwrap();

                assert!(polled(polls, election.campaign("v")).await.is_none());

                pass(ms(10)).await;
                term.resign().await.unwrap();
                assert_eq!(world.store.keys(), 0, "dropped after {polls} polls, {fault:?}");
            }
        }
    }
}

mod leaders {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_resign_hand_over_without_any_time_passing() {
        let world = World::new();
        let term = world.client().election("k").unwrap().campaign("first").await.unwrap();
        let successor = world.client().election("k").unwrap();
        let waiting = tokio::spawn(async move { successor.campaign("second").await.unwrap() });
        pass(ms(5_000)).await;

        let resigned_at = world.clock.now();
        let token = term.token().number();
        term.resign().await.unwrap();
        let term = waiting.await.unwrap();

        assert_eq!(world.clock.now(), resigned_at);
        assert!(term.token().number() > token);
        assert_eq!(term.value().as_str(), "second");
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_dropped_resign() {
        let world = World::new();
        let term = world.client().election("k").unwrap().campaign("first").await.unwrap();
        let successor = world.client().election("k").unwrap();
        let waiting = tokio::spawn(async move { successor.campaign("second").await.unwrap() });
        pass(ms(1)).await;

        let dropped_at = world.clock.now();
        drop(term);
        waiting.await.unwrap().resign().await.unwrap();

        assert_eq!(world.clock.now(), dropped_at);
    }

    #[tokio::test(start_paused = true)]
    async fn that_die_know_it_before_they_are_succeeded_after_their_ttl() {
        let world = World::new();
        let (dying, faults) = world.process();
        let elected_at = world.clock.now();
        let term = dying.election("k").unwrap().campaign("dying").await.unwrap();
        let clock = world.clock;
        let lost = tokio::spawn({
            let lost = term.lost();
            async move { (lost.await, clock.now()) }
        });
        // Nothing that it says arrives any more, and it never resigns.
        for operation in [Operation::Renew, Operation::Release] {
            faults.inject(operation, Fault::Fail(ErrorKind::Unavailable), 10_000);
        }
        let successor = world.client().election("k").unwrap();

        let next = successor.campaign("next").await.unwrap();

        let succeeded_at = world.clock.now();
        let (reason, lost_at) = lost.await.unwrap();
        assert_eq!(reason, LossReason::Expired);
        assert!(lost_at < elected_at + TTL && lost_at < succeeded_at);
        assert!(succeeded_at >= elected_at + TTL);
        assert!(succeeded_at <= elected_at + TTL + TICK * 2, "{succeeded_at:?}");
        assert_eq!(term.state(), LeaseState::Lost(LossReason::Expired));
        assert!(next.is_held() && next.token().number() > term.token().number());
        std::mem::forget(term);
    }

    #[tokio::test(start_paused = true)]
    async fn lead_for_as_long_as_they_renew() {
        let world = World::new();
        let election = world.client().election("k").unwrap();
        let term = election.campaign("v").await.unwrap();

        pass(TTL * 10).await;

        assert_eq!(term.state(), LeaseState::Held);
        assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "v");
    }

    #[tokio::test(start_paused = true)]
    async fn hear_of_requests_to_resign() {
        let world = World::new();
        let client = world.client();
        let term = client.election("k").unwrap().campaign("v").await.unwrap();

        client.request_revocation("k").await.unwrap();
        term.revocation_requested().await;

        assert!(term.is_revocation_requested() && term.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn are_shown_with_their_value_lease_and_time() {
        let world = World::new();
        let election = world.client().election("k").unwrap();
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
        let world = World::new();
        let client = world.client();
        let election = client.election("k").unwrap();

        let reader = client.rw_lock("k").unwrap().read().await.unwrap();
        let another = client.rw_lock("k").unwrap().read().await.unwrap();
        assert_eq!(election.leader().await.unwrap_err().kind(), ErrorKind::WrongType);
        drop((reader, another));
        pass(ms(1)).await;
        let _mutex = client.mutex("k").unwrap().lock().await.unwrap();
        let refused = election.try_campaign("v").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType);
    }
}

mod values {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn that_are_proclaimed_are_seen_at_once_and_after_later_renewals() {
        let world = World::new();
        let (client, faults) = world.process();
        let observing = world.client().election("k").unwrap();
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
            let world = World::new();
            let (client, faults) = world.process();
            let election = client.election("k").unwrap();
            let term = election.campaign("one").await.unwrap();
            faults.inject(Operation::Renew, fault, 1);

            let error = term.proclaim("two").await.unwrap_err();

            assert!(error.is_retryable(), "{error}");
            assert_eq!(error.operation(), Some(Operation::Renew));
            assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "one");
            assert_eq!((term.state(), term.value().as_str()), (LeaseState::Unsure, "two"));
            pass(TTL / 3).await;
            assert_eq!(term.state(), LeaseState::Held, "{fault:?}");
            assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "two");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_proclaimed_at_once_come_in_the_order_of_asking() {
        let world = World::new();
        let (client, faults) = world.process();
        let election = client.election("k").unwrap();
        let term = election.campaign("0").await.unwrap();
        faults.inject(Operation::Renew, Fault::DelayRequest(ms(50)), 1);

        let (one, two) = tokio::join!(term.proclaim("1"), term.proclaim("2"));

        assert!(one.is_ok() && two.is_ok());
        assert_eq!(election.leader().await.unwrap().unwrap().value().as_str(), "2");
    }

    #[tokio::test(start_paused = true)]
    async fn are_not_proclaimed_by_those_who_no_longer_lead() {
        let world = World::new();
        let client = world.client();
        let term = client.election("k").unwrap().campaign("one").await.unwrap();
        client.admin().force_release("k", "test").await.unwrap();

        let error = term.proclaim("two").await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        assert!(client.election("k").unwrap().leader().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn that_cannot_be_are_refused_before_anything_is_sent() {
        let world = World::new();
        let (client, faults) = world.process();
        let election = client.election("k").unwrap();
        let term = client.election("other").unwrap().campaign("x".repeat(256)).await.unwrap();
        let requests = || faults.calls(Operation::Acquire) + faults.calls(Operation::Renew);
        let before = requests();

        for text in [String::new(), "x".repeat(257), "two\nlines".to_owned()] {
            let refused = [
                election.campaign(&text).await.unwrap_err(),
                election.try_campaign(&text).await.unwrap_err(),
                election.try_campaign_for(&text, TTL).await.unwrap_err(),
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
}

mod observers {
    use super::*;

    /// A whole story. With news nothing takes any time; without, each chapter is seen by the next poll.
    async fn follow(news: News, at_most: Duration) {
        let world = World::new();
        let (client, faults) = world.process();
        faults.set_news(news);
        let mut observer = client.election("k").unwrap().observe();
        assert_eq!(told(&mut observer).await, None);
        let (a, b) = (world.client().election("k").unwrap(), world.client().election("k").unwrap());
        let clock = world.clock;
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
        follow(News::True, ms(10)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn are_told_of_every_change_within_a_second_where_there_is_none() {
        follow(News::Muted, ms(1_000)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn are_told_of_what_happened_before_they_first_asked() {
        let world = World::new();
        let client = world.client();
        let election = client.election("k").unwrap();
        let mut observer = election.observe();

        let _term = election.campaign("v").await.unwrap();

        assert_eq!(told(&mut observer).await, value("v"));
    }

    #[tokio::test(start_paused = true)]
    async fn see_a_dead_leader_go_when_its_lease_ends() {
        let world = World::new();
        let (dying, faults) = world.process_with(LockOptions::new().ttl(ms(500)));
        let mut observer = world.client().election("k").unwrap().observe();
        let elected_at = world.clock.now();
        let term = dying.election("k").unwrap().campaign("v").await.unwrap();
        assert_eq!(told(&mut observer).await, value("v"));
        for operation in [Operation::Renew, Operation::Release] {
            faults.inject(operation, Fault::Fail(ErrorKind::Unavailable), 10_000);
        }

        assert_eq!(told(&mut observer).await, None);

        // Not only after the second that polls are apart.
        let seen_at = world.clock.now();
        assert!(seen_at >= elected_at + ms(500) && seen_at <= elected_at + ms(502) + TICK);
        drop(term);
    }

    #[tokio::test(start_paused = true)]
    async fn are_told_nothing_of_a_flood_of_news_that_changes_nothing() {
        let world = World::new();
        let (client, faults) = world.process();
        faults.set_news(News::Scripted);
        let election = client.election("k").unwrap();
        let mut observer = election.observe();
        assert_eq!(told(&mut observer).await, None);
        let before = faults.calls(Operation::Inspect);

        let flood = async {
            for _ in 0..1_000 {
                faults.cry_wolf(election.key());
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
        let world = World::new();
        let (client, faults) = world.process();
        let mut observer = client.election("k").unwrap().observe();
        assert_eq!(told(&mut observer).await, None);
        let term = world.client().election("k").unwrap().campaign("0").await.unwrap();
        assert_eq!(told(&mut observer).await, value("0"));

        for next in ["1", "2", "3"] {
            faults.inject(Operation::Inspect, Fault::Fail(ErrorKind::Unavailable), 10_000);
            term.proclaim(next).await.unwrap();
            assert!(is_quiet_for(&mut observer, OUTAGE_WAIT - ms(10)).await);
            faults.heal();

            let healed_at = world.clock.now();
            assert_eq!(told(&mut observer).await, value(next));
            assert!(world.clock.now() <= healed_at + ms(1_000) + TICK);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hear_of_an_outage_that_lasts_and_then_go_on() {
        for fault in [Fault::Fail(ErrorKind::Indeterminate), Fault::SwallowRequest] {
            let world = World::new();
            let (client, faults) = world.process();
            let mut observer = client.election("k").unwrap().observe();
            assert_eq!(told(&mut observer).await, None);
            faults.inject(Operation::Inspect, fault, 10_000);

            for _ in 0..3 {
                let since = world.clock.now();
                let error = observer.next().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Indeterminate);
                assert_eq!(error.operation(), Some(Operation::Inspect));
                assert!(error.key().is_some() && error.backend().is_some());
                let took = world.clock.now().since(since);
                assert!(took >= OUTAGE_WAIT && took <= OUTAGE_WAIT + ms(7_000), "{took:?}");
            }
            faults.heal();

            assert!(is_quiet_for(&mut observer, TTL).await, "nothing has changed");
            let _term = world.client().election("k").unwrap().campaign("v").await.unwrap();
            assert_eq!(told(&mut observer).await, value("v"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hear_at_once_of_what_is_refused_for_good_and_do_not_spin() {
        let world = World::new();
        let (client, faults) = world.process();
        let mut observer = client.election("k").unwrap().observe();
        faults.inject(Operation::Inspect, Fault::Fail(ErrorKind::Denied), 10_000);

        let since = world.clock.now();
        assert_eq!(observer.next().await.unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(world.clock.now(), since);
        for _ in 0..10 {
            assert_eq!(observer.next().await.unwrap_err().kind(), ErrorKind::Denied);
        }

        assert!(world.clock.now().since(since) >= ms(25) * 10);
        faults.heal();
        assert_eq!(told(&mut observer).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_dropped_and_asked_again_at_any_point_miss_nothing() {
        let world = World::new();
        let (client, faults) = world.process();
        let election = world.client().election("k").unwrap();
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
                let since = world.clock.now();
                let seen = match early {
                    Ok(leader) => leader.unwrap().map(|leader| leader.value().to_string()),
                    Err(_) => told(&mut observer).await,
                };

                assert_eq!(seen, value("v"), "dropped after {dropped_after} ms, {delay:?}");
                // By the news, and not only by the next poll.
                assert!(
                    world.clock.now() <= since + ms(20),
                    "{:?}",
                    world.clock.now().since(since)
                );
                term.resign().await.unwrap();
                faults.heal();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn are_told_when_the_client_is_shut_down() {
        let world = World::new();
        let client = world.client();
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
        let world = World::new();
        let client = world.client();
        let election = world.client().election("k").unwrap();
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
}

mod run_leader {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn leads_while_it_works_and_resigns_after() {
        let world = World::new();
        let election = world.client().election("k").unwrap();

        let seen = election.run_leader("v", async |term| {
            term.proclaim("w").await.unwrap();
            (election.leader().await.unwrap().unwrap(), term.token().number())
        });
        let (leader, token) = seen.await.unwrap();

        assert_eq!((leader.value().as_str(), token), ("w", 1));
        assert!(election.leader().await.unwrap().is_none());
        assert_eq!(world.store.keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn stops_work_when_the_leadership_is_lost() {
        let world = World::new();
        let (client, faults) = world.process();
        let election = client.election("k").unwrap();
        faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 10_000);
        let (started_at, stopped) = (world.clock.now(), Arc::new(AtomicBool::new(false)));

        let error = election
            .run_leader("v", async |_term| {
                let _dropped = OnDrop(Arc::clone(&stopped));
                std::future::pending::<()>().await;
            })
            .await
            .unwrap_err();

        assert_eq!((error.kind(), error.loss()), (ErrorKind::LeaseLost, Some(LossReason::Expired)));
        assert!(stopped.load(Ordering::SeqCst));
        assert!(world.clock.now() < started_at + TTL);
    }

    struct OnDrop(Arc<AtomicBool>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_is_called_again_after_a_loss_leads_again() {
        let world = World::new();
        let client = world.client();
        let election = client.election("k").unwrap();
        let admin = world.client().admin();
        let mut tokens = Vec::new();

        while tokens.len() < 4 {
            let led = election.run_leader("v", async |term| {
                tokens.push(term.token().number());
                admin.force_release("k", "test").await.unwrap();
                std::future::pending::<()>().await;
            });
            assert_eq!(led.await.unwrap_err().kind(), ErrorKind::LeaseLost);
        }

        assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn whose_release_gets_no_answer_keeps_its_result() {
        let world = World::new();
        let (client, faults) = world.process();
        let election = client.election("k").unwrap();
        faults.inject(Operation::Release, Fault::Fail(ErrorKind::Unavailable), 60);

        assert_eq!(election.run_leader("v", async |_term| 42).await.unwrap(), 42);

        pass(TTL).await;
        assert_eq!(world.store.keys(), 0);
    }
}

mod options {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn without_renewal_end_a_leadership_at_its_deadline() {
        let world = World::new();
        let unrenewed = LockOptions::new().ttl(TTL).renewal(RenewalMode::Off);
        let (client, faults) = world.process_with(unrenewed);
        let election = client.election("k").unwrap();
        let term = election.campaign("one").await.unwrap();
        pass(TTL / 2).await;
        // Since nobody tries again, a late answer is better than none.
        faults.inject(Operation::Renew, Fault::DelayReply(TTL / 3), 1);
        term.proclaim("two").await.unwrap();
        let deadline = term.deadline();

        assert_eq!(term.lost().await, LossReason::Expired);

        assert_eq!(world.clock.now(), deadline);
        // Proclaiming is a renewal too.
        assert!(election.leader().await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn keep_an_election_closed_for_min_hold() {
        let world = World::new();
        let closed = LockOptions::new().ttl(TTL).min_hold(ms(5_000));
        let election = world.process_with(closed).0.election("k").unwrap();
        let elected_at = world.clock.now();
        election.campaign("one").await.unwrap().resign().await.unwrap();

        let _term = world.client().election("k").unwrap().campaign("two").await.unwrap();

        assert!(world.clock.now() >= elected_at + ms(5_000));
    }

    #[tokio::test(start_paused = true)]
    async fn keep_the_last_value_while_min_hold_keeps_an_election_closed() {
        let world = World::new();
        let closed = LockOptions::new().ttl(TTL).min_hold(ms(5_000));
        let election = world.process_with(closed).0.election("k").unwrap();
        let term = election.campaign("one").await.unwrap();
        term.proclaim("another").await.unwrap();

        term.resign().await.unwrap();

        let shown = world.client().election("k").unwrap().leader().await.unwrap();
        assert_eq!(shown.unwrap().value().as_str(), "another");
    }

    #[test]
    fn that_the_store_cannot_fulfil_are_refused_before_anything_is_sent() {
        let all = [Feature::Units, Feature::Queue, Feature::Inspect];
        let declared = all.iter().fold(bare(), |store, feature| store.with(*feature));
        assert!(LockClient::new(Declared(declared.clone())).election("k").is_ok());

        for missing in all {
            let client = LockClient::new(Declared(declared.clone().without(missing)));
            let error = client.election("k").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(missing.name()), "{error}");
        }
        let client = LockClient::new(MemoryBackend::new());
        let impossible = LockOptions::new().ttl(Duration::ZERO);
        let refused = client.election("k").unwrap().with_options(impossible).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(client.election("").unwrap_err().kind(), ErrorKind::Invalid);
    }

    fn bare() -> Capabilities {
        Capabilities::new("declared", Fencing::Strict)
    }

    /// A store that declares something and is never asked for anything.
    #[derive(Debug)]
    struct Declared(Capabilities);

    #[async_trait::async_trait]
    impl LockBackend for Declared {
        fn capabilities(&self) -> Capabilities {
            self.0.clone()
        }

        async fn try_acquire(&self, _claim: &Claim) -> Result<Attempt, Error> {
            unreachable!("nothing is to be sent")
        }

        async fn renew(&self, _lease: &Lease) -> Result<Renewal, Error> {
            unreachable!("nothing is to be sent")
        }

        async fn release(&self, _lease: &Lease) -> Result<Release, Error> {
            unreachable!("nothing is to be sent")
        }

        async fn inspect(&self, _key: &LockKey) -> Result<Inspection, Error> {
            unreachable!("nothing is to be sent")
        }
    }
}

const fn assert_send_sync_static<T: Send + Sync + 'static>(_: &T) {}

/// What users hold may be sent and shared, and what they await be spawned.
#[tokio::test]
async fn elections_may_be_sent_shared_and_spawned() {
    let client = LockClient::new(MemoryBackend::new()).erase();
    let election = client.election("k").unwrap();
    assert_send_sync_static(&election);
    let mut observer = election.observe();
    assert_send_sync_static(&observer);

    let spawned = tokio::spawn(async move {
        let term = election.campaign("one").await.unwrap();
        assert_send_sync_static(&term);
        term.proclaim("two").await.unwrap();
        let leader = observer.next().await.unwrap().unwrap();
        term.resign().await.unwrap();
        let led = election.run_leader(leader.value(), async |term| term.value()).await.unwrap();
        let mut told = pin!(observer.into_stream());
        assert!(told.next().await.unwrap().unwrap().is_none());
        led
    });

    assert_eq!(spawned.await.unwrap().as_str(), "two");
}
