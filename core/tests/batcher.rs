//! The batcher of backends, with a store that records the batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_core::batch::{BatchLimits, Batcher, LANES, Lane, SendBatch, Submitted};
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

/// The longest time that a batch may take.
const LIMIT: Duration = Duration::from_secs(1);

/// The time that the store needs for a batch.
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// A store that records each batch and replies with the length of each request.
#[derive(Clone, Default)]
struct Store(Arc<Inner>);

#[derive(Default)]
struct Inner {
    batches: Mutex<Vec<Vec<String>>>,
    round_trip: Mutex<Duration>,
    route: Mutex<usize>,
    /// Requests whose batch is sent twice.
    repeated: Mutex<Vec<String>>,
}

impl Store {
    fn batches(&self) -> Vec<Vec<String>> {
        self.0.batches.lock().unwrap().clone()
    }

    /// Creates a batcher for this store, which needs `round_trip` for each batch.
    fn batcher(&self, round_trip: Duration, limits: BatchLimits) -> Batcher<Self> {
        *self.0.round_trip.lock().unwrap() = round_trip;
        Batcher::new("test", self.clone(), limits)
    }

    async fn exchange(&self, requests: Vec<String>) {
        self.0.batches.lock().unwrap().push(requests);
        let round_trip = *self.0.round_trip.lock().unwrap();
        tokio::time::sleep(round_trip).await;
    }
}

impl SendBatch for Store {
    type Request = LockKey;
    type Reply = usize;

    async fn send_next(&self, lane: &mut Lane<Self>) {
        let Some(mut batch) = lane.next_batch() else { return };
        let names = |key: &LockKey| key.as_str().to_owned();
        self.exchange(batch.open().map(|(_, key)| names(key)).collect()).await;
        let repeated = self.0.repeated.lock().unwrap().clone();
        let is_repeated = |key: &LockKey| repeated.contains(&names(key));
        let once: Vec<usize> =
            batch.open().filter(|(_, key)| !is_repeated(key)).map(|(index, _)| index).collect();
        once.into_iter().for_each(|index| batch.answer(index, 1));
        let again: Vec<String> = batch.open().map(|(_, key)| names(key)).collect();
        if !again.is_empty() {
            self.exchange(again).await;
        }
        batch.answer_all(|_key| 2);
    }

    fn weight(&self, key: &LockKey) -> usize {
        key.as_str().len()
    }

    fn exclusive_key<'a>(&self, key: &'a LockKey) -> Option<&'a LockKey> {
        key.as_str().starts_with("own/").then_some(key)
    }

    fn is_urgent(&self, key: &LockKey) -> bool {
        key.as_str().starts_with("urgent/")
    }

    fn route(&self) -> usize {
        *self.0.route.lock().unwrap()
    }
}

fn limits() -> BatchLimits {
    BatchLimits::new(LIMIT)
}

/// Submits one request for each name.
fn submit<'a>(batcher: &'a Batcher<Store>, names: &[&str]) -> Vec<Submitted<'a, Store>> {
    let key = |name: &&str| LockKey::new(*name).unwrap();
    names.iter().map(|name| batcher.submit(key(name)).unwrap()).collect()
}

async fn replies(submitted: Vec<Submitted<'_, Store>>) -> Vec<Result<usize, ErrorKind>> {
    let replies = join_all(submitted.into_iter().map(Submitted::reply)).await;
    replies.into_iter().map(|reply| reply.map_err(|error: Error| error.kind())).collect()
}

/// Returns a runtime with paused time. The paused time does not advance while a task is ready.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Submits a request, and returns when the store has received the request.
async fn sent<'a>(batcher: &'a Batcher<Store>, name: &str) -> Submitted<'a, Store> {
    let before = batcher.sender().batches().len();
    let submitted = submit(batcher, &[name]).remove(0);
    while batcher.sender().batches().len() == before {
        yield_now().await;
    }
    submitted
}

/// Makes all lanes busy.
async fn keep_busy(batcher: &Batcher<Store>) -> Vec<Submitted<'_, Store>> {
    let mut submitted = Vec::new();
    for n in 0..LANES {
        submitted.push(sent(batcher, &format!("busy/{n}")).await);
    }
    submitted
}

/// Returns the batches that followed the batches of [`keep_busy`].
fn later_batches(store: &Store) -> Vec<Vec<String>> {
    store.batches().split_off(LANES)
}

async fn assert_becomes_idle(batcher: &Batcher<Store>) {
    let is_idle = async {
        while !batcher.is_idle() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, is_idle).await.expect("all lanes end");
}

#[tokio::test(start_paused = true)]
async fn few_callers_send_alone_and_others_join_a_batch() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits());
    assert!(batcher.is_idle());

    let mut alone: Vec<_> = (0..LANES).map(|_| batcher.alone().unwrap()).collect();
    assert!(batcher.alone().is_none() && !batcher.is_idle());
    drop(alone.pop());
    assert!(batcher.alone().is_some());

    let submitted = submit(&batcher, &["a"]);
    assert!(batcher.alone().is_none(), "a lane is running");
    drop(alone);
    assert!(!batcher.is_idle());
    assert_eq!(replies(submitted).await, [Ok(1)]);
    assert_becomes_idle(&batcher).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_while_others_are_sent_share_a_batch() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits());
    let busy = keep_busy(&batcher).await;

    let submitted = submit(&batcher, &["a", "b", "c"]);

    assert_eq!(replies(submitted).await, [Ok(1); 3]);
    assert_eq!(replies(busy).await, [Ok(1); LANES]);
    assert_eq!(later_batches(&store), [["a", "b", "c"]]);
    assert_becomes_idle(&batcher).await;
}

#[tokio::test(start_paused = true)]
async fn no_batch_exceeds_its_limits() {
    for (limits, expected) in [
        (limits().with_requests(2), vec![vec!["a", "bb"], vec!["ccc", "dddddd"], vec!["e"]]),
        (limits().with_weight(5), vec![vec!["a", "bb"], vec!["ccc"], vec!["dddddd"], vec!["e"]]),
        (
            limits().with_requests(1),
            vec![vec!["a"], vec!["bb"], vec!["ccc"], vec!["dddddd"], vec!["e"]],
        ),
    ] {
        let store = Store::default();
        let batcher = store.batcher(ROUND_TRIP, limits);
        let busy = keep_busy(&batcher).await;

        let submitted = submit(&batcher, &["a", "bb", "ccc", "dddddd", "e"]);

        assert_eq!(replies(submitted).await, [Ok(1); 5]);
        assert_eq!(later_batches(&store), expected);
        drop(busy);
    }
}

#[tokio::test(start_paused = true)]
async fn batch_contains_an_exclusive_key_once_and_in_order() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits());
    let busy = keep_busy(&batcher).await;

    let submitted = submit(&batcher, &["own/a", "own/b", "own/a", "c", "own/a", "own/b", "c"]);

    assert_eq!(replies(submitted).await, [Ok(1); 7]);
    let expected = [vec!["own/a", "own/b", "c", "c"], vec!["own/a", "own/b"], vec!["own/a"]];
    assert_eq!(later_batches(&store), expected);
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn request_of_a_caller_that_left_is_not_sent() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits());
    let busy = keep_busy(&batcher).await;
    let mut submitted = submit(&batcher, &["a", "left", "b"]);

    drop(submitted.remove(1));

    assert_eq!(replies(submitted).await, [Ok(1); 2]);
    assert_eq!(later_batches(&store), [["a", "b"]]);
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn batch_of_callers_that_left_is_not_sent() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits());

    drop(submit(&batcher, &["left", "left"]));

    assert_becomes_idle(&batcher).await;
    assert!(store.batches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn request_of_a_caller_that_left_is_not_repeated() {
    let store = Store::default();
    *store.0.repeated.lock().unwrap() = vec!["stays".to_owned(), "left".to_owned()];
    let batcher = store.batcher(ROUND_TRIP, limits());
    let mut submitted = submit(&batcher, &["stays", "left"]);
    tokio::time::sleep(ROUND_TRIP / 2).await;

    drop(submitted.remove(1));

    assert_eq!(replies(submitted).await, [Ok(2)]);
    assert_eq!(store.batches(), [vec!["stays", "left"], vec!["stays"]]);
}

#[tokio::test(start_paused = true)]
async fn request_is_answered_before_the_rest_of_its_batch() {
    let store = Store::default();
    *store.0.repeated.lock().unwrap() = vec!["slow".to_owned()];
    let batcher = store.batcher(ROUND_TRIP, limits());
    let mut submitted = submit(&batcher, &["slow", "fast"]);
    let fast = submitted.remove(1);

    let begun_at = tokio::time::Instant::now();
    assert_eq!(fast.reply().await.unwrap(), 1);
    assert_eq!(begun_at.elapsed(), ROUND_TRIP);

    assert_eq!(replies(submitted).await, [Ok(2)]);
    assert_eq!(begun_at.elapsed(), 2 * ROUND_TRIP);
    // The answered request is not part of the repetition.
    assert_eq!(store.batches(), [vec!["slow", "fast"], vec!["slow"]]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_stop_polling_do_not_delay_others() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits());
    let mut stuck: Vec<_> =
        submit(&batcher, &["a", "b"]).into_iter().map(|one| Box::pin(one.reply())).collect();
    for reply in &mut stuck {
        assert!(reply.now_or_never().is_none());
    }

    assert_eq!(replies(submit(&batcher, &["c"])).await, [Ok(1)]);

    assert!(join_all(stuck).await.into_iter().all(|reply| reply.is_ok()));
}

#[test]
fn no_lane_starts_outside_of_a_runtime() {
    let batcher = Store::default().batcher(ROUND_TRIP, limits());

    let refused = batcher.submit(LockKey::new("a").unwrap()).map(drop).unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(batcher.is_idle());
}

#[test]
fn shut_down_runtime_leaves_sent_requests_with_an_unknown_outcome() {
    let batcher = Store::default().batcher(ROUND_TRIP, limits());
    let (ending, other) = (runtime(), runtime());
    let (busy, queued) =
        ending.block_on(async { (keep_busy(&batcher).await, submit(&batcher, &["queued"])) });

    drop(ending);

    assert_eq!(other.block_on(replies(busy)), [Err(ErrorKind::Indeterminate); LANES]);
    assert_eq!(other.block_on(replies(queued)), [Err(ErrorKind::Unavailable)]);
    assert!(batcher.is_idle());
    assert_eq!(other.block_on(async { replies(submit(&batcher, &["next"])).await }), [Ok(1)]);
}

#[test]
fn shut_down_runtime_leaves_queued_requests_to_the_lanes_of_another() {
    let batcher = Store::default().batcher(ROUND_TRIP, limits());
    let (ending, other) = (runtime(), runtime());
    let sent_by_ending = ending.block_on(sent(&batcher, "busy/0"));
    let queued = other.block_on(async {
        for n in 1..LANES {
            drop(sent(&batcher, &format!("busy/{n}")).await);
        }
        submit(&batcher, &["queued"])
    });

    drop(ending);

    assert_eq!(other.block_on(replies(queued)), [Ok(1)]);
    assert_eq!(other.block_on(replies(vec![sent_by_ending])), [Err(ErrorKind::Indeterminate)]);
}

/// Starts all lanes on a runtime that stops after `sent_before` of them have sent a batch.
async fn stall(batcher: &Batcher<Store>, sent_before: usize) -> Vec<Submitted<'_, Store>> {
    let mut submitted = Vec::new();
    for n in 0..sent_before {
        submitted.push(sent(batcher, &format!("sent/{n}")).await);
    }
    for n in sent_before..LANES {
        submitted.extend(submit(batcher, &[&format!("queued/{n}")]));
    }
    submitted
}

#[test]
fn lanes_of_a_stalled_runtime_are_replaced() {
    for sent_before in 0..=LANES {
        let batcher = Store::default().batcher(ROUND_TRIP, limits());
        let [stalled, other] = [runtime(), runtime()];
        let of_stalled = stalled.block_on(stall(&batcher, sent_before));

        let next = async { timeout(10 * LIMIT, replies(submit(&batcher, &["next"]))).await };

        assert_eq!(other.block_on(next).unwrap(), [Ok(1)]);
        // The lanes of the stalled runtime continue with their own batches and then end.
        assert_eq!(stalled.block_on(replies(of_stalled)), [Ok(1); LANES]);
        other.block_on(assert_becomes_idle(&batcher));
    }
}

#[test]
fn caller_whose_request_a_stalled_runtime_has_sent_gets_an_unknown_outcome() {
    let batcher = Store::default().batcher(ROUND_TRIP, limits());
    let [stalled, other] = [runtime(), runtime()];
    let sent = stalled.block_on(stall(&batcher, LANES));

    let replies = other.block_on(async { timeout(10 * LIMIT, replies(sent)).await });

    assert_eq!(replies.unwrap(), [Err(ErrorKind::Indeterminate); LANES]);
}

#[test]
fn callers_that_leave_early_also_replace_stalled_lanes() {
    let batcher = Store::default().batcher(ROUND_TRIP, limits());
    let [stalled, other] = [runtime(), runtime()];
    let _of_stalled = stalled.block_on(stall(&batcher, 1));

    let is_answered = other.block_on(async {
        let mut is_answered = Vec::new();
        for _ in 0..5 {
            let next = timeout(LIMIT / 3, replies(submit(&batcher, &["next"])));
            is_answered.push(next.await.is_ok());
        }
        is_answered
    });

    assert_eq!(is_answered.last(), Some(&true), "{is_answered:?}");
}

#[tokio::test(start_paused = true)]
async fn lanes_that_make_progress_are_not_replaced() {
    let store = Store::default();
    let batcher = store.batcher(LIMIT / 4, limits().with_requests(1));

    let queued = submit(&batcher, &vec!["a"; 20 * LANES]);

    let begun_at = tokio::time::Instant::now();
    assert_eq!(replies(queued).await, [Ok(1); 20 * LANES]);
    // Additional lanes would need less time.
    assert_eq!(begun_at.elapsed(), 20 * LIMIT / 4);
}

#[tokio::test(start_paused = true)]
async fn lanes_to_a_previous_server_do_not_count() {
    let store = Store::default();
    let batcher = store.batcher(LIMIT / 2, limits());
    let busy = keep_busy(&batcher).await;
    assert!(submit(&batcher, &["waits"]).remove(0).reply().now_or_never().is_none());
    yield_now().await;
    assert_eq!(store.batches().len(), LANES);

    *store.0.route.lock().unwrap() = 1;
    let next = keep_busy(&batcher).await;

    assert_eq!(store.batches().len(), 2 * LANES);
    assert_eq!(replies(busy).await, [Ok(1); LANES]);
    assert_eq!(replies(next).await, [Ok(1); LANES]);
    assert_becomes_idle(&batcher).await;
}

#[tokio::test(start_paused = true)]
async fn urgent_requests_never_wait_behind_others() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits().with_requests(2));
    let busy = keep_busy(&batcher).await;

    let submitted = submit(&batcher, &["a", "b", "urgent/1", "c", "urgent/2", "urgent/3"]);

    assert_eq!(replies(submitted).await, [Ok(1); 6]);
    let expected = [["urgent/1", "urgent/2"], ["urgent/3", "a"], ["b", "c"]];
    assert_eq!(later_batches(&store), expected);
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn full_queue_rejects_requests_and_names_its_limit() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits().with_queued(2));
    let busy = keep_busy(&batcher).await;
    let mut submitted = submit(&batcher, &["a", "b"]);
    let submit_one = |name: &str| batcher.submit(LockKey::new(name).unwrap());

    let refused = submit_one("c").map(drop).unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("2 requests are already queued"), "{refused}");
    // Acquisitions do not prevent renewals and releases.
    submitted.extend(submit(&batcher, &["urgent/1", "urgent/2"]));
    assert_eq!(submit_one("urgent/3").map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(replies(submitted).await, [Ok(1); 4]);
    assert_eq!(replies(submit(&batcher, &["c"])).await, [Ok(1)]);
    drop(busy);
}

#[tokio::test(start_paused = true)]
async fn stats_show_the_queue_and_the_batches() {
    let store = Store::default();
    let batcher = store.batcher(ROUND_TRIP, limits());
    let busy = keep_busy(&batcher).await;
    let submitted = submit(&batcher, &["a", "b"]);
    assert_eq!(batcher.stats().queued, 2);

    assert_eq!(replies(submitted).await, [Ok(1); 2]);

    let stats = batcher.stats();
    assert_eq!((stats.queued, stats.batches), (0, LANES as u64 + 1));
    assert_eq!(stats.requests, LANES as u64 + 2);
    assert_eq!(stats.waited, 2 * ROUND_TRIP);
    drop(busy);
}
