use std::future::pending;

use futures_util::future::join_all;
use tokio::runtime::Builder;
use tokio::task::yield_now;

use super::*;
use crate::call::Template;
use crate::postgres::DIALECT;
use crate::remote::Row;

/// How long each connection attempt and the statement `slow` take.
const SLOW: Duration = Duration::from_millis(100);

const LIMIT: Duration = Duration::from_secs(1);

/// The reply to a statement, if there is one.
type Answer = Option<Result<Vec<Row>, RunError>>;

/// Connections to a server that records statements.
#[derive(Clone)]
struct Server {
    texts: Arc<Mutex<Vec<String>>>,
    answer: fn(&str) -> Answer,
    /// The time of each connection attempt.
    attempts: Arc<Mutex<Vec<Instant>>>,
    /// The number of connection attempts that succeed.
    free: usize,
    /// Whether the remaining connection attempts hang instead of failing.
    hangs_when_full: bool,
}

impl Server {
    fn new(answer: fn(&str) -> Answer) -> Self {
        Self {
            texts: Arc::default(),
            answer,
            attempts: Arc::default(),
            free: usize::MAX,
            hangs_when_full: false,
        }
    }

    /// Returns a server that replies only to `renew`.
    fn that_hangs() -> Self {
        Self::new(|text| (text == "renew").then(|| Ok(Vec::new())))
    }

    fn that_replies() -> Self {
        Self::new(|_| Some(Ok(Vec::new())))
    }

    /// Returns a server that accepts only this number of connections.
    fn with_free_connections(free: usize) -> Self {
        Self { free, ..Self::that_replies() }
    }

    fn pool(&self, connections: usize) -> Pool<Self> {
        Pool::new(Arc::new(self.clone()), connections, LIMIT)
    }

    fn attempts(&self) -> usize {
        self.attempts.lock().unwrap().len()
    }

    fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap().clone()
    }
}

impl Pool<Server> {
    fn shared(&self) -> Arc<Shared<Server>> {
        self.runtimes.current().unwrap()
    }
}

#[async_trait]
impl Connector for Server {
    type Link = Self;

    fn address(&self) -> String {
        "nowhere:1".to_owned()
    }

    async fn connect(&self) -> Result<Self, RunError> {
        let number = {
            let mut attempts = self.attempts.lock().unwrap();
            attempts.push(Instant::now());
            attempts.len()
        };
        if number > self.free && self.hangs_when_full {
            return pending().await;
        }
        if number > self.free {
            return Err(RunError::new(Failure::NotApplied, "no connections left", "53300"));
        }
        sleep(SLOW).await;
        Ok(self.clone())
    }
}

#[async_trait]
impl Link for Server {
    fn is_usable(&self) -> bool {
        true
    }

    async fn is_alive(&mut self, _limit: Duration) -> bool {
        true
    }

    async fn execute(&mut self, call: &Call, _left: Duration) -> Result<Reply, RunError> {
        call.reply(self.exchange(call.text()).await?)
    }

    async fn exchange(&mut self, text: String) -> Result<Vec<Row>, RunError> {
        let answer = (self.answer)(&text);
        self.texts.lock().unwrap().push(text.clone());
        if text == "slow" {
            sleep(SLOW).await;
        }
        match answer {
            Some(answer) => answer,
            None => pending().await,
        }
    }
}

fn call(text: &str) -> Call {
    Call::new(&Template::once(&DIALECT, text.to_owned()), Vec::new())
}

#[tokio::test(start_paused = true)]
async fn acquisitions_that_hang_keep_no_connection_from_a_renewal() {
    let pool = Server::that_hangs().pool(2);
    let [acquire, release, renew] = ["acquire", "release", "renew"].map(call);
    // The connections of the first two calls become free only after the third call has timed out.
    let hang = |limit| pool.run(&acquire, Urgency::Asks, limit);
    let hanging = join_all([LIMIT, LIMIT, LIMIT / 2].map(hang));
    let started = Instant::now();

    let (failed, released, renewed) = tokio::join!(
        hanging,
        pool.run(&release, Urgency::Releases, LIMIT),
        pool.run(&renew, Urgency::Renews, LIMIT),
    );

    assert!(renewed.is_ok() && released.is_err());
    let failures: Vec<Failure> =
        failed.into_iter().map(|reply| reply.unwrap_err().failure()).collect();
    assert_eq!(failures, [Failure::Unknown, Failure::Unknown, Failure::NotApplied]);
    assert_eq!(started.elapsed(), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_missing_closes_the_idle_connections_of_its_lane() {
    let pool = Server::that_hangs().pool(3);
    for lane in
        [&pool.shared().asks, &pool.shared().asks, &pool.shared().asks, &pool.shared().renews]
    {
        lane.put_back(Server::that_hangs());
    }

    let reply = pool.execute(&call("acquire")).await;

    assert_eq!(reply.unwrap_err().failure(), Failure::Unknown);
    assert_eq!((pool.shared().asks.idle(), pool.shared().renews.idle()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_sessions_change_sends_complete_batches() {
    let server = Server::new(|text| {
        let unknown = || RunError::new(Failure::Unprepared, "no such statement", "unknown");
        Some(if text == "2" { Err(unknown()) } else { Ok(Vec::new()) })
    });
    let pool = server.pool(1);

    for text in ["1", "2", "3"] {
        pool.execute(&call(text)).await.unwrap();
    }

    let texts = server.texts();
    assert_eq!(texts[..2], ["1", "2"]);
    for (text, body) in texts[2..].iter().zip(["2", "3"]) {
        assert!(text.starts_with("SET ") && text.ends_with(body), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_connection_of_a_caller_that_leaves_is_used_again() {
    let server = Server::that_replies();
    let pool = server.pool(1);
    pool.execute(&call("first")).await.unwrap();

    let left = timeout(SLOW / 2, pool.execute(&call("slow"))).await;
    pool.execute(&call("last")).await.unwrap();

    assert!(left.is_err());
    assert_eq!(
        (server.texts(), server.attempts()),
        (["first", "slow", "last"].map(str::to_owned).into(), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_during_the_connection_attempt_leaves_the_connection_to_others() {
    let server = Server::that_replies();
    let pool = server.pool(1);

    let left = timeout(SLOW / 2, pool.execute(&call("left"))).await;
    pool.execute(&call("next")).await.unwrap();

    assert!(left.is_err());
    assert_eq!((server.texts(), server.attempts()), (vec!["next".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn refused_connections_are_not_tried_more_than_twenty_times_per_second() {
    let server = Server::with_free_connections(0);
    let pool = server.pool(4);
    let end = Instant::now() + 3 * LIMIT;
    let calls = async |urgency| {
        while Instant::now() < end {
            let error = pool.run(&call("any"), urgency, LIMIT).await.unwrap_err();
            assert!(error.to_string().contains("no connections left"), "{error}");
            sleep(Duration::from_millis(10)).await;
        }
    };

    let asks = join_all((0..50).map(|_| calls(Urgency::Asks)));
    tokio::join!(asks, calls(Urgency::Releases), calls(Urgency::Renews));

    let attempts = server.attempts.lock().unwrap().clone();
    assert!(attempts.len() > 20, "{} attempts", attempts.len());
    for window in attempts.windows(21) {
        assert!(window[20] - window[0] >= Duration::from_secs(1), "{window:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_connection_of_a_grant_is_kept_for_renewals_and_releases() {
    let server = Server::with_free_connections(1);
    let pool = server.pool(4);

    pool.execute(&call("acquire")).await.unwrap();
    pool.keep_for_renewals(10 * IDLE);
    // Waiters of other processes use all connections.
    sleep(9 * IDLE).await;
    pool.run(&call("renew"), Urgency::Renews, LIMIT).await.unwrap();
    pool.run(&call("release"), Urgency::Releases, LIMIT).await.unwrap();

    assert_eq!(server.texts(), ["acquire", "renew", "release"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_and_released_although_further_connection_attempts_hang() {
    let server = Server { hangs_when_full: true, ..Server::with_free_connections(1) };
    let pool = server.pool(4);
    pool.execute(&call("acquire")).await.unwrap();
    let begun_at = Instant::now();

    for (text, urgency) in [("renew", Urgency::Renews), ("release", Urgency::Releases)] {
        pool.run(&call(text), urgency, LIMIT).await.unwrap();
    }

    assert_eq!(server.texts(), ["acquire", "renew", "release"]);
    // Both calls use the connection of the acquisition, instead of waiting for a new connection.
    assert!(begun_at.elapsed() < LIMIT / 2, "{:?}", begun_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_for_acquisitions_although_its_group_has_no_connection() {
    let server = Server::new(|text| (text != "hangs").then(|| Ok(Vec::new())));
    let pool = Arc::new(server.pool(1));
    pool.run(&call("renew"), Urgency::Renews, LIMIT).await.unwrap();
    let acquiring = Arc::clone(&pool);
    tokio::spawn(async move { acquiring.execute(&call("hangs")).await });
    while server.texts().len() < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    let begun_at = Instant::now();

    pool.run(&call("release"), Urgency::Releases, LIMIT).await.unwrap();

    assert!(begun_at.elapsed() < LIMIT / 2, "{:?}", begun_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn calls_share_the_connections_that_the_server_accepts() {
    let server = Server::with_free_connections(1);
    let pool = server.pool(4);

    let calls = join_all((0..8).map(|_| async { pool.execute(&call("slow")).await })).await;

    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn connections_that_nobody_uses_are_closed() {
    let server = Server::that_replies();
    let pool = server.pool(4);
    join_all((0..4).map(|_| async { pool.execute(&call("slow")).await })).await;
    assert_eq!(pool.shared().asks.idle(), 4);

    // A waiter needs one connection.
    for _ in 0..20 {
        sleep(IDLE / 10).await;
        pool.execute(&call("ask")).await.unwrap();
    }
    yield_now().await;

    assert_eq!((pool.shared().asks.idle(), server.attempts()), (1, 4));
    sleep(2 * IDLE).await;
    assert_eq!(pool.shared().asks.idle(), 0);
}

#[test]
fn calls_of_a_blocked_runtime_do_not_delay_another_runtime() {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let urgencies = [Urgency::Asks, Urgency::Releases, Urgency::Renews];
    // The runtime is blocked either during a connection attempt or during an exchange.
    for blocked_after in [SLOW / 2, 2 * SLOW] {
        let (pool, blocked) = (Server::that_hangs().pool(1), runtime());
        let (hangs, renew) = (call("hangs"), call("renew"));
        let hang = |urgency| timeout(blocked_after, pool.run(&hangs, urgency, LIMIT));
        let hanging = blocked.block_on(async { join_all(urgencies.map(hang)).await });
        assert!(hanging.iter().all(Result::is_err));

        let run = |urgency| pool.run(&renew, urgency, LIMIT);
        let replies = runtime().block_on(async { join_all(urgencies.map(run)).await });

        assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    }
}

#[test]
fn the_connections_of_a_runtime_end_with_the_runtime() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let pool = Server::that_replies().pool(1);
    let shared = runtime.block_on(async {
        pool.execute(&call("any")).await.unwrap();
        pool.shared()
    });
    assert_eq!(shared.asks.idle(), 1);

    drop(runtime);

    assert_eq!(shared.asks.idle(), 0);
}
