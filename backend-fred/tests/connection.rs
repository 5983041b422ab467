//! The connection itself: the behaviour that the Redis backend relies on.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use leasehold_fred::{FredConfig, FredConnection, FredDriver};
use leasehold_redis_support::{
    Access, Address, ConnectError, Connection, Driver, Endpoints, Protocol, Push, PushHandler,
    Received, Reply, Request, Server, ServerError, Tls,
};
use leasehold_testbed::{
    FaultProxy, NetworkFault, Process, Redis, RedisOptions, free_port, until, until_some,
};
use tokio::time::{Instant, timeout};

const SECRET: &str = "S3CR3T-CANARY";

/// The limit for news that comes at once, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// The push messages of a server.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<Push>>>);

impl Heard {
    fn listener(&self) -> PushHandler {
        let heard = self.clone();
        Arc::new(move |said| heard.0.lock().unwrap().push(said))
    }

    fn any(&self, is: impl Fn(&Push) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(is)
    }

    fn is_closed(&self) -> bool {
        self.any(|said| matches!(said, Push::Closed))
    }
}

fn tcp(address: &str) -> Address {
    let (host, port) = address.rsplit_once(':').unwrap();
    Address::Tcp(Server { host: host.to_owned(), port: port.parse().unwrap() })
}

fn access(user: Option<&str>, password: &str) -> Access {
    let (user, password) = (user.map(str::to_owned), Some(password.to_owned()));
    Access { user, password, database: 0 }
}

fn plain() -> FredDriver {
    FredDriver::new(None).unwrap()
}

async fn connect(address: &str, heard: &Heard) -> FredConnection {
    let (address, access) = (tcp(address), Access::default());
    plain().connect((&address).into(), &access, Protocol::Resp3, heard.listener()).await.unwrap()
}

async fn refusal(client: &FredDriver, address: Address, access: Access) -> Error {
    let heard = Heard::default();
    match client.connect((&address).into(), &access, Protocol::Resp3, heard.listener()).await {
        Err(ConnectError::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

async fn ask(connection: &FredConnection, words: &[&str]) -> Received {
    connection.send(vec![Request::Words(words)]).await.unwrap().remove(0)
}

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

async fn connections(redis: &Redis) -> usize {
    let list = redis.command(&["CLIENT", "LIST"]).await;
    list.lines().filter(|line| line.contains("id=") && !line.contains("cmd=client|list")).count()
}

#[tokio::test]
async fn replies_of_every_form_are_read() {
    let redis = Redis::start().await;
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let address = Address::Unix(redis.socket());
        let heard = Heard::default();
        let access = Access::default();
        let connection =
            plain().connect((&address).into(), &access, protocol, heard.listener()).await.unwrap();

        assert_eq!(ask(&connection, &["SET", "k", "\r\n $ ü"]).await, Ok(text("OK")));
        assert_eq!(ask(&connection, &["GET", "k"]).await, Ok(text("\r\n $ ü")));
        assert_eq!(ask(&connection, &["GET", "none"]).await, Ok(Reply::Nil));
        assert_eq!(ask(&connection, &["EXISTS", "k"]).await, Ok(Reply::Int(1)));
        ask(&connection, &["HSET", "h", "field", "value"]).await.unwrap();
        let pairs = Reply::Array(vec![text("field"), text("value")]);
        assert_eq!(ask(&connection, &["HGETALL", "h"]).await, Ok(pairs));
        let nested = ask(&connection, &["EVAL", "return {1, {'a', false}}", "0"]).await;
        let inner = Reply::Array(vec![text("a"), Reply::Nil]);
        assert_eq!(nested, Ok(Reply::Array(vec![Reply::Int(1), inner])));
        let refused = ask(&connection, &["LPUSH", "k", "x"]).await.unwrap_err();
        let message = "Operation against a key holding the wrong kind of value";
        assert_eq!(refused, ServerError::new("WRONGTYPE", message));
        assert!(ask(&connection, &["EVALSHA", "00", "0"]).await.unwrap_err().is_no_script());
        drop(ask(&connection, &["DEL", "k", "h"]).await);
    }
}

#[tokio::test]
async fn a_failure_within_a_batch_leaves_its_neighbours_alone() {
    let redis = Redis::start().await;
    let connection = connect(&redis.address(), &Heard::default()).await;
    let requests = [&["SET", "k", "v"][..], &["LPUSH", "k", "x"], &["NONSENSE"], &["GET", "k"]];
    let requests = requests.map(Request::Words).to_vec();

    let replies = connection.send(requests.clone()).await.unwrap();

    assert_eq!(replies.len(), 4);
    assert_eq!(replies[0], Ok(text("OK")));
    assert_eq!(replies[1].clone().unwrap_err().into_error().kind(), ErrorKind::WrongType);
    assert_eq!(replies[2].clone().unwrap_err().into_error().kind(), ErrorKind::Unsupported);
    assert_eq!(replies[3], Ok(text("v")));
    assert_eq!(connection.send(requests[3..].to_vec()).await.unwrap(), [Ok(text("v"))]);
    assert_eq!(connection.send(Vec::new()).await.unwrap(), []);
}

#[tokio::test]
async fn batches_stay_together_and_replies_find_their_requests() {
    let redis = Redis::start().await;
    let connection = connect(&redis.address(), &Heard::default()).await;
    let callers = (0..32).map(|n: u32| {
        let connection = connection.clone();
        tokio::spawn(async move {
            let (key, n) = (format!("k{n}"), n.to_string());
            for _ in 0..50 {
                // Only in one piece does the second see the write of the first.
                let words = [&["SET", "k", &n][..], &["GET", "k"]];
                let batch = words.map(Request::Words).to_vec();
                assert_eq!(connection.send(batch).await.unwrap()[1], Ok(text(&n)));
                ask(&connection, &["SET", &key, &n]).await.unwrap();
                assert_eq!(ask(&connection, &["GET", &key]).await, Ok(text(&n)));
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn dropped_futures_leave_the_connection_in_order() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.address()).await;
    let connection = connect(&proxy.address(), &Heard::default()).await;
    proxy.set_network_fault(NetworkFault::HoldReplies);
    for n in 0..10 {
        let words = ["ECHO", &n.to_string()];
        let lone = connection.send(vec![Request::Words(&words)]);
        assert!(timeout(Duration::from_millis(5), lone).await.is_err());
        let batch = vec![Request::Words(&["ECHO", "a"]), Request::Words(&["ECHO", "b"])];
        assert!(timeout(Duration::from_millis(5), connection.send(batch)).await.is_err());
    }

    proxy.set_network_fault(NetworkFault::None);

    assert_eq!(ask(&connection, &["ECHO", "ours"]).await, Ok(text("ours")));
}

#[tokio::test]
async fn news_is_passed_on() {
    let redis = Redis::start().await;
    let heard = Heard::default();
    let connection = connect(&redis.address(), &heard).await;
    ask(&connection, &["CLIENT", "TRACKING", "ON", "NOLOOP"]).await.unwrap();
    drop(ask(&connection, &["GET", "k"]).await);
    connection.subscribe("channel").await.unwrap();

    redis.command(&["SET", "k", "v"]).await;
    redis.command(&["PUBLISH", "channel", "x"]).await;

    let changed = |said: &Push| matches!(said, Push::Changed(keys) if *keys == [b"k"]);
    until("a change is told", async || heard.any(changed)).await;
    until("a message is told", async || heard.any(|said| matches!(said, Push::Published(_)))).await;
    assert_eq!(ask(&connection, &["GET", "k"]).await, Ok(text("v")));
    assert!(!heard.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_news_was_missed_anything_may_have_changed() {
    let redis = Redis::start().await;
    let heard = Heard::default();
    // The listener waits until this is dropped.
    let (busy, ends) = mpsc::channel::<()>();
    let listener: PushHandler = {
        let (listener, ends) = (heard.listener(), Mutex::new(ends));
        Arc::new(move |said| {
            assert!(ends.lock().unwrap().recv().is_err());
            listener(said);
        })
    };
    let (address, access) = (tcp(&redis.address()), Access::default());
    let connection =
        plain().connect((&address).into(), &access, Protocol::Resp3, listener).await.unwrap();
    ask(&connection, &["CLIENT", "TRACKING", "ON", "BCAST"]).await.unwrap();

    for n in 0..1_000 {
        ask(&connection, &["SET", &format!("k{n}"), "v"]).await.unwrap();
    }
    drop(busy);

    until("it is told", async || heard.any(|said| matches!(said, Push::AllChanged))).await;
}

#[tokio::test]
async fn the_end_is_told_at_once_and_no_request_is_sent_again() {
    let mut redis = Redis::start().await;
    let heard = Heard::default();
    let connection = connect(&redis.address(), &heard).await;
    // Push messages come in order.
    connection.subscribe("channel").await.unwrap();
    redis.command(&["PUBLISH", "channel", "x"]).await;
    until("a message is told", async || heard.any(|said| matches!(said, Push::Published(_)))).await;
    assert!(!heard.is_closed());

    redis.kill();

    let killed = Instant::now();
    until("the end is told", async || heard.is_closed()).await;
    assert!(killed.elapsed() < SOON);
    redis.restart().await;
    for _ in 0..3 {
        let asked =
            timeout(SOON, connection.send(vec![Request::Words(&["SET", "k", "v"])])).await.unwrap();
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Indeterminate);
        let batch = vec![Request::Words(&["SET", "k", "v"]); 2];
        let asked = timeout(SOON, connection.send(batch)).await.unwrap();
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Indeterminate);
    }
    assert_eq!(redis.command(&["EXISTS", "k"]).await, ":0");
    assert_eq!(connections(&redis).await, 0, "it must not connect again");
}

#[tokio::test]
async fn a_request_under_way_when_the_connection_breaks_fails_and_is_not_sent_again() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.address()).await;
    let heard = Heard::default();
    let connection = connect(&proxy.address(), &heard).await;
    proxy.set_network_fault(NetworkFault::HoldReplies);
    let asked = (0..20).map(|_| {
        let connection = connection.clone();
        tokio::spawn(async move { connection.send(vec![Request::Words(&["INCR", "n"])]).await })
    });
    let asked: Vec<_> = asked.collect();
    let batch =
        tokio::spawn(
            async move { connection.send(vec![Request::Words(&["INCR", "n"]); 20]).await },
        );
    until("all have arrived", async || redis.command(&["GET", "n"]).await.ends_with("40")).await;

    proxy.disconnect().await;
    proxy.set_network_fault(NetworkFault::None);

    for asked in asked {
        let error = timeout(SOON, asked).await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate);
    }
    let error = timeout(SOON, batch).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    until("the end is told", async || heard.is_closed()).await;
    assert!(redis.command(&["GET", "n"]).await.ends_with("40"));
}

#[tokio::test]
async fn the_last_clone_closes_the_connection() {
    let redis = Redis::start().await;
    let heard = Heard::default();
    let connection = connect(&redis.address(), &heard).await;
    let clone = connection.clone();
    assert_eq!(connections(&redis).await, 1);

    drop(connection);
    assert_eq!(ask(&clone, &["ECHO", "x"]).await, Ok(text("x")));
    // Where there is no runtime, too.
    std::thread::spawn(move || drop(clone)).join().unwrap();

    until("it is closed", async || connections(&redis).await == 0).await;
    until("the end is told", async || heard.is_closed()).await;
}

#[tokio::test]
async fn connecting_that_is_given_up_leaves_no_connection_behind() {
    let redis = Redis::start().await;
    let proxy = FaultProxy::start(redis.address()).await;
    proxy.set_network_fault(NetworkFault::HoldReplies);
    let (client, address, access) = (plain(), tcp(&proxy.address()), Access::default());
    for _ in 0..5 {
        let heard = Heard::default();
        let connecting =
            client.connect((&address).into(), &access, Protocol::Resp3, heard.listener());
        assert!(timeout(Duration::from_millis(20), connecting).await.is_err());
    }

    proxy.set_network_fault(NetworkFault::None);

    until("they are closed", async || connections(&redis).await == 0).await;
}

#[test]
fn a_runtime_that_ends_ends_the_connection() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (outer, inner) = (runtime(), runtime());
    let redis = outer.block_on(Redis::start());
    let heard = Heard::default();
    let connection = inner.block_on(connect(&redis.address(), &heard));

    drop(inner);

    assert!(heard.is_closed());
    outer.block_on(async {
        let asked =
            timeout(SOON, connection.send(vec![Request::Words(&["ECHO", "x"])])).await.unwrap();
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Indeterminate);
    });
    drop(connection);
}

#[tokio::test]
async fn a_user_with_few_rights_is_let_in() {
    let rights = ["resetkeys", "resetchannels", "-@all", "~lock:*", "+get"];
    let password = format!(">{SECRET}");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let redis = Redis::start().await;
        redis
            .command(&[&["ACL", "SETUSER", "locker", "on", &password], &rights[..]].concat())
            .await;
        redis.command(&[&["ACL", "SETUSER", "default"], &rights[..]].concat()).await;
        for access in [access(Some("locker"), SECRET), Access::default()] {
            let (address, heard) = (tcp(&redis.address()), Heard::default());
            let connection =
                plain().connect((&address).into(), &access, protocol, heard.listener()).await;
            let connection = connection.unwrap();

            assert_eq!(ask(&connection, &["GET", "lock:a"]).await, Ok(Reply::Nil));
            for refused in [&["GET", "other"][..], &["SET", "lock:a", "x"]] {
                let refused = ask(&connection, refused).await.unwrap_err().into_error();
                assert_eq!(refused.kind(), ErrorKind::Denied);
            }
            if protocol == Protocol::Resp3 {
                let refused = connection.subscribe("channel").await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Denied);
            }
        }
    }
}

#[tokio::test]
async fn why_there_is_no_connection_is_told_apart() {
    let user = format!("user locker on >{SECRET} ~* &* +@all");
    let redis = RedisOptions::new().acl("user default off").acl(user).start().await;
    let full = RedisOptions::new().args(["--maxclients", "1"]).start().await;
    let _only_one = connect(&full.address(), &Heard::default()).await;
    let here = || tcp(&redis.address());
    let nowhere = Address::Tcp(Server { host: "127.0.0.1".to_owned(), port: free_port() });
    let unknown = Address::Tcp(Server { host: "no.such.host.invalid".to_owned(), port: 1 });
    let ninety_nine = Access { database: 99, ..access(Some("locker"), SECRET) };

    for (address, access, kind) in [
        (here(), access(Some("locker"), "wrong"), ErrorKind::Denied),
        (here(), access(Some("stranger"), SECRET), ErrorKind::Denied),
        (here(), access(None, SECRET), ErrorKind::Denied),
        (here(), Access::default(), ErrorKind::Denied),
        (here(), ninety_nine, ErrorKind::Invalid),
        (tcp(&full.address()), Access::default(), ErrorKind::Unavailable),
        (nowhere, access(None, SECRET), ErrorKind::Unavailable),
        (unknown, access(None, SECRET), ErrorKind::Unavailable),
        (Address::Unix("/nowhere".into()), access(None, SECRET), ErrorKind::Unavailable),
    ] {
        let error = refusal(&plain(), address.clone(), access).await;

        assert_eq!(error.kind(), kind, "{address}: {error:?}");
        let source = std::error::Error::source(&error).map(|source| format!("{source:?}"));
        assert!(!format!("{error} {error:?} {source:?}").contains(SECRET), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_knows_no_resp3_is_recognized_and_spoken_to_in_resp2() {
    let redis = RedisOptions::new().args(["--rename-command", "HELLO", "\"\""]).start().await;
    let heard = Heard::default();
    let connect = async |protocol| {
        let address = tcp(&redis.address());
        plain().connect((&address).into(), &access(None, SECRET), protocol, heard.listener()).await
    };

    let resp3 = connect(Protocol::Resp3).await;
    let resp2 = connect(Protocol::Resp2).await;

    assert!(matches!(resp3, Err(ConnectError::Protocol)), "{resp3:?}");
    assert_eq!(ask(&resp2.unwrap(), &["ECHO", "x"]).await, Ok(text("x")));
}

#[tokio::test]
async fn a_server_that_hangs_up_is_no_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp(&listener.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });

    let error = refusal(&plain(), address, Access::default()).await;

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[tokio::test]
async fn a_sentinel_is_asked_and_listened_to_like_any_server() {
    let redis = Redis::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (config, port) = (folder.path().join("sentinel.conf"), free_port());
    let (_, master_port) =
        redis.address().rsplit_once(':').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let lines = format!(
        "bind 127.0.0.1\nport {port}\nsentinel monitor main 127.0.0.1 {master_port} 1\n\
         user default off\nuser watcher on >{SECRET} resetchannels -@all +sentinel|master +sentinel|remove +subscribe &+switch-master\n"
    );
    std::fs::write(&config, lines).unwrap();
    let args = [config.to_str().unwrap(), "--sentinel"];
    let log = folder.path().join("log");
    let _sentinel = Process::start("redis-server", args, &log).unwrap();
    let address = Address::Tcp(Server { host: "127.0.0.1".to_owned(), port });
    let (client, heard, watcher) = (plain(), Heard::default(), access(Some("watcher"), SECRET));
    let connection = until_some("the sentinel is up", async || {
        client.connect((&address).into(), &watcher, Protocol::Resp3, heard.listener()).await.ok()
    })
    .await;

    connection.subscribe("+switch-master").await.unwrap();
    let Ok(Reply::Array(parts)) = ask(&connection, &["SENTINEL", "MASTER", "main"]).await else {
        panic!("a sentinel tells of its master");
    };

    let port = parts.chunks(2).find(|pair| pair[0] == text("port")).unwrap();
    assert_eq!(port[1], text(&master_port.to_string()));
    for _ in 0..20 {
        let listener = heard.listener();
        let connection =
            client.connect((&address).into(), &watcher, Protocol::Resp3, listener).await.unwrap();
        let refused = connection.subscribe("+sdown").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        // fred has a reply too many now, which must not be taken for that to another request.
        let asked = connection.send(vec![Request::Words(&["SENTINEL", "MASTER", "main"])]).await;
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Indeterminate);
    }
}

#[test]
fn the_settings_of_the_client_crate_are_adopted() {
    let config = |url: &str| leasehold_fred::fred::types::config::Config::from_url(url).unwrap();
    let adopt = |url: &str| FredDriver::adopt(config(url)).unwrap();
    let at = |host: &str, port| Address::Tcp(Server { host: host.to_owned(), port });

    let (client, topology, found) = adopt(&format!("redis://locker:{SECRET}@a:1/3"));
    assert_eq!(topology, Endpoints::Single(at("a", 1)));
    assert_eq!(found, Access { database: 3, ..access(Some("locker"), SECRET) });
    assert!(!client.is_encrypted());

    let (_, topology, _) = adopt("redis-cluster://a:1?node=b:2");
    assert_eq!(topology, Endpoints::Cluster { seeds: vec![at("b", 2), at("a", 1)] });

    let (_, topology, _) = adopt("redis-sentinel://a:1?node=b:2&sentinelServiceName=main");
    let sentinels = vec![at("b", 2), at("a", 1)];
    assert_eq!(topology, Endpoints::Sentinel { sentinels, master: "main".to_owned() });

    let (_, topology, _) = adopt("redis+unix:///path/to.sock");
    assert_eq!(topology, Endpoints::Single(Address::Unix("/path/to.sock".into())));

    let native = config(&format!("redis://locker:{SECRET}@a:1"));
    let shown = format!("{client:?} {:?}", FredConfig::from_client(native).unwrap());
    assert!(!shown.contains(SECRET), "{shown}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_needs_its_feature() {
    let error = FredDriver::new(Some(Tls::default())).unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    fn read(path: impl AsRef<std::path::Path>) -> Vec<u8> {
        std::fs::read(path).unwrap()
    }

    fn trusting(redis: &Redis) -> Tls {
        Tls { authority: Some(read(redis.certificates().authority())), identity: None }
    }

    fn address(redis: &Redis) -> Address {
        tcp(redis.tls_url().trim_start_matches("rediss://"))
    }

    async fn greet(client: &FredDriver, redis: &Redis) {
        let (address, heard) = (address(redis), Heard::default());
        let access = Access::default();
        let connection =
            client.connect((&address).into(), &access, Protocol::Resp3, heard.listener()).await;
        assert_eq!(ask(&connection.unwrap(), &["ECHO", "x"]).await, Ok(text("x")));
    }

    #[tokio::test]
    async fn a_trusted_server_is_spoken_to_and_no_other() {
        let redis = RedisOptions::new().tls().start().await;
        let client = FredDriver::new(Some(trusting(&redis))).unwrap();
        let of_the_system = FredDriver::new(Some(Tls::default())).unwrap();
        let Address::Tcp(Server { port, .. }) = address(&redis) else { unreachable!() };
        let other_name = Address::Tcp(Server { host: "127.0.0.1".to_owned(), port });

        assert!(client.is_encrypted());
        greet(&client, &redis).await;
        for (client, address) in [(&of_the_system, address(&redis)), (&client, other_name)] {
            let error = refusal(client, address, access(None, SECRET)).await;
            assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_certificate_gets_ours() {
        let redis = RedisOptions::new().tls_with_client_certificates().start().await;
        let files = redis.certificates();
        let identity = (read(files.client_certificate()), read(files.client_key()));
        let with = Tls { identity: Some(identity), ..trusting(&redis) };

        greet(&FredDriver::new(Some(with)).unwrap(), &redis).await;

        let without = FredDriver::new(Some(trusting(&redis))).unwrap();
        let error = refusal(&without, address(&redis), Access::default()).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }

    #[test]
    fn certificates_that_cannot_be_used_are_refused() {
        let nonsense = || b"nonsense".to_vec();
        let authority = Tls { authority: Some(nonsense()), identity: None };
        let identity = Tls { authority: None, identity: Some((nonsense(), nonsense())) };

        for tls in [authority, identity] {
            let error = FredDriver::new(Some(tls)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }

    #[tokio::test]
    async fn the_client_crates_own_tls_is_kept() {
        use leasehold_fred::fred::types::config::{Config, TlsConnector};

        let redis = RedisOptions::new().tls().start().await;
        let tls = trusting(&redis).client_config().unwrap();
        let connector = TlsConnector::from(tls);
        let native = Config { tls: Some(connector.into()), ..Config::default() };

        let (client, _, _) = FredDriver::adopt(native).unwrap();

        greet(&client, &redis).await;
    }
}
