//! The rules of time, under a driven clock: nothing here sleeps.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold_core::clock::{Clock, Instant, Sleep, TokioClock};
use leasehold_core::fault::{Fault, FaultBackend, Faults, News};
use leasehold_core::{
    Attempt, Capabilities, Claim, Error, ErrorKind, Grant, Lease, LeaseState, LockBackend,
    LockClient, LockGuard, LockKey, LockOptions, LossReason, MemoryBackend, Operation, Release,
    Renewal, RenewalMode, Retry,
};

const TTL: Duration = ms(30_000);
/// 1 % of the TTL and 2 ms.
const DRIFT: Duration = ms(302);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client of a store of its own, in tokio's paused time.
fn client(options: LockOptions) -> (LockClient<FaultBackend<MemoryBackend>>, Faults, TokioClock) {
    let clock = TokioClock::new();
    let backend = FaultBackend::new(MemoryBackend::with_clock(clock));
    let faults = backend.faults().clone();
    let client = LockClient::builder(backend).clock(clock).options(options).build().unwrap();
    (client, faults, clock)
}

fn options() -> LockOptions {
    LockOptions::new().ttl(TTL)
}

async fn lock<B: LockBackend>(client: &LockClient<B>) -> LockGuard {
    client.mutex("k").unwrap().lock().await.unwrap()
}

/// Lets time pass to the millisecond, and all that is due happen.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

mod deadline {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counts_from_before_the_request_and_not_from_the_reply() {
        let (client, faults, clock) = client(options());
        faults.inject(Operation::Acquire, Fault::DelayReply(ms(4_000)), 1);

        let sent_at = clock.now();
        let guard = lock(&client).await;

        assert_eq!(clock.now(), sent_at + ms(4_000));
        assert_eq!(guard.deadline(), sent_at + TTL - DRIFT);
        assert_eq!(guard.remaining(), TTL - DRIFT - ms(4_000));
    }

    #[tokio::test(start_paused = true)]
    async fn counts_from_before_the_attempt_that_was_granted() {
        let (client, faults, clock) = client(options());
        let once = Retry::unlimited().every(ms(500));
        let mutex = client.mutex("k").unwrap().with_options(options().retry(once)).unwrap();
        faults.inject(Operation::Acquire, Fault::LoseReply, 1);

        let asked_at = clock.now();
        let guard = mutex.lock().await.unwrap();

        // The first attempt was granted unseen; the second put the TTL in force again.
        let sent_at = clock.now();
        assert!(sent_at > asked_at);
        assert_eq!(guard.deadline(), sent_at + TTL - DRIFT);
    }

    #[tokio::test(start_paused = true)]
    async fn is_where_belief_ends_to_the_millisecond() {
        let (client, _faults, _clock) = client(options().renewal(RenewalMode::Off));
        let guard = lock(&client).await;

        pass(TTL - DRIFT - ms(1)).await;
        assert_eq!(guard.state(), LeaseState::Held);
        assert_eq!(guard.remaining(), ms(1));
        guard.ensure_held(ms(1)).unwrap();
        assert_eq!(guard.ensure_held(ms(2)).unwrap_err().kind(), ErrorKind::LeaseLost);

        pass(ms(1)).await;
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn moves_with_a_renewal_to_where_that_was_sent() {
        let (client, faults, clock) = client(options());
        let guard = lock(&client).await;
        faults.inject(Operation::Renew, Fault::DelayReply(ms(3_000)), 1);

        pass(TTL / 3).await;
        let sent_at = clock.now();
        let before = guard.deadline();
        pass(ms(2_999)).await;
        assert_eq!(guard.deadline(), before, "nothing is confirmed yet");
        pass(ms(2)).await;

        assert_eq!(guard.deadline(), sent_at + TTL - DRIFT);
    }

    #[tokio::test(start_paused = true)]
    async fn is_no_later_than_a_shorter_extension_allows_that_got_no_answer() {
        let (client, faults, _clock) = client(options());
        let guard = lock(&client).await;
        // It arrives after the longer one.
        faults.inject(Operation::Renew, Fault::Late(ms(8_000)), 1);
        let short = guard.extend(ms(3_000)).await.unwrap_err();
        assert_eq!(short.kind(), ErrorKind::Indeterminate);
        guard.extend(ms(60_000)).await.unwrap();
        assert!(guard.remaining() <= ms(3_000));

        let foreign = Claim::new(Lease::new(guard.key(), TTL));
        for _ in 0..200 {
            pass(ms(100)).await;
            let attempt = client.backend().try_acquire(&foreign).await.unwrap();
            assert!(guard.is_held() && matches!(attempt, Attempt::Held(_)), "{attempt:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_an_extension_is_no_later_than_an_attempt_allows_that_got_no_answer() {
        let (client, faults, _clock) = client(options().ttl(ms(3_000)));
        faults.inject(Operation::Acquire, Fault::Late(ms(8_000)), 1);
        let guard = lock(&client).await;

        guard.extend(ms(60_000)).await.unwrap();

        assert!(guard.remaining() <= ms(3_000));
        pass(ms(20_000)).await;
        assert!(guard.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn of_an_extension_is_as_late_as_it_was_asked_for_if_what_failed_was_not_sent() {
        let (client, faults, _clock) = client(options());
        let guard = lock(&client).await;
        faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1);
        guard.extend(ms(3_000)).await.unwrap_err();

        guard.extend(ms(60_000)).await.unwrap();

        assert!(guard.remaining() > ms(50_000));
    }

    #[tokio::test(start_paused = true)]
    async fn is_what_lost_waits_for_even_if_nobody_drives_the_watchdog() {
        let (client, faults, clock) = client(options());
        let guard = lock(&client).await;
        let deadline = guard.deadline();
        faults.inject(Operation::Renew, Fault::SwallowRequest, 1_000);

        assert_eq!(guard.lost().await, LossReason::Expired);

        assert_eq!(clock.now(), deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_store_that_grants_less_is_earlier_and_of_one_that_grants_more_is_not_later() {
        for (granted, believed) in [(ms(10_000), ms(10_000)), (ms(60_000), TTL)] {
            let clock = TokioClock::new();
            let backend = Generous { inner: MemoryBackend::with_clock(clock), ttl: granted };
            let client =
                LockClient::builder(backend).clock(clock).options(options()).build().unwrap();

            let sent_at = clock.now();
            let guard = lock(&client).await;

            let drift = believed / 100 + ms(2);
            assert_eq!(guard.deadline(), sent_at + believed - drift);
        }
    }

    /// Says that it has granted another TTL than was asked for.
    #[derive(Debug)]
    struct Generous {
        inner: MemoryBackend,
        ttl: Duration,
    }

    #[async_trait]
    impl LockBackend for Generous {
        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            Ok(match self.inner.try_acquire(claim).await? {
                Attempt::Granted(grant) => Attempt::Granted(Grant::with_ttl(grant, self.ttl)),
                held @ Attempt::Held(_) => held,
            })
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.inner.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.inner.release(lease).await
        }
    }
}

mod renewal {
    use super::*;

    /// When each call of `operation` was made, in milliseconds from now, over `time`.
    async fn calls(faults: &Faults, operation: Operation, time: Duration) -> Vec<u64> {
        let mut at = Vec::new();
        for passed in 1..=u64::try_from(time.as_millis()).unwrap() {
            let before = faults.calls(operation);
            pass(ms(1)).await;
            at.extend(std::iter::repeat_n(passed, faults.calls(operation) - before));
        }
        at
    }

    /// Timers fire in the millisecond that they are set for, or in the next.
    fn near(found: &[u64], expected: &[u64]) {
        assert_eq!(found.len(), expected.len(), "{found:?} against {expected:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.abs_diff(*expected) <= 3, "{found} is not {expected}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn comes_every_third_of_the_ttl() {
        let (client, faults, _clock) = client(options());
        let _guard = lock(&client).await;

        let at = calls(&faults, Operation::Renew, TTL + ms(10)).await;

        near(&at, &[10_000, 20_000, 30_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn that_hangs_is_given_up_after_a_sixth_and_repeated_after_a_twelfth() {
        let (client, faults, _clock) = client(options());
        let guard = lock(&client).await;
        faults.inject(Operation::Renew, Fault::SwallowRequest, 2);

        let at = calls(&faults, Operation::Renew, ms(26_000)).await;

        near(&at, &[10_000, 10_000 + 5_000 + 2_500, 10_000 + 2 * (5_000 + 2_500)]);
        assert_eq!(guard.state(), LeaseState::Held);
    }

    #[tokio::test(start_paused = true)]
    async fn by_hand_that_hangs_leaves_time_for_the_watchdog() {
        let (client, faults, clock) = client(options());
        let guard = lock(&client).await;
        faults.inject(Operation::Renew, Fault::SwallowRequest, 1);

        let asked_at = clock.now();
        let error = guard.extend(TTL).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!((clock.now(), guard.state()), (asked_at + TTL / 6, LeaseState::Unsure));
        pass(TTL).await;
        assert_eq!(guard.state(), LeaseState::Held);
    }

    #[tokio::test(start_paused = true)]
    async fn that_fails_at_once_is_repeated_until_the_deadline_and_not_after() {
        let (client, faults, _clock) = client(options());
        let guard = lock(&client).await;
        faults.inject(Operation::Renew, Fault::Fail(ErrorKind::Unavailable), 1_000);

        let at = calls(&faults, Operation::Renew, TTL * 2).await;

        near(&at, &[10_000, 12_500, 15_000, 17_500, 20_000, 22_500, 25_000, 27_500]);
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn that_is_confirmed_after_the_deadline_revives_nothing() {
        let (client, faults, _clock) = client(options());
        let guard = lock(&client).await;
        // Sent at 10 s and 17.5 s, lost; sent at 25 s, confirmed after the deadline at 29.7 s.
        faults.inject(Operation::Renew, Fault::SwallowRequest, 2);
        faults.inject(Operation::Renew, Fault::DelayReply(ms(4_800)), 1);

        pass(ms(29_750)).await;
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        pass(TTL).await;

        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_called_for_by_the_news_that_ended_a_wait() {
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        let backend = FaultBackend::new(store.clone());
        let faults = backend.faults().clone();
        faults.set_news(News::Scripted);
        let client = LockClient::builder(backend).clock(clock).options(options()).build().unwrap();
        let other = LockClient::builder(store).clock(clock).options(options()).build().unwrap();
        let (guard, mutex) = (lock(&other).await, client.mutex("k").unwrap());
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        pass(ms(100)).await;
        guard.release().await.unwrap();
        // For those who wait, and for those who hold.
        faults.cry_wolf(&LockKey::new("k").unwrap());

        let guard = waiting.await.unwrap();
        pass(ms(9_000)).await;

        assert_eq!(faults.calls(Operation::Renew), 0);
        assert!(guard.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn is_over_with_the_last_guard() {
        let (client, faults, _clock) = client(options());
        let mutex = client.reentrant_mutex("k").unwrap();
        let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());

        outer.release().await.unwrap();
        assert_eq!(calls(&faults, Operation::Renew, ms(10_010)).await.len(), 1);
        inner.release().await.unwrap();
        assert_eq!(calls(&faults, Operation::Renew, TTL).await.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_capped_lease_asks_for_what_is_left_and_then_for_nothing() {
        let (client, faults, clock) = client(options().max_hold(ms(35_000)));
        let granted_at = clock.now();
        let guard = lock(&client).await;

        let at = calls(&faults, Operation::Renew, ms(34_000)).await;

        near(&at, &[10_000]);
        assert_eq!(guard.deadline(), granted_at + ms(35_000) - (ms(25_000) / 100 + ms(2)));
        pass(ms(1_000)).await;
        assert_eq!(guard.state(), LeaseState::Lost(LossReason::MaxHold));
    }

    #[tokio::test(start_paused = true)]
    async fn takes_the_earliest_deadline_first() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        let backend = Recorder { inner: store, order: Arc::clone(&order) };
        let client = LockClient::builder(backend).clock(clock).options(options()).build().unwrap();
        // The second falls due at the same time as the first, and ends earlier.
        let long = client.mutex("long").unwrap().lock().await.unwrap();
        pass(ms(5_000)).await;
        let short = client.mutex("short").unwrap();
        let short = short.with_options(options().ttl(ms(15_000))).unwrap().lock().await.unwrap();

        pass(ms(5_010)).await;

        assert_eq!(*order.lock().unwrap(), ["short", "long"]);
        drop((long, short));
    }

    /// Notes the order within batches.
    #[derive(Debug)]
    struct Recorder {
        inner: MemoryBackend,
        order: Arc<Mutex<Vec<String>>>,
    }

    #[async_trait]
    impl LockBackend for Recorder {
        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            self.inner.try_acquire(claim).await
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.order.lock().unwrap().push(lease.key().to_string());
            self.inner.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.inner.release(lease).await
        }
    }
}

mod clocks {
    use super::*;

    /// Tokio's time, and a jump or another rate on top.
    #[derive(Clone, Debug)]
    struct Skewed {
        clock: TokioClock,
        jump_ms: Arc<AtomicU64>,
        percent: u32,
    }

    impl Skewed {
        fn new(percent: u32) -> Self {
            Self { clock: TokioClock::new(), jump_ms: Arc::default(), percent }
        }
    }

    impl Clock for Skewed {
        fn now(&self) -> Instant {
            let zero = Instant::from_zero(Duration::ZERO);
            let elapsed = self.clock.now().since(zero) * self.percent / 100;
            zero + elapsed + ms(self.jump_ms.load(Ordering::SeqCst))
        }

        fn sleep_until(&self, deadline: Instant) -> Sleep {
            let this = self.clone();
            Box::pin(async move {
                while this.now() < deadline {
                    tokio::time::sleep(ms(1)).await;
                }
            })
        }
    }

    fn client_on(clock: Skewed) -> LockClient<MemoryBackend> {
        let store = MemoryBackend::with_clock(clock.clock);
        LockClient::builder(store).clock(clock).options(options()).build().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn that_jump_over_the_deadline_end_belief_before_anything_runs() {
        let clock = Skewed::new(100);
        let client = client_on(clock.clone());
        let guard = lock(&client).await;
        assert!(guard.is_held());

        // As after a suspended machine wakes: its clock has gone on, its timers have not.
        clock.jump_ms.store(60_000, Ordering::SeqCst);

        assert_eq!(guard.state(), LeaseState::Lost(LossReason::Expired));
        assert_eq!(guard.run(async {}).await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert_eq!(guard.lost().await, LossReason::Expired);
    }

    #[tokio::test(start_paused = true)]
    async fn that_jump_while_work_is_done_end_it_before_it_is_polled_again() {
        let clock = Skewed::new(100);
        let client = client_on(clock.clone());
        let guard = lock(&client).await;

        let mut polls = 0;
        let work = guard.run(poll_fn(|_cx| {
            polls += 1;
            clock.jump_ms.store(60_000, Ordering::SeqCst);
            if polls == 1 { Poll::Pending } else { Poll::Ready("done") }
        }));
        let mut work = pin!(work);
        let mut cx = Context::from_waker(Waker::noop());

        // Polled again by whatever, before any timer has fired.
        assert!(work.as_mut().poll(&mut cx).is_pending());
        let Poll::Ready(ran) = work.as_mut().poll(&mut cx) else { panic!("it waits for timers") };
        assert_eq!(ran.unwrap_err().kind(), ErrorKind::LeaseLost);
    }

    #[tokio::test(start_paused = true)]
    async fn that_jump_while_the_store_answers_make_the_grant_worthless() {
        let clock = Skewed::new(100);
        let store = MemoryBackend::with_clock(clock.clock);
        let backend = Pausing { inner: store.clone(), clock: clock.clone() };
        let client = LockClient::builder(backend).clock(clock).options(options()).build().unwrap();

        let error = client.mutex("k").unwrap().try_lock().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        pass(ms(10)).await;
        assert_eq!(store.keys(), 0, "it was not given back");
    }

    /// This process is paused for a minute between the store's reply and looking at it.
    #[derive(Debug)]
    struct Pausing {
        inner: MemoryBackend,
        clock: Skewed,
    }

    #[async_trait]
    impl LockBackend for Pausing {
        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
            let attempt = self.inner.try_acquire(claim).await;
            self.clock.jump_ms.fetch_add(60_000, Ordering::SeqCst);
            attempt
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
            self.inner.renew(lease).await
        }

        async fn release(&self, lease: &Lease) -> Result<Release, Error> {
            self.inner.release(lease).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_run_one_percent_slow_believe_no_longer_than_the_store() {
        let clock = Skewed::new(99);
        let unrenewed = options().renewal(RenewalMode::Off);
        let client = client_on(clock.clone());
        let mutex = client.mutex("k").unwrap().with_options(unrenewed).unwrap();
        let store = client.backend().clone();
        let guard = mutex.lock().await.unwrap();

        while guard.is_held() {
            let held = store.inspect(guard.key()).await.unwrap().is_held();
            assert!(held, "the store has freed what we believe to hold");
            pass(ms(1)).await;
        }
    }
}

mod budget {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_one_for_the_queue_and_the_store() {
        let (client, _faults, clock) = client(options());
        let store = client.backend();
        let foreign = Lease::new(client.mutex("k").unwrap().key(), ms(100_000));
        store.try_acquire(&Claim::new(foreign)).await.unwrap();
        let mutex = client.mutex("k").unwrap();

        let asked_at = clock.now();
        let (first, second) =
            tokio::join!(mutex.try_lock_for(ms(2_000)), mutex.try_lock_for(ms(3_000)));

        assert!(first.unwrap().is_none() && second.unwrap().is_none());
        assert_eq!(clock.now(), asked_at + ms(3_000));
    }

    #[tokio::test(start_paused = true)]
    async fn that_is_over_when_the_turn_comes_leaves_nothing_to_ask_the_store_for() {
        let (client, faults, _clock) = client(options().hand_over(false));
        let first = lock(&client).await;
        let mutex = client.mutex("k").unwrap();
        let mut second = Box::pin(mutex.try_lock_for(ms(1_000)));
        assert!((&mut second).now_or_never().is_none());
        drop(first);

        // The runtime is stalled for a second, and then both the turn and the end are there.
        tokio::time::advance(ms(1_000)).await;

        assert!(second.await.unwrap().is_none());
        assert_eq!(faults.calls(Operation::Acquire), 1);
        drop(lock(&client).await);
    }

    #[tokio::test(start_paused = true)]
    async fn is_spent_on_a_silent_store_too_and_then_the_silence_is_the_error() {
        let (client, faults, clock) = client(options());
        faults.inject(Operation::Acquire, Fault::SwallowRequest, 1);
        let mutex = client.mutex("k").unwrap();

        let asked_at = clock.now();
        let error = mutex.try_lock_for(ms(2_000)).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Indeterminate);
        assert_eq!(clock.now(), asked_at + ms(2_000));
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_counted_retry_is_its_pauses() {
        let (client, faults, clock) = client(options().retry(Retry::attempts(5).every(ms(200))));
        faults.inject(Operation::Acquire, Fault::Fail(ErrorKind::Unavailable), 1_000);

        let asked_at = clock.now();
        let error = lock_error(&client).await;

        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let took = clock.now().since(asked_at);
        assert!(took >= ms(800) && took <= ms(810), "{took:?}");
    }

    async fn lock_error<B: LockBackend>(client: &LockClient<B>) -> Error {
        client.mutex("k").unwrap().lock().await.unwrap_err()
    }
}
