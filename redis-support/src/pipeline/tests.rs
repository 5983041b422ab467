use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use leasehold_core::{ErrorKind, LockKey};
use tokio::time::timeout;

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
    pipeline.connection().connect().await.unwrap();
    pipeline
}

fn pipeline(fake: &Fake, layout: &Layout) -> Arc<Pipeline<Fake>> {
    Arc::new(Pipeline::new(&fake.connection(layout), layout))
}

fn lease(name: &str) -> Lease {
    Lease::new(&LockKey::new(name).unwrap(), TTL)
}

fn call(name: &str) -> Call {
    Call::inspect(&Layout::default(), &LockKey::new(name).unwrap())
}

/// The outcome of a request that has joined a batch.
type Joined<'a> = BoxFuture<'a, Result<Outcome, Error>>;

impl Pipeline<Fake> {
    fn connection(&self) -> &Arc<ConnectionManager<Fake>> {
        &self.0.sender().connection
    }

    async fn run(&self, call: &Call) -> Result<Received, Error> {
        let _alone = self.alone().expect("few requests are in progress");
        let requests = [Request::ByHash(call.run())];
        let [received] = exactly(self.connection().run(&requests, Duration::ZERO).await?)?;
        Ok(received)
    }

    /// Allows lanes that have answered all callers to end. A lane may still be checking the
    /// connection.
    async fn assert_idle(&self) {
        let is_idle = async {
            while !self.0.is_idle() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(2 * self.connection().timeout(), is_idle).await.expect("all lanes end");
    }

    /// Joins a batch as if a different request were in progress.
    fn joined(&self, change: Change, lease: &Lease) -> Joined<'_> {
        let submitted = self.0.submit(Work::Change(change, lease.clone())).unwrap();
        async { submitted.reply().await? }.boxed()
    }

    fn acquired(&self, names: &[&str]) -> Vec<Joined<'_>> {
        names.iter().map(|name| self.joined(Change::Acquire, &lease(name))).collect()
    }

    /// Acquires a mutex in a batch, as [`joined`](Self::joined) does. The future keeps the pipeline.
    fn joins(self: &Arc<Self>, name: &str) -> Joined<'static> {
        let (pipeline, lease) = (Arc::clone(self), lease(name));
        let mut joined = async move { pipeline.joined(Change::Acquire, &lease).await }.boxed();
        assert!((&mut joined).now_or_never().is_none());
        joined
    }

    /// Returns whether a change of the mutex would join a batch.
    fn would_join(&self, change: Change, name: &str) -> bool {
        match self.change(change, &lease(name)).now_or_never() {
            Some(outcome) => {
                assert_eq!(outcome.unwrap(), Outcome::LeftAlone);
                false
            }
            None => true,
        }
    }
}

fn granted(token: i64) -> Outcome {
    Outcome::Granted { token, spare: 1 }
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_company_is_faster_alone() {
    let (pipeline, fake) = connected(Layout::default(), does_all).await;
    assert!(!pipeline.would_join(Change::Acquire, "a"));

    let call = call("a");
    let mut alone = Box::pin(pipeline.run(&call));
    assert!((&mut alone).now_or_never().is_none());

    let outcome = pipeline.change(Change::Acquire, &lease("b")).await;
    assert_eq!(outcome.unwrap(), granted(7));
    alone.await.unwrap().unwrap();
    pipeline.assert_idle().await;
    assert!(!pipeline.would_join(Change::Acquire, "a"));
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
        pipeline.assert_idle().await;
        let _alone = pipeline.alone().unwrap();
        assert!(!pipeline.would_join(Change::Acquire, "c"));
        tokio::time::advance(SLOTS_MOVE_FOR).await;
        assert!(pipeline.would_join(Change::Acquire, "c"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_left_alone_is_not_tried_for_a_while() {
    let leaves_alone = |_exchange: &Exchange| integers(&[7, 2, 1]);
    let (pipeline, _fake) = connected(Layout::default(), leaves_alone).await;
    let _alone = pipeline.alone().unwrap();

    let outcome = pipeline.change(Change::Acquire, &lease("a")).await.unwrap();

    assert_eq!(outcome, Outcome::LeftAlone);
    for change in [Change::Acquire, Change::Release] {
        assert!(!pipeline.would_join(change, "a"));
        assert!(pipeline.would_join(change, "b"));
    }
    tokio::time::advance(CONTENDED_FOR).await;
    assert!(pipeline.would_join(Change::Acquire, "a"));
}

#[tokio::test(start_paused = true)]
async fn no_more_locks_that_were_left_alone_are_known_than_may_be() {
    let mut skipped = Skipped::default();
    let mut note = |prefix: &str| {
        for n in 0..2 * MAX_CONTENDED {
            skipped.note_contended(lease(&format!("{prefix}{n}")).key());
        }
        assert_eq!(skipped.contended.len(), MAX_CONTENDED);
        assert!(skipped.is_contended(lease(&format!("{prefix}0")).key()));
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
async fn a_server_that_answers_no_batch_is_connected_to_again() {
    let (pipeline, fake) = connected(Layout::default(), does_all).await;
    fake.serve("h:1", |_words| None);

    for _ in 0..3 {
        for outcome in join_all(pipeline.acquired(&["a"])).await {
            outcome.unwrap_err();
        }
        // In the meantime, the lane finds the queue empty. This must not count as a reply.
        tokio::time::sleep(SLOW).await;
    }

    assert!(fake.listeners("h:1").len() > 1, "the connection is still used");
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
    pipeline.connection().connect().await.unwrap();
    let (sending, others_wait) = (Arc::downgrade(&pipeline), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&others_wait);
    fake.serve("h:1", move |words| {
        let pipeline = sending.upgrade().unwrap();
        seen.lock().unwrap().push(pipeline.connection().is_sending());
        Some(match Exchange::read(words) {
            Some(exchange) => does_all(&exchange),
            None => Ok(Reply::Other),
        })
    });

    pipeline.run(&call("alone")).await.unwrap().unwrap();
    join_all(pipeline.acquired(&["together"])).await;

    assert_eq!(*others_wait.lock().unwrap(), [true; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_immediately_before_each_attempt_is_excluded_from_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    let answer = move |exchange: &Exchange| {
        all.lock().unwrap().push(exchange.acquired.clone());
        match exchange.command.as_str() {
            "EVAL" => does_all(exchange),
            _ => Err(ServerError::new("NOSCRIPT", "No matching script.")),
        }
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let [stays, first, second] = ["stays", "first", "second"].map(|name| pipeline.joins(name));
    let (mut leave, attempts) = ([Some(first), Some(second)], Arc::clone(&seen));
    pipeline.connection().before_sending(move || {
        let attempt = attempts.lock().unwrap().len();
        drop(leave.get_mut(attempt).and_then(Option::take));
    });

    stays.await.unwrap();

    assert_eq!(*seen.lock().unwrap(), [["lock:stays", "lock:second"].as_slice(), &["lock:stays"]]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_the_queue_only_when_nothing_can_be_sent_before_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    let answer = move |exchange: &Exchange| {
        all.lock().unwrap().push(exchange.acquired.clone());
        does_all(exchange)
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let (joins, mut joined) = (Arc::downgrade(&pipeline), None);
    let early = pipeline.joins("early");
    pipeline.connection().before_sending(move || {
        joined.get_or_insert_with(|| joins.upgrade().unwrap().joins("late"));
    });

    early.await.unwrap();

    assert_eq!(*seen.lock().unwrap(), [["lock:early", "lock:late"]]);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_not_moved_to_an_earlier_batch() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&seen);
    let answer = move |exchange: &Exchange| {
        all.lock().unwrap().push((exchange.released.len(), exchange.acquired.len()));
        does_all(exchange)
    };
    let (pipeline, _fake) = connected(Layout::default(), answer).await;
    let leases: Vec<Lease> = (0..=MAX_REQUESTS).map(|n| lease(&format!("k{n}"))).collect();
    let mut joined: Vec<Joined<'_>> =
        leases.iter().map(|lease| pipeline.joined(Change::Acquire, lease)).collect();
    joined.push(pipeline.joined(Change::Release, &lease("held")));

    join_all(joined).await;

    assert_eq!(*seen.lock().unwrap(), [(0, MAX_REQUESTS), (1, 1)]);
}

#[test]
fn only_renewals_are_urgent() {
    let renewal = Work::Call(Call::renew(&Layout::default(), &lease("held")));

    assert!(renewal.is_urgent());
    assert!(!Work::Call(call("held")).is_urgent());
    assert!(!Work::Change(Change::Release, lease("held")).is_urgent());
}
