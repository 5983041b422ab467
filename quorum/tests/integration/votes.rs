//! Majorities: dead, silent and slow members, and votes that are split.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Lease, LockBackend, Renewal, StoreAdmin, Subject};
use leasehold_core::clock::{Clock, Sleep, TokioClock};
use leasehold_core::{Error, ErrorKind, LockKey, LockOptions, TryLockError};
use leasehold_quorum::Quorum;
use tokio::time::{Instant, sleep};

use crate::servers::{Member, Server, Servers, State, TTL, client_of, key, lock_once};

/// Tokio's clock, which can jump.
#[derive(Clone, Debug)]
struct JumpingClock {
    clock: TokioClock,
    jumped: Arc<Mutex<Duration>>,
}

impl JumpingClock {
    fn new() -> Self {
        Self { clock: TokioClock::new(), jumped: Arc::default() }
    }

    fn jump(&self, time: Duration) {
        *self.jumped.lock().unwrap() += time;
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> leasehold_core::clock::Instant {
        self.clock.now() + *self.jumped.lock().unwrap()
    }

    fn sleep_until(&self, deadline: leasehold_core::clock::Instant) -> Sleep {
        self.clock.sleep_until(deadline - *self.jumped.lock().unwrap())
    }
}

const MS: fn(u64) -> Duration = Duration::from_millis;

#[tokio::test(start_paused = true)]
async fn two_dead_members_of_five_cost_no_time() {
    for (one, other) in [(State::Silent, State::Down), (State::Slow(MS(200)), State::Silent)] {
        let servers = Servers::found(5).await;
        let client = servers.client();
        lock_once(&client).await.unwrap();
        servers.0[0].set(one);
        servers.0[3].set(other);
        let started = Instant::now();

        for _ in 0..100 {
            lock_once(&client).await.unwrap();
        }

        assert_eq!(started.elapsed(), Duration::ZERO, "{one:?} and {other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn three_dead_members_of_five_fail_within_the_limit() {
    for state in [State::Silent, State::Down, State::Slow(MS(700))] {
        let servers = Servers::found(5).await;
        let quorum = servers.quorum();
        lock_once(&client_of(servers.quorum())).await.unwrap();
        servers.0[..3].iter().for_each(|server| server.set(state));
        let started = Instant::now();
        let claim = Claim::new(Lease::new(&key(), TTL));

        let error = quorum.acquire(&claim).await.unwrap_err();

        assert!(error.is_retryable(), "{error}");
        // One limit to look at the members or to ask them, one to release.
        assert!(started.elapsed() <= MS(500), "{:?}", started.elapsed());
        assert_eq!(servers.holding(&key()).await, 0, "{state:?}");
        let client = servers.client();
        assert!(lock_once(&client).await.unwrap_err().is_retryable());
        servers.0.iter().for_each(|server| server.set(State::Up));
        sleep(MS(1)).await;
        lock_once(&client).await.unwrap();
        assert_eq!(servers.holding(&key()).await, 0, "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn members_that_die_while_votes_are_cast_leave_nothing() {
    let servers = Servers::found(5).await;
    let quorum = servers.quorum();
    let mine = Lease::new(&key(), TTL);
    assert!(matches!(quorum.acquire(&Claim::new(mine.clone())).await, Ok(Attempt::Granted(_))));
    quorum.release(&mine).await.unwrap();
    // Known as members in good standing, and gone at the next request.
    servers.0[..3].iter().for_each(|server| server.set(State::Silent));
    let started = Instant::now();

    let error = quorum.acquire(&Claim::new(Lease::new(&key(), TTL))).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "three may have granted it: {error}");
    assert_eq!(started.elapsed(), MS(250));
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn votes_that_come_after_the_ttl_are_no_grant() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    lock_once(&client).await.unwrap();
    servers.0.iter().for_each(|server| server.set(State::Slow(MS(120))));
    let short = LockOptions::new().ttl(MS(100));
    let mutex = client.mutex(key()).unwrap().with_options(short).unwrap();

    let error = Error::from(mutex.try_lock().await.unwrap_err());

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    sleep(MS(500)).await;
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn member_that_refuses_is_outvoted() {
    for kind in [
        ErrorKind::Denied,
        ErrorKind::Refused,
        ErrorKind::Unavailable,
        ErrorKind::Unexpected,
        ErrorKind::WrongType,
    ] {
        let servers = Servers::found(3).await;
        let client = servers.client();
        servers.0[1].set(State::Fails(kind));
        let started = Instant::now();

        let guard = client.mutex(key()).unwrap().lock().await.unwrap();

        sleep(TTL * 2).await;
        assert!(guard.is_held(), "{kind:?}");
        assert_eq!(servers.holding(&key()).await, 2, "{kind:?}");
        guard.release().await.unwrap();
        assert_eq!(started.elapsed(), TTL * 2, "{kind:?}");
        assert_eq!(servers.holding(&key()).await, 0, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn release_that_a_minority_hears_stays_unknown() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    servers.0[..2].iter().for_each(|server| server.set(State::Silent));

    let error = guard.release().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert_eq!(servers.holding(&key()).await, 2);
    sleep(TTL).await;
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn clock_of_one_member_that_jumps_frees_no_key() {
    let clock = JumpingClock::new();
    let mut servers = Servers::start(3);
    servers.0[0] = Server::on_clock(clock.clone());
    let (client, other) = (servers.client(), servers.client());
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();

    clock.jump(TTL * 2);
    assert_eq!(servers.holding(&key()).await, 2);

    assert!(matches!(other.mutex(key()).unwrap().try_lock().await, Err(TryLockError::Busy(_))));
    // The next renewal repairs the lease on the member.
    sleep(TTL / 2).await;
    assert!(guard.is_held());
    assert_eq!(servers.holding(&key()).await, 3);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn minority_of_votes_is_given_back() {
    let servers = Servers::found(3).await;
    let other = Lease::new(&key(), TTL);
    for server in &servers.0[..2] {
        server.store.acquire(&Claim::new(other.clone())).await.unwrap();
    }
    let quorum = servers.quorum();

    let attempt = quorum.acquire(&Claim::new(Lease::new(&key(), TTL))).await.unwrap();

    let Attempt::Held(contention) = attempt else { panic!("a minority was enough") };
    assert_eq!(contention.holder().unwrap().fingerprint(), other.id().fingerprint());
    assert!(contention.queue_entry().is_none());
    assert_eq!(servers.holding(&key()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn members_that_were_unreachable_vote_again() {
    let servers = Servers::found(3).await;
    let (quorum, claim) = (servers.quorum(), Claim::new(Lease::new(&key(), TTL)));
    quorum.establish().await.unwrap();
    let other = servers.client().mutex(key()).unwrap().lock().await.unwrap();
    let _admitted = quorum.watch(Subject::Claim(&claim));
    // One after the other, so that no majority is gone.
    for server in &servers.0[..2] {
        server.set(State::Fails(ErrorKind::Indeterminate));
        let attempt = quorum.acquire(&claim).await;
        assert!(!matches!(attempt, Ok(Attempt::Granted(_))));
        sleep(MS(10)).await;
        server.set(State::Up);
        sleep(TTL / 5).await;
    }
    other.release().await.unwrap();

    let attempt = quorum.acquire(&claim).await.unwrap();

    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?}");
}

#[tokio::test(start_paused = true)]
async fn one_member_keeps_no_waiter_from_a_majority() {
    let servers = Servers::found(3).await;
    let (client, other) = (servers.client(), servers.client());
    let guard = client.mutex(key()).unwrap().lock().await.unwrap();
    let waiter = tokio::spawn(async move { other.mutex(key()).unwrap().lock().await });
    sleep(Duration::from_secs(2)).await;

    // Another client's lease stays on the member that waiters ask first.
    guard.release().await.unwrap();
    let left = Lease::new(&key(), TTL * 10);
    servers.0[0].store.acquire(&Claim::new(left)).await.unwrap();

    sleep(Duration::from_secs(5)).await;
    assert!(waiter.is_finished(), "the waiter asks one member only");
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn vote_that_comes_during_a_later_attempt_is_given_back() {
    let servers = Servers::found(3).await;
    let (quorum, claim) = (servers.quorum(), Claim::new(Lease::new(&key(), TTL)));
    quorum.establish().await.unwrap();
    let other = Lease::new(&key(), TTL);
    for server in &servers.0[..2] {
        server.store.acquire(&Claim::new(other.clone())).await.unwrap();
        server.set(State::Slow(Duration::from_millis(100)));
    }
    let _admitted = quorum.watch(Subject::Claim(&claim));
    servers.0[2].set(State::Slow(Duration::from_millis(300)));
    for _ in 0..2 {
        let attempt = quorum.acquire(&claim).await.unwrap();
        assert!(matches!(attempt, Attempt::Held(_)));
        sleep(Duration::from_millis(120)).await;
    }

    sleep(Duration::from_secs(1)).await;
    assert_eq!(servers.holding(&key()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn vote_is_given_back_once_its_member_answers() {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    let other = Lease::new(&key(), TTL);
    for server in &servers.0[1..] {
        server.store.acquire(&Claim::new(other.clone())).await.unwrap();
        server.set(State::Slow(Duration::from_millis(10)));
    }
    let claim = Claim::new(Lease::new(&key(), TTL));
    let attempt = quorum.acquire(&claim);
    let falls_silent = async {
        // After its vote, before the refusals.
        sleep(Duration::from_millis(15)).await;
        servers.0[0].set(State::Silent);
    };

    let (attempt, ()) = tokio::join!(attempt, falls_silent);
    assert!(matches!(attempt.unwrap(), Attempt::Held(_)));
    assert_eq!(servers.holding(&key()).await, 3);
    servers.0[0].set(State::Up);

    sleep(TTL / 3).await;
    assert_eq!(servers.holding(&key()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn late_vote_of_a_refused_claim_is_given_back() {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    let other = Lease::new(&key(), TTL);
    for server in &servers.0[..2] {
        server.store.acquire(&Claim::new(other.clone())).await.unwrap();
    }
    let free = Lease::new(&LockKey::new("free").unwrap(), TTL);
    quorum.acquire(&Claim::new(free)).await.unwrap();
    servers.0[2].set(State::Slow(MS(400)));

    let attempt = quorum.acquire(&Claim::new(Lease::new(&key(), TTL))).await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)));

    // The vote comes after 400 ms, and the release of it takes as long again.
    sleep(MS(401)).await;
    assert!(servers.0[2].store.inspect(&key()).await.unwrap().is_held());
    sleep(MS(400)).await;
    assert!(!servers.0[2].store.inspect(&key()).await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_the_members_that_are_slow() {
    let servers = Servers::found(3).await;
    servers.0[0].set(State::Slow(MS(100)));
    let client = servers.client();
    lock_once(&client).await.unwrap();
    let started = Instant::now();

    client.shutdown(Duration::from_secs(5)).await.unwrap();

    assert!(started.elapsed() <= MS(200), "{:?}", started.elapsed());
    // The process may end now, and take its requests along.
    assert_eq!(servers.holding(&key()).await, 0);
    sleep(MS(200)).await;
    assert_eq!(servers.holding(&key()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_a_silent_member_no_longer_than_its_limit() {
    let servers = Servers::found(3).await;
    let client = servers.client();
    servers.0[0].set(State::Silent);
    lock_once(&client).await.unwrap();
    let started = Instant::now();

    client.shutdown(Duration::from_secs(5)).await.unwrap();

    assert_eq!(started.elapsed(), MS(250));
}

/// Starts three servers. The first two servers reject `lease`. The third server grants the lease
/// after 400 ms and needs another 400 ms for the release of this late vote.
async fn with_a_late_release(lease: &Lease) -> (Servers, Quorum<Member>) {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    let free = Lease::new(&LockKey::new("free").unwrap(), TTL);
    quorum.acquire(&Claim::new(free)).await.unwrap();
    let other = Lease::new(&key(), TTL);
    for server in &servers.0[..2] {
        server.store.acquire(&Claim::new(other.clone())).await.unwrap();
    }
    servers.0[2].set(State::Slow(MS(400)));
    let refused = quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(refused, Attempt::Held(_)));
    sleep(MS(500)).await;
    servers.0[2].set(State::Up);
    for server in &servers.0[..2] {
        server.store.release(&other).await.unwrap();
    }
    (servers, quorum)
}

#[tokio::test(start_paused = true)]
async fn vote_does_not_count_before_its_former_release_has_ended() {
    let lease = Lease::new(&key(), TTL);
    let (servers, quorum) = with_a_late_release(&lease).await;
    servers.0[1].set(State::Down);

    let early = quorum.acquire(&Claim::new(lease.clone())).await;

    assert!(!matches!(early, Ok(Attempt::Granted(_))), "{early:?}");
    sleep(MS(400)).await;
    let late = quorum.acquire(&Claim::new(lease)).await;
    assert!(matches!(late, Ok(Attempt::Granted(_))), "{late:?}");
    assert_eq!(servers.holding(&key()).await, 2);
}

/// A release may overtake an earlier one that got no answer.
#[tokio::test(start_paused = true)]
async fn vote_does_not_count_before_an_overtaken_release_could_have_come() {
    let servers = Servers::found(3).await;
    let quorum = servers.quorum();
    let free = Lease::new(&LockKey::new("free").unwrap(), TTL);
    quorum.acquire(&Claim::new(free)).await.unwrap();
    let (lease, other) = (Lease::new(&key(), TTL), Lease::new(&key(), TTL));
    for server in &servers.0[..2] {
        server.store.acquire(&Claim::new(other.clone())).await.unwrap();
    }
    // The vote arrives after the refusal. Its first release gets no reply for a sixth of the TTL,
    // and is sent again.
    servers.0[2].set(State::Slow(MS(400)));
    servers.0[2].delay_next_release(TTL / 6 + MS(500));
    let refused = quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(refused, Attempt::Held(_)));
    servers.0[2].set(State::Up);
    for server in &servers.0[..2] {
        server.store.release(&other).await.unwrap();
    }
    servers.0[1].set(State::Down);
    sleep(MS(400) + TTL / 6 + MS(250)).await;
    assert_eq!(servers.holding(&key()).await, 0);

    let early = quorum.acquire(&Claim::new(lease.clone())).await;

    assert!(!matches!(early, Ok(Attempt::Granted(_))), "{early:?}");
    sleep(TTL / 6).await;
    let late = quorum.acquire(&Claim::new(lease)).await;
    assert!(matches!(late, Ok(Attempt::Granted(_))), "{late:?}");
    sleep(TTL / 6).await;
    assert_eq!(servers.holding(&key()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn renewal_does_not_count_a_vote_with_a_release_under_way() {
    let lease = Lease::new(&key(), TTL);
    let (servers, quorum) = with_a_late_release(&lease).await;
    let granted = quorum.acquire(&Claim::new(lease.clone())).await.unwrap();
    assert!(matches!(granted, Attempt::Granted(_)));
    servers.0[1].store.force_release(&key(), None).await.unwrap();

    let renewed = quorum.renew(&lease).await;

    assert!(!matches!(renewed, Ok(Renewal::Renewed)), "{renewed:?}");
    sleep(MS(400)).await;
    assert!(!servers.0[2].store.inspect(&key()).await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn refused_waiters_of_many_clients_are_all_served() {
    let servers = Servers::found(5).await;
    // The member that is asked first hears of a release after others do.
    for (server, delay) in servers.0.iter().zip([5, 1, 1, 1, 1]) {
        server.set(State::Slow(MS(delay)));
    }
    let mut waiters = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..20 {
        let client = servers.client();
        waiters.spawn(async move {
            let options = LockOptions::new().ttl(TTL).hand_over(false);
            let mutex = client.mutex(key()).unwrap().with_options(options).unwrap();
            for _ in 0..5 {
                let guard = mutex.lock().await.unwrap();
                sleep(MS(1)).await;
                guard.release().await.unwrap();
            }
        });
    }

    while let Some(served) = waiters.join_next().await {
        served.unwrap();
    }

    // 100 locks one after the other. A split vote costs a few requests and a pause.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}
