mod cluster;
mod node;
mod password;
mod sentinel;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use leasehold_core::LockKey;
use leasehold_core::backend::{KeyWatch, Lease, Subject};
use leasehold_core::clock::{self, Clock, Sleep, TokioClock};
use tokio::time::{Instant, timeout};

use super::failover::SLOW;
use super::*;
use crate::driver::Protocol;
use crate::error::ServerError;
use crate::fake::Fake;
use crate::layout::Layout;
use crate::reply::Reply;
use crate::script::Script;
use crate::watch::News;

const TIMEOUT: Duration = Duration::from_millis(500);

/// The servers of a topology, and the script calls that the servers received, by port and in order.
struct Store {
    clock: Skewed,
    fake: Fake,
    news: Arc<News>,
    context: Arc<Context<Fake>>,
    servers: Topology<Fake>,
    calls: Arc<Mutex<Vec<(u16, String)>>>,
}

impl Store {
    fn new(topology: Endpoints) -> Self {
        Self::with(topology, &Access::default(), Fake::default())
    }

    fn with(topology: Endpoints, access: &Access, fake: Fake) -> Self {
        let news = Arc::new(News::new(Layout::default()));
        let clock = Skewed { clock: TokioClock::new(), ahead: Arc::default() };
        let (time, listening) = (Arc::new(clock.clone()), Arc::clone(&news));
        let context = Context::new(fake.clone(), TIMEOUT, time, listening, true, Protocol::Resp3);
        let servers = Topology::new(topology, access.clone(), access, &Layout::default(), &context);
        Self { clock, fake, news, context, servers, calls: Arc::default() }
    }

    /// Adds a server with these replies to queries about the topology and to scripts.
    fn serve(
        &self,
        port: u16,
        of_others: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static,
        to_scripts: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static,
    ) {
        let calls = Arc::clone(&self.calls);
        self.fake.serve(&format!("h:{port}"), move |words| match words[0].as_str() {
            "CLIENT" | "EXISTS" => Some(Ok(Reply::Other)),
            "EVALSHA" | "EVAL" | "ASKING" | "WAIT" => {
                calls.lock().unwrap().push((port, words[0].clone()));
                to_scripts(words)
            }
            _ => of_others(words),
        });
    }

    /// Closes the topology in the same way as the backend.
    fn close(&self) {
        self.context.close();
        self.servers.disconnect();
    }

    /// Returns the ports of the servers that received scripts.
    fn called(&self) -> Vec<u16> {
        self.calls.lock().unwrap().drain(..).map(|(port, _)| port).collect()
    }

    /// Returns the commands with which the servers received scripts.
    fn commands(&self) -> Vec<String> {
        self.calls.lock().unwrap().drain(..).map(|(_, command)| command).collect()
    }

    fn watch(&self) -> KeyWatch {
        self.news.watch(Subject::Key(&key()))
    }
}

impl Topology<Fake> {
    async fn call(&self, call: &Call) -> Result<Received, Error> {
        Ok(self.run(call, None).await?.received)
    }
}

/// Tokio's time plus the time of suspensions.
#[derive(Clone, Debug)]
struct Skewed {
    clock: TokioClock,
    ahead: Arc<Mutex<Duration>>,
}

impl Skewed {
    fn suspend(&self, time: Duration) {
        *self.ahead.lock().unwrap() += time;
    }
}

impl Clock for Skewed {
    fn now(&self) -> clock::Instant {
        self.clock.now() + *self.ahead.lock().unwrap()
    }

    fn sleep_until(&self, _deadline: clock::Instant) -> Sleep {
        unreachable!("the backend waits on real time only");
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

/// Returns a server that knows a script once it has received the script's source.
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

/// A server that runs a release immediately. The server does not know the script of the second
/// call, and does not reply when that call is retried.
fn first_is_done_and_second_hangs(words: &[String]) -> Option<Received> {
    match words[0].as_str() {
        "EVAL" => None,
        _ if words[1] == Script::Release.hash() => done(),
        _ => refused("NOSCRIPT", "No matching script."),
    }
}

/// Returns a release and a different call.
fn two_calls() -> [Call; 2] {
    [call(), Call::inspect(&Layout::default(), &key())]
}

/// Returns the kind of the error, or the number in the reply.
fn outcome(result: Result<Received, Error>) -> Result<i64, ErrorKind> {
    match result.map_err(|error| error.kind())?.map_err(|refusal| refusal.into_error().kind())? {
        Reply::Int(number) => Ok(number),
        other => panic!("{other:?}"),
    }
}

/// Polls calls that stay in progress until a call is rejected because the queue is full. Returns the
/// error and the calls.
fn fill_queue<'a>(
    store: &'a Store,
    call: &'a Call,
) -> (ErrorKind, Vec<impl Future<Output = Result<Received, Error>>>) {
    let mut calls = Vec::new();
    loop {
        let mut next = Box::pin(store.servers.call(call));
        match (&mut next).now_or_never() {
            Some(refused) => return (refused.unwrap_err().kind(), calls),
            None => calls.push(next),
        }
    }
}

async fn is_told(watch: &mut KeyWatch) -> bool {
    timeout(Duration::from_millis(1), watch.changed()).await.is_ok()
}

#[test]
fn a_majority_is_more_than_half_of_the_primary_and_its_replicas() {
    for (replicas, needed) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3)] {
        assert_eq!(majority(replicas), needed);
    }
}
