use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use leasehold_core::{KeyWatch, Lease, LockKey};
use tokio::time::{Instant, timeout};

use super::cluster::MAX_REDIRECTIONS;
use super::*;
use crate::client::{Protocol, Said, Tls};
use crate::error::ServerError;
use crate::fake::Fake;
use crate::layout::Layout;
use crate::slot;
use crate::watch::News;

const TIMEOUT: Duration = Duration::from_millis(500);

/// The servers of a topology, and what they were sent: script calls by port, oldest first.
struct Store {
    fake: Fake,
    news: Arc<News>,
    shared: Arc<Shared<Fake>>,
    servers: Servers<Fake>,
    calls: Arc<Mutex<Vec<(u16, String)>>>,
}

impl Store {
    fn new(topology: Topology) -> Self {
        Self::with(topology, &Access::default(), Fake::default())
    }

    fn with(topology: Topology, access: &Access, fake: Fake) -> Self {
        let news = Arc::new(News::new(Layout::default()));
        let shared = Shared::new(fake.clone(), TIMEOUT, Arc::clone(&news), true, Protocol::Resp3);
        let servers = Servers::new(topology, access.clone(), access, &shared);
        Self { fake, news, shared, servers, calls: Arc::default() }
    }

    /// Puts a server there that says so of the others, and replies so to scripts.
    fn serve(
        &self,
        port: u16,
        of_others: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static,
        to_scripts: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static,
    ) {
        let calls = Arc::clone(&self.calls);
        self.fake.serve(&format!("h:{port}"), move |words| match words[0].as_str() {
            "CLIENT" => Some(Ok(Reply::Other)),
            "EVALSHA" | "EVAL" | "ASKING" | "WAIT" => {
                calls.lock().unwrap().push((port, words[0].clone()));
                to_scripts(words)
            }
            _ => of_others(words),
        });
    }

    /// As the backend does it.
    fn close(&self) {
        self.shared.close();
        self.servers.disconnect();
    }

    /// The ports of those who were sent scripts.
    fn called(&self) -> Vec<u16> {
        self.calls.lock().unwrap().drain(..).map(|(port, _)| port).collect()
    }

    /// What they were sent of and for scripts.
    fn commands(&self) -> Vec<String> {
        self.calls.lock().unwrap().drain(..).map(|(_, command)| command).collect()
    }

    fn watch(&self) -> KeyWatch {
        self.news.watch(&key())
    }
}

fn key() -> LockKey {
    LockKey::new("job").unwrap()
}

fn call() -> Call {
    call_of(&key())
}

fn call_of(key: &LockKey) -> Call {
    Call::release(&Layout::default(), &Lease::new(key, Duration::from_secs(1)))
}

fn done() -> Option<Received> {
    Some(Ok(Reply::Int(1)))
}

fn refused(code: &str, detail: impl Into<String>) -> Option<Received> {
    Some(Err(ServerError::new(code, detail)))
}

fn bytes(text: impl ToString) -> Reply {
    Reply::Bytes(text.to_string().into_bytes())
}

/// Knows a script once it has seen its source.
fn learns() -> impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static {
    let knows = AtomicBool::new(false);
    move |words| match words[0].as_str() {
        "ASKING" | "WAIT" => done(),
        "EVALSHA" if !knows.load(Ordering::Relaxed) => refused("NOSCRIPT", "No matching script."),
        _ => {
            knows.store(true, Ordering::Relaxed);
            done()
        }
    }
}

/// The kind of error, if it is one; or the number that was replied.
fn outcome(result: Result<Received, Error>) -> Result<i64, ErrorKind> {
    match result.map_err(|error| error.kind())?.map_err(|refusal| refusal.into_error().kind())? {
        Reply::Int(number) => Ok(number),
        other => panic!("{other:?}"),
    }
}

async fn is_told(watch: &mut KeyWatch) -> bool {
    timeout(Duration::from_millis(1), watch.changed()).await.is_ok()
}

mod a_cluster {
    use super::*;

    /// Three servers of which each has every third of the slots, until it is said otherwise of the key's.
    struct Cluster {
        store: Store,
        owner: Arc<AtomicU16>,
    }

    const PORTS: [u16; 3] = [1, 2, 3];

    impl Cluster {
        fn new() -> Self {
            let seeds = PORTS.map(Fake::address).to_vec();
            let store = Store::new(Topology::Cluster { seeds });
            let cluster = Self { store, owner: Arc::new(AtomicU16::new(1)) };
            PORTS.into_iter().for_each(|port| cluster.serve(port, |_| done()));
            cluster
        }

        fn serve(
            &self,
            port: u16,
            to_scripts: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static,
        ) {
            let owner = Arc::clone(&self.owner);
            self.store.serve(
                port,
                move |_| Some(Ok(map(owner.load(Ordering::Relaxed)))),
                to_scripts,
            );
        }

        /// Another server has the key's slot, and the servers know it.
        fn give_to(&self, owner: u16) {
            self.owner.store(owner, Ordering::Relaxed);
        }

        async fn call(&self) -> Result<i64, ErrorKind> {
            outcome(self.store.servers.call(&call()).await)
        }
    }

    fn key_slot() -> i64 {
        i64::from(slot::of(call().keys()[0].as_bytes()))
    }

    /// The reply to `CLUSTER SLOTS`: the key's slot is with `owner`, those before with the second, those after with the third.
    fn map(owner: u16) -> Reply {
        let range = |first: i64, last: i64, port: u16| {
            let server = Reply::Array(vec![bytes("h"), Reply::Int(i64::from(port)), bytes("id")]);
            Reply::Array(vec![Reply::Int(first), Reply::Int(last), server])
        };
        let slot = key_slot();
        Reply::Array(vec![
            range(slot + 1, 16_383, 3),
            range(slot, slot, owner),
            range(0, slot - 1, 2),
        ])
    }

    #[tokio::test(start_paused = true)]
    async fn asks_who_has_the_key_once() {
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
        // Once to be told, once to say that we were told, once to call.
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
        let results = cluster.store.servers.call_all(&[call()]).await;
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
    async fn nobody_is_there() {
        let cluster = Cluster::new();
        PORTS.into_iter().for_each(|port| cluster.store.fake.remove(&format!("h:{port}")));

        assert_eq!(cluster.call().await, Err(ErrorKind::Unavailable));
    }

    /// A reply that takes long, and meanwhile the key's slot goes to `owner`.
    async fn slow_reply(owner: u16) -> Result<i64, ErrorKind> {
        let cluster = Cluster::new();
        cluster.call().await.unwrap();
        let slow = Arc::clone(&cluster.owner);
        cluster.serve(1, move |_| {
            slow.store(owner, Ordering::Relaxed);
            done()
        });
        cluster.store.fake.delay("h:1", SLOW);
        cluster.call().await
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_replaced_server_says_late_is_not_believed() {
        assert_eq!(slow_reply(2).await, Err(ErrorKind::Indeterminate));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_owner_says_late_is_believed() {
        assert_eq!(slow_reply(1).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hung_server_fails_its_part_of_a_batch_and_no_other() {
        let cluster = Cluster::new();
        let keys = (0..16).map(|n| LockKey::new(format!("k{n}")).unwrap());
        let calls: Vec<Call> = keys.chain([key()]).map(|key| call_of(&key)).collect();
        cluster.store.serve(2, |_| None, |_| None);

        let results = cluster.store.servers.call_all(&calls).await;

        let mut by_owner = BTreeMap::<bool, Vec<_>>::new();
        for (call, result) in calls.iter().zip(results) {
            let is_hung = i64::from(slot::of(call.keys()[0].as_bytes())) < key_slot();
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
            let results = cluster.store.servers.call_all(&calls).await;
            assert!(results.into_iter().all(|result| outcome(result).is_err()));
            assert_eq!(asked_at.elapsed(), TIMEOUT, "{tries}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_batch_are_sent_on_one_by_one() {
        let cluster = Cluster::new();
        cluster.call().await.unwrap();
        let moved = format!("{} h:2", key_slot());
        cluster.serve(1, move |_| refused("MOVED", moved.clone()));
        cluster.give_to(2);

        let results = cluster.store.servers.call_all(&[call(), call()]).await;

        for result in results {
            assert_eq!(outcome(result), Ok(1));
        }
    }
}

mod sentinels {
    use super::*;

    const SENTINELS: [u16; 3] = [11, 12, 13];

    fn store() -> Store {
        let sentinels = SENTINELS.map(Fake::address).to_vec();
        let store = Store::new(Topology::Sentinel { sentinels, master: "m".to_owned() });
        for port in [1, 2] {
            store.serve(port, |_| None, |_| done());
        }
        SENTINELS.into_iter().for_each(|sentinel| say(&store, sentinel, 1, 1));
        store
    }

    /// A sentinel says that this is the master since that many failovers.
    fn say(store: &Store, sentinel: u16, master: u16, epoch: u64) {
        let reply = of_master("h", master, epoch);
        store.serve(sentinel, move |_| Some(Ok(reply.clone())), |_| None);
    }

    /// The reply to `SENTINEL MASTER`.
    pub(super) fn of_master(host: &str, port: u16, epoch: u64) -> Reply {
        let fields = [
            ("name", bytes("m")),
            ("ip", bytes(host)),
            ("port", bytes(port)),
            ("config-epoch", bytes(epoch)),
            ("num-slaves", bytes(2)),
        ];
        Reply::Array(fields.into_iter().flat_map(|(name, value)| [bytes(name), value]).collect())
    }

    async fn call(store: &Store) -> Result<i64, ErrorKind> {
        outcome(store.servers.call(&super::call()).await)
    }

    /// The sentinels have made the second server the master, and say so.
    fn switch(store: &Store) {
        SENTINELS.into_iter().for_each(|sentinel| say(store, sentinel, 2, 2));
        for listener in SENTINELS.map(|port| store.fake.listeners(&format!("h:{port}"))).concat() {
            listener(Said::Published);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn name_the_server_that_is_asked() {
        let store = store();

        assert_eq!(call(&store).await, Ok(1));
        assert_eq!(store.called(), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn are_believed_by_how_new_their_knowledge_is() {
        let store = store();
        say(&store, 12, 2, 7);
        say(&store, 13, 2, 7);

        assert_eq!(call(&store).await, Ok(1));
        assert_eq!(store.called(), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn that_switch_say_so_to_those_who_ask_nothing() {
        let store = store();
        call(&store).await.unwrap();
        let mut watch = store.watch();

        switch(&store);

        assert!(is_told(&mut watch).await);
        assert_eq!(call(&store).await, Ok(1));
        assert_eq!(store.called(), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn may_be_down_but_for_one() {
        let store = store();
        for down in ["h:11", "h:12"] {
            store.fake.remove(down);
        }

        assert_eq!(call(&store).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn of_whom_one_hangs_cost_no_time() {
        let store = store();
        store.serve(11, |_| None, |_| None);
        let asked_at = Instant::now();

        assert_eq!(call(&store).await, Ok(1));
        assert_eq!(asked_at.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn that_are_all_down_are_unavailable() {
        let store = store();
        SENTINELS.into_iter().for_each(|port| store.fake.remove(&format!("h:{port}")));

        assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
    }

    #[tokio::test(start_paused = true)]
    async fn that_fall_silent_leave_the_last_master_that_they_named() {
        let store = store();
        call(&store).await.unwrap();
        for port in SENTINELS {
            store.fake.remove(&format!("h:{port}"));
            store.fake.listeners(&format!("h:{port}")).iter().for_each(|tell| tell(Said::Closed));
        }

        for _ in 0..2 {
            assert_eq!(call(&store).await, Ok(1));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        store.fake.delay("h:1", SLOW);
        assert_eq!(call(&store).await, Err(ErrorKind::Indeterminate), "who knows by now");
        store.fake.delay("h:1", Duration::ZERO);
        assert_eq!(call(&store).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn that_do_not_know_the_name_say_so() {
        let store = store();
        for sentinel in SENTINELS {
            store.serve(sentinel, |_| refused("ERR", "No such master with that name"), |_| None);
        }

        assert_eq!(call(&store).await, Err(ErrorKind::Invalid));
    }

    #[tokio::test(start_paused = true)]
    async fn are_asked_again_when_the_master_turns_out_to_be_a_replica() {
        let store = store();
        call(&store).await.unwrap();
        store.serve(
            1,
            |_| None,
            |_| refused("READONLY", "You can't write against a read only replica."),
        );

        assert_eq!(call(&store).await, Err(ErrorKind::Unavailable));
        SENTINELS.into_iter().for_each(|sentinel| say(&store, sentinel, 2, 2));
        assert_eq!(call(&store).await, Err(ErrorKind::Indeterminate), "it was replaced meanwhile");
        assert_eq!(call(&store).await, Ok(1));
        assert_eq!(store.called(), [1, 1, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn decide_whether_a_late_reply_is_believed() {
        for (switches, expected) in [(false, Ok(1)), (true, Err(ErrorKind::Indeterminate))] {
            let store = store();
            call(&store).await.unwrap();
            store.fake.delay("h:1", SLOW);
            if switches {
                SENTINELS.into_iter().for_each(|sentinel| say(&store, sentinel, 2, 2));
            }

            assert_eq!(call(&store).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_switch_while_the_old_master_answers_end_its_word() {
        let store = store();
        call(&store).await.unwrap();
        let store = Arc::new(store);
        store.fake.delay("h:1", SLOW / 2);
        let calling = tokio::spawn({
            let store = Arc::clone(&store);
            async move { call(&store).await }
        });
        tokio::time::sleep(SLOW / 4).await;
        switch(&store);

        assert_eq!(calling.await.unwrap(), Err(ErrorKind::Indeterminate));
    }
}

mod a_server {
    use super::*;

    fn store(to_scripts: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static) -> Store {
        let store = Store::new(Topology::Single(Fake::address(1)));
        store.serve(1, |_| None, to_scripts);
        store
    }

    #[tokio::test(start_paused = true)]
    async fn is_sent_the_source_of_a_script_when_it_does_not_know_it() {
        let store = store(learns());

        for _ in 0..2 {
            assert_eq!(outcome(store.servers.call(&call()).await), Ok(1));
        }
        assert_eq!(store.commands(), ["EVALSHA", "EVAL", "EVALSHA"]);
    }

    #[tokio::test(start_paused = true)]
    async fn is_sent_the_source_once_for_a_whole_batch() {
        let store = store(learns());

        for result in store.servers.call_all(&[call(), call()]).await {
            assert_eq!(outcome(result), Ok(1));
        }
        let sent = store.commands();
        assert_eq!(sent.iter().filter(|command| *command == "EVAL").count(), 1, "{sent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn is_sent_the_source_together_with_what_waits_for_replicas() {
        let store = store(learns());

        let answer = store.servers.call_and_wait(&call(), Replicas::AtLeast(1), TIMEOUT).await;

        let answer = answer.unwrap();
        assert_eq!((answer.received, answer.replicas.unwrap()), (Ok(Reply::Int(1)), 1));
        assert_eq!(store.commands(), ["EVALSHA", "WAIT", "EVAL", "WAIT"]);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_no_replicas_if_none_are_wanted() {
        let store = store(|_| done());

        let answer = store.servers.call_and_wait(&call(), Replicas::None, TIMEOUT).await.unwrap();

        assert_eq!((answer.replicas.unwrap(), answer.enough), (0, 0));
        assert_eq!(store.commands(), ["EVALSHA"]);
    }

    #[tokio::test(start_paused = true)]
    async fn that_hangs_is_connected_to_anew_after_three_timeouts() {
        let store = store(|_| None);
        let connections = || store.fake.listeners("h:1").len();

        for expected in [1, 1, 1, 2] {
            let asked_at = Instant::now();
            assert_eq!(outcome(store.servers.call(&call()).await), Err(ErrorKind::Indeterminate));
            assert_eq!(asked_at.elapsed(), TIMEOUT);
            assert_eq!(connections(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_closes_the_connection_has_everybody_look_again() {
        let store = store(|_| done());
        store.servers.connect().await.unwrap();
        let mut watch = store.watch();

        store.fake.listeners("h:1").iter().for_each(|listener| listener(Said::Closed));

        assert!(is_told(&mut watch).await);
        assert_eq!(outcome(store.servers.call(&call()).await), Ok(1));
        assert_eq!(store.fake.listeners("h:1").len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn is_not_connected_to_by_what_was_closed_meanwhile() {
        let store = store(|_| done());
        store.fake.delay("h:1", TIMEOUT / 2);
        let close = async {
            tokio::time::sleep(TIMEOUT / 4).await;
            store.close();
        };

        let (connected, ()) = tokio::join!(store.servers.connect(), close);

        assert_eq!(connected.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(store.fake.connections(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn that_waited_for_replicas_is_left_if_all_was_closed_meanwhile() {
        let store = store(|_| done());
        let call = call();
        let wait = || store.servers.call_and_wait(&call, Replicas::AtLeast(1), TIMEOUT);
        wait().await.unwrap();
        assert_eq!(store.fake.connections(), 1);
        store.fake.delay("h:1", TIMEOUT / 2);
        let close = async {
            tokio::time::sleep(TIMEOUT / 4).await;
            store.close();
        };

        let (answer, ()) = tokio::join!(wait(), close);

        assert_eq!(answer.unwrap().received, Ok(Reply::Int(1)));
        assert_eq!(store.fake.connections(), 0);
    }
}

mod a_password {
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;
    use crate::address::Address;

    /// Counts warnings.
    #[derive(Clone, Default)]
    struct Warnings(Arc<AtomicUsize>);

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn tcp(host: &str) -> Address {
        Address::Tcp { host: host.to_owned(), port: 1 }
    }

    /// How often it is warned of what crosses a network when `servers` are connected to, twice.
    async fn warnings(servers: Topology, password: Option<&str>, fake: Fake) -> usize {
        let warnings = Warnings::default();
        let _guard = tracing::subscriber::set_default(warnings.clone());
        for address in ["h:1", "localhost:1", "[::1]:1", "/run/socket"] {
            fake.serve(address, |_| Some(Ok(Reply::Other)));
        }
        let access = Access { password: password.map(str::to_owned), ..Access::default() };
        let store = Store::with(servers, &access, fake);
        for _ in 0..2 {
            store.servers.connect().await.unwrap();
            store.servers.disconnect();
        }
        warnings.0.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn that_crosses_a_network_in_the_clear_is_warned_of_once() {
        let at = |address| Topology::Single(address);

        assert_eq!(warnings(at(tcp("h")), Some("p"), Fake::default()).await, 1);
        assert_eq!(warnings(at(tcp("h")), None, Fake::default()).await, 0);
        let tls = Fake::new(Some(Tls::default())).unwrap();
        assert_eq!(warnings(at(tcp("h")), Some("p"), tls).await, 0);
        for local in [tcp("localhost"), tcp("::1"), Address::Unix("/run/socket".into())] {
            assert_eq!(warnings(at(local), Some("p"), Fake::default()).await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_warned_of_where_it_goes_to_and_not_where_that_is_asked_for() {
        for (master, expected) in [("h", 1), ("localhost", 0)] {
            let fake = Fake::default();
            let reply = sentinels::of_master(master, 1, 1);
            fake.serve("localhost:11", move |_| Some(Ok(reply.clone())));
            let sentinels = vec![Address::Tcp { host: "localhost".to_owned(), port: 11 }];
            let servers = Topology::Sentinel { sentinels, master: "m".to_owned() };

            assert_eq!(warnings(servers, Some("p"), fake).await, expected, "{master}");
        }
    }
}

#[test]
fn a_majority_is_more_than_half_of_the_primary_and_its_replicas() {
    for (replicas, needed) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
        assert_eq!(majority(replicas), needed);
    }
}
