//! The backend's one connection: made when needed, shared by all calls, replaced when broken or hung.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use leasehold_redis_support::{Call, Reply, Script, ServerError};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind as RedisKind, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult, Value,
};
use tokio::time::{Instant, timeout};

use crate::config::{Push, RedisConfig};
use crate::error;
use crate::watch::News;

/// Replies in a row that do not come in time before the connection counts as hung. One may be a
/// slow script of somebody else's; TCP itself does not notice a frozen server for minutes.
const TIMEOUTS_UNTIL_HUNG: u32 = 3;

/// Requests that may wait to be written. The client crate's own 50 makes callers queue for a place.
const WRITE_QUEUE: usize = 1_024;

/// A reply, or the error that the server replied.
pub(crate) type Received = Result<Reply, ServerError>;

#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    timeout: Duration,
    news: Arc<News>,
    /// Whoever connects holds it; the others wait for the outcome.
    connecting: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    link: Option<Link>,
    /// How many links there were.
    links: u64,
    last_failure: Option<(Instant, ErrorKind, String)>,
    push: Push,
    protocol: ProtocolVersion,
    closed: bool,
}

/// A connection to the server while it lasts.
#[derive(Clone, Debug)]
struct Link {
    number: u64,
    connection: MultiplexedConnection,
    timeouts: Arc<AtomicU32>,
}

impl Connection {
    pub(crate) fn new(config: RedisConfig, news: Arc<News>) -> Arc<Self> {
        Arc::new(Self {
            client: config.client,
            timeout: config.timeout,
            news,
            connecting: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                link: None,
                links: 0,
                last_failure: None,
                push: config.push,
                protocol: config.protocol,
                closed: false,
            }),
        })
    }

    /// Whether the server tells of changes, as far as is known.
    pub(crate) fn has_push(&self) -> bool {
        let state = self.state();
        state.push == Push::Wanted && state.protocol != ProtocolVersion::RESP2
    }

    /// Connects, if that is needed.
    pub(crate) async fn ensure(self: &Arc<Self>) -> Result<(), Error> {
        self.link().await.map(|_link| ())
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.link = None;
    }

    /// Runs one script.
    pub(crate) async fn call(self: &Arc<Self>, call: &Call) -> Result<Received, Error> {
        let link = self.link().await?;
        let received = self.exchange(&link, by_hash(call)).await?;
        match received {
            Err(error) if error.is_no_script() => self.exchange(&link, by_source(call)).await,
            received => Ok(received),
        }
    }

    /// Runs many scripts in one round trip; in two, if the server does not know the script.
    pub(crate) async fn call_all(self: &Arc<Self>, calls: &[Call]) -> Result<Vec<Received>, Error> {
        let link = self.link().await?;
        let mut received = self.exchange_all(&link, calls.iter().map(by_hash)).await?;
        let unknown: Vec<usize> = received
            .iter()
            .enumerate()
            .filter(|(_, reply)| reply.as_ref().is_err_and(ServerError::is_no_script))
            .map(|(index, _)| index)
            .collect();
        if unknown.is_empty() {
            return Ok(received);
        }
        // The first brings the source along, the others find it there.
        let again = unknown.iter().enumerate().map(|(position, &index)| match position {
            0 => by_source(&calls[index]),
            _ => by_hash(&calls[index]),
        });
        let replies = self.exchange_all(&link, again).await?;
        for (index, reply) in unknown.into_iter().zip(replies) {
            received[index] = reply;
        }
        Ok(received)
    }

    async fn exchange(&self, link: &Link, command: Cmd) -> Result<Received, Error> {
        let mut connection = link.connection.clone();
        let reply = command.query_async::<Value>(&mut connection);
        let reply = self.in_time(link, reply).await?;
        received(reply).map_err(|error| self.broken(link, error))
    }

    async fn exchange_all(
        &self,
        link: &Link,
        commands: impl Iterator<Item = Cmd>,
    ) -> Result<Vec<Received>, Error> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command);
        }
        pipeline.ignore_errors();
        let mut connection = link.connection.clone();
        let replies = pipeline.query_async::<Vec<RedisResult<Value>>>(&mut connection);
        let replies = self.in_time(link, replies).await?;
        let replies = replies.and_then(|replies| replies.into_iter().map(received).collect());
        replies.map_err(|error| self.broken(link, error))
    }

    /// Waits for a reply, but not for ever; a server that is silent too often is left.
    async fn in_time<T>(&self, link: &Link, reply: impl Future<Output = T>) -> Result<T, Error> {
        if let Ok(reply) = timeout(self.timeout, reply).await {
            link.timeouts.store(0, Ordering::Relaxed);
            return Ok(reply);
        }
        if link.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_UNTIL_HUNG {
            self.leave(link.number);
        }
        let message = format!("no reply within {:?}, outcome unknown", self.timeout);
        Err(Error::new(ErrorKind::Indeterminate, message))
    }

    fn broken(&self, link: &Link, error: RedisError) -> Error {
        self.leave(link.number);
        error::exchange(error)
    }

    /// Gives up a link; the next call makes another.
    fn leave(&self, number: u64) {
        let mut state = self.state();
        if state.link.as_ref().is_some_and(|link| link.number == number) {
            state.link = None;
            drop(state);
            self.news.interrupted();
        }
    }

    async fn link(self: &Arc<Self>) -> Result<Link, Error> {
        if let Some(link) = self.current()? {
            return Ok(link);
        }
        let asked_at = Instant::now();
        let turn = timeout(self.timeout, self.connecting.lock()).await;
        let _turn = turn.map_err(|_elapsed| self.no_connection())?;
        if let Some(link) = self.current()? {
            return Ok(link);
        }
        self.failure_since(asked_at)?;
        let connected = timeout(self.timeout, self.connect()).await;
        let connected = connected.unwrap_or_else(|_elapsed| Err(self.no_connection()));
        match &connected {
            Ok(link) => self.state().link = Some(link.clone()),
            Err(error) => {
                let failure = (Instant::now(), error.kind(), error.to_string());
                self.state().last_failure = Some(failure);
            }
        }
        if connected.is_ok() {
            // On this connection the server knows of no key yet that we want to hear of.
            self.news.interrupted();
        }
        connected
    }

    fn current(&self) -> Result<Option<Link>, Error> {
        let state = self.state();
        if state.closed {
            return Err(Error::new(ErrorKind::Closed, "the backend was closed"));
        }
        Ok(state.link.clone())
    }

    /// What another call found out while this one waited for its turn to connect holds for both.
    fn failure_since(&self, asked_at: Instant) -> Result<(), Error> {
        match &self.state().last_failure {
            Some((at, kind, message)) if *at >= asked_at => Err(Error::new(*kind, message.clone())),
            _ => Ok(()),
        }
    }

    fn no_connection(&self) -> Error {
        let message = format!("no connection within {:?}", self.timeout);
        Error::new(ErrorKind::Unavailable, message)
    }

    async fn connect(self: &Arc<Self>) -> Result<Link, Error> {
        let protocol = self.state().protocol;
        match self.connect_with(protocol).await {
            Err(error) if protocol != ProtocolVersion::RESP2 && speaks_only_resp2(&error) => {
                tracing::info!("the server knows no RESP3: those who wait will poll");
                self.state().protocol = ProtocolVersion::RESP2;
                self.connect_with(ProtocolVersion::RESP2).await.map_err(error::connect)
            }
            connected => connected.map_err(error::connect),
        }
    }

    async fn connect_with(self: &Arc<Self>, protocol: ProtocolVersion) -> RedisResult<Link> {
        let number = {
            let mut state = self.state();
            state.links += 1;
            state.links
        };
        let info = self.client.get_connection_info().clone();
        let settings = info.redis_settings().clone();
        let settings =
            settings.set_protocol(protocol).set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        // Requests are small and waited for: sending them at once is all that matters.
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))?;

        // Times are kept here, around the whole of connecting and of each exchange.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE);
        if protocol != ProtocolVersion::RESP2 {
            let this = Arc::downgrade(self);
            config = config.set_push_sender(move |push| receive(&this, number, &push));
        }
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        if self.has_push() {
            self.start_news(&mut connection).await?;
        }
        Ok(Link { number, connection, timeouts: Arc::default() })
    }

    /// Asks the server to tell of changes to the keys that our scripts read, by others than us.
    async fn start_news(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let mut tracking = redis::cmd("CLIENT");
        tracking.arg("TRACKING").arg("ON").arg("NOLOOP");
        let Err(error) = tracking.exec_async(connection).await else {
            return Ok(());
        };
        let refusal = error::server(error)?;
        tracing::info!(?refusal, "the server tells no news: those who wait will poll");
        self.state().push = Push::Off;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the server says unasked. Called by the connection's own task.
fn receive(connection: &Weak<Connection>, number: u64, push: &PushInfo) -> Result<(), Infallible> {
    let Some(connection) = connection.upgrade() else {
        return Ok(());
    };
    match push.kind {
        PushKind::Invalidate => connection.news.invalidated(&push.data),
        PushKind::Disconnection => connection.leave(number),
        _ => {}
    }
    Ok(())
}

fn speaks_only_resp2(error: &RedisError) -> bool {
    error.kind() == RedisKind::RESP3NotSupported || error.code() == Some("NOPROTO")
}

fn received(reply: RedisResult<Value>) -> RedisResult<Received> {
    match reply {
        Ok(value) => Ok(Ok(to_reply(value))),
        Err(error) => error::server(error).map(Err),
    }
}

fn to_reply(value: Value) -> Reply {
    match value {
        Value::Array(values) => Reply::Array(values.into_iter().map(to_reply).collect()),
        Value::BulkString(bytes) => Reply::Bytes(bytes),
        Value::Int(int) => Reply::Int(int),
        Value::Nil => Reply::Nil,
        _ => Reply::Other,
    }
}

fn by_hash(call: &Call) -> Cmd {
    run("EVALSHA", hash(call.script()), call)
}

fn by_source(call: &Call) -> Cmd {
    run("EVAL", call.script().source(), call)
}

fn run(command: &str, script: &str, call: &Call) -> Cmd {
    let mut run = redis::cmd(command);
    run.arg(script).arg(call.keys().len()).arg(call.keys()).arg(call.args());
    run
}

fn hash(script: Script) -> &'static str {
    static HASHES: LazyLock<Vec<(Script, redis::Script)>> = LazyLock::new(|| {
        Script::ALL.iter().map(|script| (*script, redis::Script::new(script.source()))).collect()
    });

    let (_, hashed) = HASHES.iter().find(|(of, _)| *of == script).expect("all are hashed");
    hashed.get_hash()
}
