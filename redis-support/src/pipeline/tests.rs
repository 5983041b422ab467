use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_core::LockKey;
use tokio::runtime::{Builder, Runtime};

use super::batch::MAX_CALLERS;
use super::*;
use crate::connection::exactly;
use crate::error::ServerError;
use crate::fake::Fake;
use crate::reply::Reply;
use crate::script::Script;

const SLOW: Duration = Duration::from_millis(10);
const TTL: Duration = Duration::from_secs(30);

/// A script for many locks, as the server received it.
#[derive(Debug, Eq, PartialEq)]
struct Exchange {
    command: String,
    shared: Vec<String>,
    released: Vec<String>,
    acquired: Vec<String>,
    ttl: String,
}

impl Exchange {
    fn read(words: &[String]) -> Option<Self> {
        let source = Script::Exchange.source();
        if words.len() < 3 || words[1] != Script::Exchange.hash() && words[1] != source {
            return None;
        }
        let count: usize = words[2].parse().unwrap();
        let (keys, args) = words[3..].split_at(count);
        let (shared, locks) = keys.split_at(2);
        let (released, acquired) = locks.split_at(args[0].parse().unwrap());
        assert_eq!(args.len(), 2 + locks.len(), "each lock has a value");
        Some(Self {
            command: words[0].clone(),
            shared: shared.to_vec(),
            released: released.to_vec(),
            acquired: acquired.to_vec(),
            ttl: args[1].clone(),
        })
    }
}

/// Returns the reply of a server that grants every request. Tokens start at 7, and each lock gets
/// two tokens.
fn does_all(_exchange: &Exchange) -> Received {
    Ok(Reply::Array(vec![Reply::Int(7), Reply::Int(2)]))
}

fn serve(fake: &Fake, answer: impl Fn(&Exchange) -> Received + Send + Sync + 'static) {
    fake.serve("h:1", move |words| {
        let exchange = Exchange::read(words);
        Some(exchange.map_or(Ok(Reply::Other), |exchange| answer(&exchange)))
    });
}

/// Returns a pipeline to a slow server, over an open connection.
async fn connected(
    layout: Layout,
    answer: impl Fn(&Exchange) -> Received + Send + Sync + 'static,
) -> (Arc<Pipeline<Fake>>, Fake) {
    let fake = Fake::default();
    serve(&fake, answer);
    (connected_to(&fake, &layout).await, fake)
}

async fn connected_to(fake: &Fake, layout: &Layout) -> Arc<Pipeline<Fake>> {
    fake.delay("h:1", SLOW);
    let pipeline = pipeline(fake, layout);
    pipeline.connection.connect().await.unwrap();
    pipeline
}

fn pipeline(fake: &Fake, layout: &Layout) -> Arc<Pipeline<Fake>> {
    Pipeline::new(&fake.connection(layout), layout)
}

/// Returns a runtime with paused time. The paused time does not advance while a task is ready.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// Starts to acquire a mutex, and returns when the request has reached the server.
async fn sent(pipeline: &Arc<Pipeline<Fake>>, fake: &Fake, name: &str) -> Joined {
    let before = fake.round_trips().len();
    let joined = pipeline.acquired(&[name]).remove(0);
    while fake.round_trips().len() == before {
        yield_now().await;
    }
    joined
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL)
}

fn call(name: &str) -> Call {
    Call::inspect(&Layout::default(), &LockKey::new(name).unwrap())
}

impl Pipeline<Fake> {
    fn is_idle(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.alone == 0 && state.lanes == 0
    }

    async fn run(&self, call: &Call) -> Result<Received, Error> {
        let _alone = self.alone();
        let requests = [Request::ByHash(call.run())];
        let [received] =
            exactly(self.in_order(self.connection.run(&requests, Duration::ZERO)).await?)?;
        Ok(received)
    }

    /// Allows lanes that have informed all callers to end. A lane may still be checking the
    /// connection.
    async fn assert_idle(&self) {
        let is_idle = async {
            while !self.is_idle() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(self.limit(), is_idle).await.expect("all lanes end");
    }

    /// Joins a batch as if a different request were in progress.
    fn joined(self: &Arc<Self>, change: Change, lease: &Lease) -> Joined {
        let _alone = self.alone();
        self.join(change, lease).expect("another request is under way")
    }

    fn acquired(self: &Arc<Self>, names: &[&str]) -> Vec<Joined> {
        names.iter().map(|name| self.joined(Change::Acquire, &lease(name))).collect()
    }
}

fn granted(token: i64) -> Outcome {
    Outcome::Granted { token, spare: 1 }
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_company_is_faster_alone() {
    let (pipeline, fake) = connected(Layout::default(), does_all).await;
    assert!(pipeline.join(Change::Acquire, &lease("a")).is_none());

    let call = call("a");
    let mut alone = Box::pin(pipeline.run(&call));
    assert!((&mut alone).now_or_never().is_none());

    let joined = pipeline.join(Change::Acquire, &lease("b")).unwrap();
    assert_eq!(joined.await.unwrap(), granted(7));
    alone.await.unwrap().unwrap();
    pipeline.assert_idle().await;
    assert!(pipeline.join(Change::Acquire, &lease("a")).is_none());
    // The first request enables notifications. A request before the batch disables them.
    assert_eq!(fake.round_trips(), [1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn callers_that_come_meanwhile_leave_together() {
    let (pipeline, fake) = connected(Layout::default(), does_all).await;
    let joined = pipeline.acquired(&["a", "b", "c"]);

    let outcomes: Vec<_> = join_all(joined).await.into_iter().map(Result::unwrap).collect();

    assert_eq!(outcomes, [granted(7), granted(9), granted(11)]);
    assert_eq!(fake.round_trips(), [1, 2]);
    pipeline.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_leave_together_than_may() {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sizes);
    let answer = move |exchange: &Exchange| {
        seen.lock().unwrap().push(exchange.acquired.len());
        does_all(exchange)
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let leases: Vec<Lease> = (0..300).map(|n| lease(&format!("k{n}"))).collect();

    let joined = leases.iter().map(|lease| pipeline.joined(Change::Acquire, lease));
    let joined: Vec<Joined> = joined.collect();
    join_all(joined).await;

    assert_eq!(*sizes.lock().unwrap(), [MAX_CALLERS, MAX_CALLERS, 300 - 2 * MAX_CALLERS]);
}

#[tokio::test(start_paused = true)]
async fn releases_come_first_and_each_ttl_has_a_script() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    let answer = move |exchange: &Exchange| {
        let Exchange { released, acquired, ttl, .. } = exchange;
        all.lock().unwrap().push((released.clone(), acquired.clone(), ttl.clone()));
        does_all(exchange)
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let short = lease("c").with_ttl(Duration::from_micros(1_500));
    let joined = [
        pipeline.joined(Change::Acquire, &lease("a")),
        pipeline.joined(Change::Release, &lease("b")),
        pipeline.joined(Change::Acquire, &short),
        pipeline.joined(Change::Acquire, &lease("d")),
        pipeline.joined(Change::Release, &lease("e")),
    ];

    let outcomes = join_all(joined).await.into_iter().map(Result::unwrap);

    let released = || Outcome::Released;
    let expected = [granted(7), released(), granted(7), granted(9), released()];
    assert!(outcomes.eq(expected));
    let names = |names: &[&str]| names.iter().map(|n| format!("lock:{n}")).collect::<Vec<_>>();
    assert_eq!(
        *seen.lock().unwrap(),
        [
            (names(&["b", "e"]), names(&["c"]), "2".to_owned()),
            (Vec::new(), names(&["a", "d"]), "30000".to_owned()),
        ]
    );
}

/// Returns a pipeline to a server of a cluster, and the arguments that the server receives. The
/// server returns `reply` for scripts for locks of several slots.
async fn of_a_cluster(reply: Received) -> (Arc<Pipeline<Fake>>, Arc<Mutex<Vec<Vec<String>>>>) {
    let (fake, seen) = (Fake::default(), Arc::new(Mutex::new(Vec::new())));
    let all = Arc::clone(&seen);
    fake.serve("h:1", move |words| {
        if words.get(1).is_none_or(|script| script != Script::ExchangeBySlot.hash()) {
            return Some(Ok(Reply::Other));
        }
        all.lock().unwrap().push(words[2..].to_vec());
        Some(reply.clone())
    });
    (connected_to(&fake, &Layout::default().by_slot()).await, seen)
}

fn integers(numbers: &[i64]) -> Received {
    Ok(Reply::Array(numbers.iter().copied().map(Reply::Int).collect()))
}

#[tokio::test(start_paused = true)]
async fn locks_of_many_slots_share_a_script_that_declares_no_keys() {
    let (pipeline, seen) = of_a_cluster(integers(&[1, 7, 0, 0, 2, 0])).await;
    let (a, b, c) = (lease("a"), lease("b"), lease("c"));

    let joined = [
        pipeline.joined(Change::Acquire, &a),
        pipeline.joined(Change::Acquire, &b),
        pipeline.joined(Change::Release, &c),
    ];
    let outcomes = join_all(joined).await.into_iter().map(Result::unwrap);

    let granted = Outcome::Granted { token: 7, spare: 2 };
    assert!(outcomes.eq([granted, Outcome::LeftAlone, Outcome::Released]));
    let value = |lease: &Lease| lease.id().secret();
    let expected = [
        ["0", "1", "30000", "lock:~crowd:{", "lock:~fence:{"].map(str::to_owned).to_vec(),
        ["lock:c".to_owned(), value(&c), "@AMD}".to_owned()].to_vec(),
        ["lock:a".to_owned(), value(&a), "@AMF}".to_owned()].to_vec(),
        ["lock:b".to_owned(), value(&b), "@AME}".to_owned()].to_vec(),
    ];
    assert_eq!(*seen.lock().unwrap(), [expected.concat()]);
}

#[tokio::test(start_paused = true)]
async fn once_a_slot_is_elsewhere_locks_are_left_alone_for_a_while() {
    let refusal = || Err(ServerError::new("ERR", "no keys"));
    for reply in [integers(&[-1, 7, 0, 2]), refusal()] {
        let is_refused = reply.is_err();
        let (pipeline, _seen) = of_a_cluster(reply).await;

        let outcomes = join_all(pipeline.acquired(&["a", "b"])).await;

        assert_eq!(*outcomes[0].as_ref().unwrap(), Outcome::Elsewhere);
        let other = outcomes[1].as_ref().unwrap();
        assert_eq!(*other == Outcome::Elsewhere, is_refused, "{other:?}");
        let alone = pipeline.alone();
        assert!(pipeline.join(Change::Acquire, &lease("c")).is_none());
        tokio::time::advance(SLOTS_MOVE_FOR).await;
        let joined = pipeline.join(Change::Acquire, &lease("c"));
        assert!(joined.is_some());
        drop(alone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_left_alone_is_not_tried_for_a_while() {
    let leaves_alone = |_exchange: &Exchange| integers(&[7, 2, 1]);
    let (pipeline, _fake) = connected(Layout::default(), leaves_alone).await;
    let _alone = pipeline.alone();

    let outcome = pipeline.change(Change::Acquire, &lease("a")).await.unwrap();

    assert_eq!(outcome, Outcome::LeftAlone);
    for change in [Change::Acquire, Change::Release] {
        assert!(pipeline.join(change, &lease("a")).is_none());
        assert!(pipeline.join(change, &lease("b")).is_some());
    }
    tokio::time::advance(CONTENDED_FOR).await;
    assert!(pipeline.join(Change::Acquire, &lease("a")).is_some());
}

#[tokio::test(start_paused = true)]
async fn no_more_locks_that_were_left_alone_are_known_than_may_be() {
    let mut state = State::default();
    let mut note = |prefix: &str| {
        for n in 0..2 * MAX_CONTENDED {
            state.note_contended(lease(&format!("{prefix}{n}")).key());
        }
        assert_eq!(state.contended.len(), MAX_CONTENDED);
        assert!(state.is_contended(lease(&format!("{prefix}0")).key()));
    };

    note("a");
    tokio::time::advance(CONTENDED_FOR).await;
    note("b");
}

#[tokio::test(start_paused = true)]
async fn a_senseless_reply_about_many_slots_is_no_outcome() {
    for reply in [&[][..], &[7, 8], &[7, 8, 0], &[7, 8, 0, 0, 0], &[7, -2, 0, 0], &[7, 8, 0, -1]] {
        let (pipeline, _seen) = of_a_cluster(integers(reply)).await;

        for outcome in join_all(pipeline.acquired(&["a", "b"])).await {
            assert_eq!(outcome.unwrap(), Outcome::Senseless, "{reply:?}");
        }
    }
}

#[test]
fn a_request_whose_outcome_was_told_is_not_sent_again() {
    let layout = Layout::default();
    let batch = Batch::of(1);
    let (lock, _is_full) = batch.join(Change::Acquire, &lease("a"), &layout);
    let taken = Taken::new(batch);
    let requests = taken.requests(&layout);

    taken.note(&requests, vec![Ok(Reply::Array(vec![Reply::Int(7), Reply::Int(2)]))]);
    assert_eq!(lock.now_or_never().unwrap().unwrap(), granted(7));

    assert!(taken.requests(&layout).is_empty());
    taken.finish();
}

#[tokio::test(start_paused = true)]
async fn locks_that_the_script_left_alone_are_told_so() {
    let left = [7, 2, 1, 3].map(Reply::Int).to_vec();
    let answer = move |_exchange: &Exchange| Ok(Reply::Array(left.clone()));
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let joined = [
        pipeline.joined(Change::Release, &lease("a")),
        pipeline.joined(Change::Release, &lease("b")),
        pipeline.joined(Change::Acquire, &lease("c")),
        pipeline.joined(Change::Acquire, &lease("d")),
    ];

    let outcomes = join_all(joined).await.into_iter().map(Result::unwrap);

    let alone = || Outcome::LeftAlone;
    assert!(outcomes.eq([alone(), Outcome::Released, alone(), granted(9)]));
}

#[tokio::test(start_paused = true)]
async fn a_refused_script_has_done_nothing() {
    let refuse = |_: &Exchange| Err(ServerError::new("OOM", "no memory"));
    let (pipeline, _fake) = connected(Layout::default(), refuse).await;

    for outcome in join_all(pipeline.acquired(&["a", "b"])).await {
        assert_eq!(outcome.unwrap(), Outcome::LeftAlone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_senseless_reply_is_no_outcome() {
    let array = |parts: &[i64]| Reply::Array(parts.iter().copied().map(Reply::Int).collect());
    for reply in [Reply::Nil, array(&[7]), array(&[7, 1, 0]), array(&[7, 1, 3])] {
        let answer = move |_: &Exchange| Ok(reply.clone());
        let (pipeline, _fake) = connected(Layout::default(), answer).await;

        for outcome in join_all(pipeline.acquired(&["a", "b"])).await {
            assert_eq!(outcome.unwrap(), Outcome::Senseless);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_script_is_sent_once_more_in_full() {
    let commands = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&commands);
    let answer = move |exchange: &Exchange| {
        seen.lock().unwrap().push(exchange.command.clone());
        match &*exchange.command {
            "EVAL" => does_all(exchange),
            _ => Err(ServerError::new("NOSCRIPT", "No matching script.")),
        }
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;

    let outcomes = join_all(pipeline.acquired(&["a", "b"])).await;

    assert!(outcomes.into_iter().map(Result::unwrap).eq([granted(7), granted(9)]));
    assert_eq!(*commands.lock().unwrap(), ["EVALSHA", "EVAL"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_learns_no_script_leaves_all_alone() {
    let unknown = |_: &Exchange| Err(ServerError::new("NOSCRIPT", "No matching script."));
    let (pipeline, _fake) = connected(Layout::default(), unknown).await;

    for outcome in join_all(pipeline.acquired(&["a", "b"])).await {
        assert_eq!(outcome.unwrap(), Outcome::LeftAlone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_is_told_to_all() {
    let (pipeline, fake) = connected(Layout::default(), does_all).await;
    let joined = pipeline.acquired(&["a", "b"]);
    fake.remove("h:1");

    for outcome in join_all(joined).await {
        let kind = outcome.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Indeterminate | ErrorKind::Unavailable), "{kind:?}");
    }
    pipeline.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn callers_that_are_polled_no_more_delay_no_other() {
    let (pipeline, _fake) = connected(Layout::default(), does_all).await;
    let stuck = pipeline.acquired(&["a", "b"]);

    let other = pipeline.joined(Change::Acquire, &lease("other")).await;

    assert_eq!(other.unwrap(), granted(11));
    assert!(join_all(stuck).await.into_iter().all(|outcome| outcome.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gave_up_is_not_sent() {
    let acquired = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&acquired);
    let answer = move |exchange: &Exchange| {
        seen.lock().unwrap().extend(exchange.acquired.clone());
        does_all(exchange)
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let mut joined = pipeline.acquired(&["a", "gone", "b"]);
    assert!((&mut joined[1]).now_or_never().is_none());

    drop(joined.remove(1));
    join_all(joined).await;

    assert_eq!(*acquired.lock().unwrap(), ["lock:a", "lock:b"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_meanwhile_is_not_sent_once_more() {
    let acquired = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&acquired);
    let answer = move |exchange: &Exchange| {
        seen.lock().unwrap().push(exchange.acquired.clone());
        Err(ServerError::new("NOSCRIPT", "No matching script."))
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let mut joined = pipeline.acquired(&["stays", "gone"]);
    for joined in &mut joined {
        assert!(joined.now_or_never().is_none());
    }
    tokio::time::sleep(SLOW / 2).await;

    drop(joined.remove(1));
    join_all(joined).await;

    assert_eq!(*acquired.lock().unwrap(), [vec!["lock:stays", "lock:gone"], vec!["lock:stays"]]);
}

#[tokio::test(start_paused = true)]
async fn one_caller_sends_at_a_time() {
    let fake = Fake::default();
    serve(&fake, does_all);
    let pipeline = pipeline(&fake, &Layout::default());
    pipeline.connection.connect().await.unwrap();
    let (sending, others_wait) = (Arc::downgrade(&pipeline), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&others_wait);
    fake.serve("h:1", move |words| {
        let pipeline = sending.upgrade().unwrap();
        seen.lock().unwrap().push(pipeline.order.try_lock().is_err());
        Some(match Exchange::read(words) {
            Some(exchange) => does_all(&exchange),
            None => Ok(Reply::Other),
        })
    });

    pipeline.run(&call("alone")).await.unwrap().unwrap();
    join_all(pipeline.acquired(&["together"])).await;

    assert_eq!(*others_wait.lock().unwrap(), [true; 3]);
}

#[test]
fn a_runtime_that_ends_tells_those_that_wait() {
    let fake = Fake::default();
    serve(&fake, does_all);
    fake.delay("h:1", SLOW);
    let pipeline = pipeline(&fake, &Layout::default());
    let ends = runtime();
    let (mut under_way, mut waits) = (Vec::new(), Vec::new());
    ends.block_on(async {
        pipeline.connection.connect().await.unwrap();
        for n in 0..LANES {
            under_way.push(sent(&pipeline, &fake, &format!("sent/{n}")).await);
        }
        waits.extend(pipeline.acquired(&["waits"]));
    });
    drop(ends);

    let other = runtime();
    let kinds = |joined| {
        let told = other.block_on(join_all::<Vec<Joined>>(joined));
        told.into_iter().map(|told| told.unwrap_err().kind()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(under_way), [ErrorKind::Indeterminate; LANES]);
    assert_eq!(kinds(waits), [ErrorKind::Unavailable]);
    assert!(pipeline.is_idle());
    other.block_on(async {
        let next = pipeline.acquired(&["next"]).remove(0);
        assert_eq!(next.await.unwrap(), granted(7));
    });
}

#[test]
fn a_runtime_that_ends_leaves_those_that_wait_to_another() {
    let fake = Fake::default();
    serve(&fake, does_all);
    fake.delay("h:1", SLOW);
    let pipeline = pipeline(&fake, &Layout::default());
    let (ends, other) = (runtime(), runtime());
    let mut under_way = Vec::new();
    ends.block_on(async {
        pipeline.connection.connect().await.unwrap();
        under_way.push(sent(&pipeline, &fake, "sent/0").await);
    });
    let mut waits = other.block_on(async {
        for n in 1..LANES {
            under_way.push(sent(&pipeline, &fake, &format!("sent/{n}")).await);
        }
        pipeline.acquired(&["waits"])
    });

    drop(ends);

    assert_eq!(other.block_on(waits.remove(0)).unwrap(), granted(7));
}

/// Stops the runtime of all lanes after it has sent this number of batches.
async fn stand_still(
    pipeline: &Arc<Pipeline<Fake>>,
    fake: &Fake,
    sent_before: usize,
) -> Vec<Joined> {
    pipeline.connection.connect().await.unwrap();
    let mut joined = Vec::new();
    for n in 0..sent_before {
        joined.push(sent(pipeline, fake, &format!("sent/{n}")).await);
    }
    for n in sent_before..LANES {
        joined.extend(pipeline.acquired(&[&format!("waits/{n}")]));
    }
    assert_eq!(pipeline.state().lanes, LANES);
    joined
}

#[test]
fn lanes_of_a_runtime_that_stands_still_are_replaced() {
    for sent_before in 0..=LANES {
        let fake = Fake::default();
        serve(&fake, does_all);
        fake.delay("h:1", SLOW);
        let pipeline = pipeline(&fake, &Layout::default());
        let [still, other] = [runtime(), runtime()];
        let of_still = still.block_on(stand_still(&pipeline, &fake, sent_before));

        let next = other.block_on(async {
            let next = pipeline.joined(Change::Acquire, &lease("next"));
            tokio::time::timeout(10 * pipeline.limit(), pipeline.outcome(next)).await
        });

        assert!(matches!(next, Ok(Ok(Outcome::Granted { .. }))), "{next:?}");
        // The lanes of the stopped runtime continue with their own batches and then end.
        let outcomes = still.block_on(join_all(of_still));
        assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()));
        other.block_on(pipeline.assert_idle());
    }
}

#[test]
fn a_caller_whose_request_a_runtime_took_that_stands_still_is_told() {
    let fake = Fake::default();
    serve(&fake, does_all);
    fake.delay("h:1", SLOW);
    let pipeline = pipeline(&fake, &Layout::default());
    let [still, other] = [runtime(), runtime()];
    let mut taken = still.block_on(stand_still(&pipeline, &fake, LANES));

    let told = other.block_on(async {
        let taken = pipeline.outcome(taken.remove(0));
        tokio::time::timeout(10 * pipeline.limit(), taken).await.expect("it is told")
    });

    assert_eq!(told.unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[test]
fn callers_that_give_up_early_have_lanes_replaced_as_well() {
    let fake = Fake::default();
    serve(&fake, does_all);
    fake.delay("h:1", SLOW);
    let pipeline = pipeline(&fake, &Layout::default());
    let [still, other] = [runtime(), runtime()];
    let _of_still = still.block_on(stand_still(&pipeline, &fake, 1));

    let is_granted = other.block_on(async {
        let mut is_granted = Vec::new();
        for _ in 0..5 {
            let next = pipeline.joined(Change::Acquire, &lease("next"));
            let limited = tokio::time::timeout(pipeline.limit() / 3, pipeline.outcome(next)).await;
            is_granted.push(limited.is_ok());
        }
        is_granted
    });

    assert_eq!(is_granted.last(), Some(&true), "{is_granted:?}");
}

#[tokio::test(start_paused = true)]
async fn lanes_that_go_on_are_waited_for_however_many_batches_come_before() {
    let (pipeline, fake) = connected(Layout::default(), does_all).await;
    fake.delay("h:1", pipeline.limit() / 4);
    let leases: Vec<Lease> = (0..20 * MAX_CALLERS).map(|n| lease(&format!("k{n}"))).collect();
    let joined: Vec<Joined> =
        leases.iter().map(|lease| pipeline.joined(Change::Acquire, lease)).collect();

    let outcomes = join_all(joined.into_iter().map(|joined| pipeline.outcome(joined))).await;

    assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(pipeline.state().turn, 0);
}
