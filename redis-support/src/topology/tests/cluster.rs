//! Tests for clusters, in which each server has a part of the keys.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use leasehold_core::backend::KeyPage;
use leasehold_core::batch::BatchLimits;

use super::*;
use crate::driver::Push;
use crate::listing;
use crate::slot;
use crate::topology::cluster::MAX_REDIRECTIONS;
use crate::topology::failover::BELIEVED_FOR;

/// A cluster of three servers. Each server has every third slot, until a test changes the owner of
/// the key's slot.
struct Cluster {
    store: Store,
    reported: Arc<Mutex<Reported>>,
}

/// The state of the cluster that its servers report.
#[derive(Clone, Copy)]
struct Reported {
    owner: u16,
    epoch: u64,
}

const PORTS: [u16; 3] = [1, 2, 3];

impl Cluster {
    fn new() -> Self {
        Self::with(&PORTS)
    }

    /// Returns three servers. `named` are the servers in the client's configuration.
    fn with(named: &[u16]) -> Self {
        let seeds = named.iter().copied().map(Fake::address).collect();
        let store = Store::new(Endpoints::Cluster { seeds });
        let reported = Arc::new(Mutex::new(Reported { owner: 1, epoch: 1 }));
        let cluster = Self { store, reported };
        PORTS.into_iter().for_each(|port| cluster.serve(port, |_| done()));
        cluster
    }

    fn serve(
        &self,
        port: u16,
        to_scripts: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static,
    ) {
        let reported = Arc::clone(&self.reported);
        let of_others = move |words: &[String]| {
            let reported = *reported.lock().unwrap();
            reported.answer(port, words)
        };
        self.store.serve(port, of_others, to_scripts);
    }

    /// Cuts off a server, so that its replies no longer change.
    fn cut_off(&self, port: u16) {
        let reported = *self.reported.lock().unwrap();
        self.store.serve(port, move |words| reported.answer(port, words), |_| done());
    }

    /// Moves the key's slot to the server `owner`, and informs all servers.
    fn give_to(&self, owner: u16) {
        let mut reported = self.reported.lock().unwrap();
        *reported = Reported { owner, epoch: reported.epoch + 1 };
    }

    async fn call(&self) -> Result<i64, ErrorKind> {
        outcome(self.store.servers.call(&call()).await)
    }

    async fn page(&self, after: Option<&str>) -> Result<KeyPage, ErrorKind> {
        let primaries = self.store.servers.primaries().await.unwrap();
        let page = listing::page(&primaries, &Layout::default(), "", after).await;
        page.map_err(|error| error.kind())
    }
}

fn key_slot() -> i64 {
    i64::from(slot::of(call().keys().next().unwrap().as_bytes()))
}

impl Reported {
    fn answer(self, by: u16, words: &[String]) -> Option<Received> {
        Some(Ok(match (&*words[0], &*words[1]) {
            ("SCAN", _) => Reply::Array(vec![bytes(0), Reply::Array(Vec::new())]),
            (_, "NODES") => self.nodes(by),
            _ => self.slots(),
        }))
    }

    /// Returns the owners of slots. `owner` has the key's slot, the second server has the slots
    /// before it, and the third server has the slots after it. The fourth server is a replica.
    fn slots(self) -> Reply {
        let server = |port: u16| {
            Reply::Array(vec![bytes("h"), Reply::Int(i64::from(port)), bytes(format!("id-{port}"))])
        };
        let range = |first: i64, last: i64, port: u16| {
            Reply::Array(vec![Reply::Int(first), Reply::Int(last), server(port), server(4)])
        };
        let slot = key_slot();
        let own = range(slot, slot, self.owner);
        Reply::Array(vec![range(slot + 1, 16_383, 3), own, range(0, slot - 1, 2)])
    }

    fn nodes(self, by: u16) -> Reply {
        let line = |port: u16| {
            let flags = if port == by { "myself,master" } else { "master" };
            let epoch = if port == self.owner { 10 + self.epoch } else { u64::from(port) };
            format!("id-{port} h:{port}@{port} {flags} - 0 0 {epoch} connected\n")
        };
        bytes([1, 2, 3, 4].map(line).concat())
    }
}

#[tokio::test(start_paused = true)]
async fn asks_for_the_keys_owner_once() {
    let cluster = Cluster::new();

    for _ in 0..3 {
        assert_eq!(cluster.call().await, Ok(1));
    }
    assert_eq!(cluster.store.called(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn follows_where_it_is_sent_and_stays_there() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    cluster.give_to(2);
    let moved = format!("{} h:2", key_slot());
    cluster.serve(1, move |_| refused("MOVED", moved.clone()));

    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.store.called(), [1, 1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn asks_where_a_key_is_moving_to_and_goes_on_asking_where_it_was() {
    let cluster = Cluster::new();
    let ask = format!("{} h:3", key_slot());
    cluster.serve(1, move |_| refused("ASK", ask.clone()));

    for _ in 0..2 {
        assert_eq!(cluster.call().await, Ok(1));
    }
    // The server receives a query for the map, a query for a confirmation, and the call.
    assert_eq!(cluster.store.called(), [1, 3, 3, 1, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn brings_the_source_of_a_script_to_where_its_key_is_moving() {
    let cluster = Cluster::new();
    let ask = format!("{} h:3", key_slot());
    cluster.serve(1, move |_| refused("ASK", ask.clone()));
    cluster.serve(3, learns());

    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.store.commands()[1..], ["ASKING", "EVALSHA", "ASKING", "EVAL"]);
}

#[tokio::test(start_paused = true)]
async fn half_moved_keys_are_unavailable() {
    let cluster = Cluster::new();
    cluster.serve(1, |_| refused("TRYAGAIN", "Multiple keys request during rehashing of slot"));

    assert_eq!(cluster.call().await, Err(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn of_half_moved_keys_only_those_are_asked_for_that_must_be_there() {
    let cluster = Cluster::new();
    let ask = format!("{} h:3", key_slot());
    // The number of keys comes after the script.
    cluster.serve(1, move |words| match words[2].as_str() {
        "1" => refused("ASK", ask.clone()),
        _ => refused("TRYAGAIN", "Multiple keys request during rehashing of slot"),
    });
    cluster.serve(3, |words| match words {
        [asking] if asking == "ASKING" => done(),
        [_, _, count, ..] if count == "1" => done(),
        _ => refused("TRYAGAIN", "Multiple keys request during rehashing of slot"),
    });

    assert_eq!(cluster.call().await, Ok(1));
    let results = cluster.store.servers.run_all(&[call()]).await;
    assert_eq!(results.into_iter().map(outcome).collect::<Vec<_>>(), [Ok(1)]);
}

#[tokio::test(start_paused = true)]
async fn servers_that_send_in_circles_are_left() {
    let cluster = Cluster::new();
    for (port, other) in [(1, 2), (2, 1)] {
        let moved = format!("{} h:{other}", key_slot());
        cluster.serve(port, move |_| refused("MOVED", moved.clone()));
    }

    assert_eq!(cluster.call().await, Err(ErrorKind::Unavailable));
    assert_eq!(cluster.store.called().len(), MAX_REDIRECTIONS);
}

#[tokio::test(start_paused = true)]
async fn a_hung_server_is_left_as_soon_as_others_know_better() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    let mut watch = cluster.store.watch();
    cluster.store.serve(1, |_| None, |_| None);

    assert_eq!(cluster.call().await, Err(ErrorKind::Indeterminate));
    cluster.give_to(3);
    let asked_at = Instant::now();
    assert_eq!(cluster.call().await, Ok(1));

    assert_eq!(asked_at.elapsed(), Duration::ZERO);
    assert_eq!(cluster.store.called(), [1, 1, 3]);
    assert!(is_told(&mut watch).await);
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_is_unavailable_until_another_takes_over() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    cluster.store.fake.remove("h:1");

    assert_eq!(cluster.call().await, Err(ErrorKind::Indeterminate), "it may have been sent");
    assert_eq!(cluster.call().await, Err(ErrorKind::Unavailable));
    cluster.give_to(2);
    assert_eq!(cluster.call().await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_all_gone_are_unavailable() {
    let cluster = Cluster::new();
    PORTS.into_iter().for_each(|port| cluster.store.fake.remove(&format!("h:{port}")));

    assert_eq!(cluster.call().await, Err(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_no_reason_to_doubt_the_servers() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    cluster.store.fake.delay("h:1", SLOW / 2);
    let (call, before) = (call(), cluster.store.context.failure_reports());

    let (refused, calls) = fill_queue(&cluster.store, &call);

    assert_eq!(refused, ErrorKind::Unavailable);
    assert!(calls.len() > BatchLimits::DEFAULT_QUEUED);
    assert_eq!(cluster.store.context.failure_reports(), before);
}

/// Returns a number of keys of the server with this port.
fn keys_of(port: u16, count: usize) -> Vec<LockKey> {
    let keys = (0..).map(|n| LockKey::new(format!("job/{n}")).unwrap());
    let slot = |key: &LockKey| i64::from(Layout::default().slot(key));
    let owner = |key: &LockKey| if slot(key) < key_slot() { 2 } else { 3 };
    keys.filter(|key| slot(key) != key_slot() && owner(key) == port).take(count).collect()
}

/// Returns the longest time of a request to the third server, while other tasks send requests to
/// the second server, which replies after `delay`.
async fn longest_beside_a_slow_server(delay: Duration) -> Duration {
    const TASKS: usize = 64;
    let cluster = Cluster::new();
    cluster.store.servers.connect().await.unwrap();
    cluster.store.fake.delay("h:2", delay);
    let begun_at = Instant::now();
    let requests = |key: LockKey| {
        let servers = &cluster.store.servers;
        async move {
            let (call, mut longest) = (call_of(&key), Duration::ZERO);
            while begun_at.elapsed() < 5 * delay {
                let asked_at = Instant::now();
                assert_eq!(outcome(servers.call(&call).await), Ok(1));
                longest = longest.max(asked_at.elapsed());
                tokio::time::sleep(delay / 20).await;
            }
            longest
        }
    };

    let slow = join_all(keys_of(2, 4 * TASKS).into_iter().map(requests));
    let fast = join_all(keys_of(3, TASKS).into_iter().map(requests));
    let (slow, fast) = tokio::join!(slow, fast);

    assert!(slow.iter().all(|longest| *longest >= delay), "{slow:?}");
    fast.into_iter().max().expect("there are tasks")
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_does_not_delay_requests_to_others() {
    assert_eq!(longest_beside_a_slow_server(SLOW / 4).await, Duration::ZERO);
    assert_eq!(longest_beside_a_slow_server(SLOW).await, Duration::ZERO);
}

/// Waits for a slow reply. In the meantime, the key's slot moves to `owner`.
async fn slow_reply(owner: u16) -> Result<i64, ErrorKind> {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    let reported = Arc::clone(&cluster.reported);
    cluster.serve(1, move |_| {
        reported.lock().unwrap().owner = owner;
        done()
    });
    cluster.store.fake.delay("h:1", SLOW);
    cluster.call().await
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_of_a_replaced_server_is_not_believed() {
    assert_eq!(slow_reply(2).await, Err(ErrorKind::Indeterminate));
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_of_the_owner_is_believed() {
    assert_eq!(slow_reply(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_hung_server_fails_its_part_of_a_batch_and_no_other() {
    let cluster = Cluster::new();
    let keys = (0..16).map(|n| LockKey::new(format!("k{n}")).unwrap());
    let calls: Vec<Call> = keys.chain([key()]).map(|key| call_of(&key)).collect();
    cluster.store.serve(2, |_| None, |_| None);

    let results = cluster.store.servers.run_all(&calls).await;

    let mut by_owner = BTreeMap::<bool, Vec<_>>::new();
    for (call, result) in calls.iter().zip(results) {
        let is_hung = i64::from(slot::of(call.keys().next().unwrap().as_bytes())) < key_slot();
        by_owner.entry(is_hung).or_default().push(outcome(result));
    }
    assert!(by_owner[&true].iter().all(|result| *result == Err(ErrorKind::Indeterminate)));
    assert!(by_owner[&false].iter().all(|result| *result == Ok(1)));
}

#[tokio::test(start_paused = true)]
async fn a_batch_fails_at_once_where_all_servers_hang() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    PORTS.into_iter().for_each(|port| cluster.store.serve(port, |_| None, |_| None));
    let calls: Vec<Call> = (0..100).map(|_| call()).collect();

    for tries in 1..=2 {
        let asked_at = Instant::now();
        let results = cluster.store.servers.run_all(&calls).await;
        assert!(results.into_iter().all(|result| outcome(result).is_err()));
        assert_eq!(asked_at.elapsed(), TIMEOUT, "{tries}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_done_part_of_a_batch_counts_if_the_rest_fails() {
    let cluster = Cluster::new();
    let calls = [call(), Call::inspect(&Layout::default(), &key())];
    // The server knows one of the two scripts.
    cluster.serve(1, |words| match words[1].as_str() {
        hash if hash == Script::Release.hash() => done(),
        hash if hash == Script::Inspect.hash() => refused("NOSCRIPT", "No matching script."),
        _source => None,
    });

    let results = cluster.store.servers.run_all(&calls).await;

    let outcomes: Vec<_> = results.into_iter().map(outcome).collect();
    assert_eq!(outcomes, [Ok(1), Err(ErrorKind::Indeterminate)]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_batch_are_sent_on_one_by_one() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    let moved = format!("{} h:2", key_slot());
    cluster.serve(1, move |_| refused("MOVED", moved.clone()));
    cluster.give_to(2);

    let results = cluster.store.servers.run_all(&[call(), call()]).await;

    for result in results {
        assert_eq!(outcome(result), Ok(1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_replaced_unawares_is_disbelieved_in_time() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    cluster.cut_off(1);
    cluster.give_to(2);

    tokio::time::sleep(BELIEVED_FOR).await;

    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.store.called(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_replaced_unawares_convinces_no_new_client() {
    for _ in 0..20 {
        let cluster = Cluster::new();
        cluster.cut_off(1);
        cluster.give_to(2);

        assert_eq!(cluster.call().await, Ok(1));
        assert_eq!(cluster.store.called(), [2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_minority_of_the_owners_is_not_believed() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    for port in [2, 3] {
        cluster.store.serve(port, |_| None, |_| None);
    }

    tokio::time::sleep(BELIEVED_FOR).await;

    assert_eq!(cluster.call().await, Err(ErrorKind::Unavailable));
}

#[tokio::test(start_paused = true)]
async fn one_named_server_names_the_others() {
    let cluster = Cluster::with(&[2]);

    assert_eq!(cluster.call().await, Ok(1));
    cluster.store.fake.remove("h:2");
    tokio::time::sleep(BELIEVED_FOR).await;
    assert_eq!(cluster.call().await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_replica_knows_the_successors_of_former_owners() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    // The replica, which is the only known server that still exists, gets the key.
    cluster.give_to(4);
    cluster.serve(4, |_| done());
    let reported = Arc::clone(&cluster.reported);
    let moved = move |words: &[String]| {
        let Reply::Array(mut slots) = reported.lock().unwrap().slots() else { unreachable!() };
        slots.retain(
            |range| matches!(range, Reply::Array(parts) if parts[0] == Reply::Int(key_slot())),
        );
        match words[1].as_str() {
            "NODES" => Some(Ok(reported.lock().unwrap().nodes(4))),
            _ => Some(Ok(Reply::Array(slots))),
        }
    };
    cluster.store.serve(4, moved, |_| done());
    for port in PORTS {
        cluster.store.fake.remove(&format!("h:{port}"));
    }
    let closed = cluster.store.fake.listeners("h:1");
    closed.iter().for_each(|listener| listener(Push::Closed));

    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.store.called(), [1, 4]);
}

#[tokio::test(start_paused = true)]
async fn frozen_servers_delay_the_first_call_a_little() {
    let cluster = Cluster::with(&[11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 1]);
    for port in 11..23 {
        cluster.store.serve(port, |_| None, |_| None);
    }
    let asked_at = Instant::now();

    assert_eq!(cluster.call().await, Ok(1));
    assert!(asked_at.elapsed() < TIMEOUT, "{:?}", asked_at.elapsed());
}

/// Returns the replies of a server that has all slots of a different cluster.
fn stranger(words: &[String]) -> Option<Received> {
    let server = Reply::Array(vec![bytes("h"), Reply::Int(2), bytes("stranger")]);
    let range = Reply::Array(vec![Reply::Int(0), Reply::Int(16_383), server]);
    let nodes = bytes("stranger h:2@2 myself,master - 0 0 99 connected\n");
    Some(Ok(if words[1] == "NODES" { nodes } else { Reply::Array(vec![range]) }))
}

#[tokio::test(start_paused = true)]
async fn is_listed_server_by_server_while_no_slot_changes_its_owner() {
    let cluster = Cluster::new();

    let mut next = cluster.page(None).await.unwrap().next().map(str::to_owned);
    for _ in 0..2 {
        tokio::time::sleep(BELIEVED_FOR).await;
        next = cluster.page(next.as_deref()).await.unwrap().next().map(str::to_owned);
    }
    assert_eq!(next, None);

    let after = cluster.page(None).await.unwrap().next().unwrap().to_owned();
    // The key moves to a server that is already one of the candidates.
    cluster.give_to(2);
    tokio::time::sleep(BELIEVED_FOR).await;
    assert_eq!(cluster.page(Some(&after)).await.unwrap_err(), ErrorKind::Unavailable);
}

/// Returns the replies of a server that has lost its configuration, so that it knows only itself
/// and no owners.
fn reset(words: &[String]) -> Option<Received> {
    let nodes = bytes("reset h:3@3 myself,master - 0 0 0 connected\n");
    Some(Ok(if words[1] == "NODES" { nodes } else { Reply::Array(Vec::new()) }))
}

#[tokio::test(start_paused = true)]
async fn a_new_client_does_not_take_the_cluster_for_strangers_to_a_server_that_was_reset() {
    let cluster = Cluster::new();
    cluster.store.serve(3, reset, |_| done());
    for port in [1, 2] {
        cluster.store.fake.delay(&format!("h:{port}"), TIMEOUT / 20);
    }

    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.store.called(), [1]);
}

#[tokio::test(start_paused = true)]
async fn servers_that_were_all_reset_are_no_cluster() {
    let cluster = Cluster::new();
    PORTS.into_iter().for_each(|port| cluster.store.serve(port, reset, |_| done()));

    let error = cluster.store.servers.connect().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("not belong to a cluster yet"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_cluster_at_an_old_address_is_not_heard() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    cluster.store.serve(2, stranger, |_| done());

    tokio::time::sleep(BELIEVED_FOR).await;

    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.store.called(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn another_cluster_is_used_once_no_server_of_the_old_one_answers() {
    let cluster = Cluster::new();
    cluster.call().await.unwrap();
    cluster.store.serve(2, stranger, |_| done());
    for port in [1, 3] {
        cluster.store.fake.remove(&format!("h:{port}"));
    }

    tokio::time::sleep(BELIEVED_FOR).await;

    assert_eq!(cluster.call().await, Ok(1));
    assert_eq!(cluster.store.called(), [1, 2]);
}
