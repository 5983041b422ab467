//! Tests that a call passes few functions on its way to the client crate, so that a reader can
//! follow the call.
//!
//! This module is part of debug builds only, because backtraces of optimized builds do not say in
//! which line each function was. If you disable debug information for `leasehold-core`, its
//! functions are not counted.

use std::any::type_name;
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use leasehold_core::{Error, LockClient};
use leasehold_redis_support::{
    Access, Address, Backend, ConnectError, Connection, Destination, Driver, Endpoints, Protocol,
    PushHandler, Received, Request, Tls,
};
use leasehold_testbed::{Redis, patiently};

use crate::Native;

/// The directories whose functions are counted.
const COUNTED: [&str; 2] = ["core/src", "redis-support/src"];

/// The maximum number of these functions on the stack of `Mutex::lock`, including the method of the
/// driver that sends. The number is a maximum because the core is optimized, and the optimizer may
/// remove functions from the stack.
const LOCK: usize = 12;

/// The number of these functions from the backend's `acquire`. The number is exact, because the
/// functions of the backend are generic and are compiled with this test. If you remove a function,
/// lower the number.
const ACQUIRE: usize = 5;

/// The number of these functions from the backend's `release`.
const RELEASE: usize = 6;

/// The words before the `fn` of a function. The empty word is the indentation.
const HEAD: [&str; 4] = ["", "pub", "const", "async"];

thread_local! {
    /// The functions that were on the stack when a driver sent a single script, outermost first.
    /// `None` until stacks are recorded.
    static STACKS: RefCell<Option<Vec<Vec<String>>>> = const { RefCell::new(None) };
}

#[tokio::test]
async fn an_uncontended_lock_passes_few_functions_on_its_way_to_the_server() {
    let redis = Redis::start().await;
    let backend = Backend::<Traced<Native>>::connect(&patiently(&redis.url())).await.unwrap();
    let mutex = LockClient::new(backend).mutex("job").unwrap();
    // The first requests load the scripts into the server.
    mutex.lock().await.unwrap().release().await.unwrap();
    STACKS.set(Some(Vec::new()));

    mutex.lock().await.unwrap().release().await.unwrap();

    let stacks = STACKS.take().unwrap();
    assert!(
        stacks.iter().flatten().any(|function| function.contains(" at redis-support/src/")),
        "backtraces do not contain source lines; build with debug = \"line-tables-only\""
    );
    let (lock, acquire) = only_one_below("acquire at redis-support/src/backend.rs:", &stacks);
    let (_, release) = only_one_below("release at redis-support/src/backend.rs:", &stacks);
    assert!(lock.len() <= LOCK, "more than {LOCK} functions: {lock:#?}");
    assert_eq!(acquire.len(), ACQUIRE, "{acquire:#?}");
    assert_eq!(release.len(), RELEASE, "{release:#?}");
}

/// Returns the functions on the stack below which `function` sent a request, and those from
/// `function` on. There must be exactly one such stack.
fn only_one_below<'a>(function: &str, stacks: &'a [Vec<String>]) -> (&'a [String], &'a [String]) {
    let below = stacks.iter().filter_map(|stack| {
        let first = stack.iter().position(|passed| passed.starts_with(function))?;
        Some((&stack[..], &stack[first..]))
    });
    let below: Vec<_> = below.collect();
    let [only] = below[..] else { panic!("not one request below {function}: {stacks:#?}") };
    only
}

/// Returns the distinct [counted](COUNTED) functions in a backtrace, outermost first. The last
/// function is the method of the driver that a [`TracedConnection`] replaces.
fn functions<C>(backtrace: &Backtrace) -> Vec<String> {
    let mut functions = vec![format!("{}::send", type_name::<C>())];
    for line in backtrace.to_string().lines() {
        let place = line.trim_start().strip_prefix("at ").and_then(function_at);
        functions.extend(place.filter(|function| !functions.contains(function)));
    }
    functions.reverse();
    functions
}

/// Returns the function that contains a line of a [counted](COUNTED) directory, such as
/// `run at redis-support/src/node.rs:76`.
///
/// Line tables do not name the function that contains a closure or an async block, so the name
/// comes from the source.
fn function_at(place: &str) -> Option<String> {
    let mut parts = place.rsplitn(3, ':');
    let (_column, line, path) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.canonicalize().ok()?;
    let path = env::current_dir().ok()?.join(path).canonicalize().ok()?;
    let path = path.strip_prefix(&root).ok()?;
    if !COUNTED.iter().any(|directory| path.starts_with(directory)) {
        return None;
    }
    let source = fs::read_to_string(root.join(path)).ok()?;
    let lines = source.lines().take(line).zip(1_usize..).collect::<Vec<_>>();
    let (name, line) = lines.into_iter().rev().find_map(|(text, line)| {
        let (before, after) = text.split_once("fn ")?;
        let is_head =
            before.split(' ').all(|word| HEAD.contains(&word) || word.starts_with("pub("));
        is_head.then_some((after.split(['(', '<']).next()?, line))
    })?;
    Some(format!("{name} at {}:{line}", path.display()))
}

/// A driver that records the functions on the stack whenever a connection of `D` sends.
#[derive(Clone, Debug)]
struct Traced<D>(D);

impl<D: Driver> Driver for Traced<D> {
    const NAME: &'static str = D::NAME;

    type Native = D::Native;
    type Connection = TracedConnection<D::Connection>;

    fn new(tls: Option<Tls>) -> Result<Self, Error> {
        D::new(tls).map(Self)
    }

    fn adopt(native: D::Native) -> Result<(Self, Endpoints, Access), Error> {
        let (driver, endpoints, access) = D::adopt(native)?;
        Ok((Self(driver), endpoints, access))
    }

    fn is_encrypted(&self) -> bool {
        self.0.is_encrypted()
    }

    async fn addresses(&self, address: &Address) -> Result<Vec<Option<SocketAddr>>, Error> {
        self.0.addresses(address).await
    }

    async fn connect(
        &self,
        to: Destination<'_>,
        access: &Access,
        protocol: Protocol,
        listener: PushHandler,
    ) -> Result<Self::Connection, ConnectError> {
        self.0.connect(to, access, protocol, listener).await.map(TracedConnection)
    }
}

#[derive(Clone, Debug)]
struct TracedConnection<C>(C);

impl<C: Connection> Connection for TracedConnection<C> {
    async fn send(&self, requests: Vec<Request<'_>>) -> Result<Vec<Received>, Error> {
        STACKS.with_borrow_mut(|stacks| {
            if let (Some(stacks), [Request::ByHash(_)]) = (stacks, &requests[..]) {
                stacks.push(functions::<C>(&Backtrace::force_capture()));
            }
        });
        self.0.send(requests).await
    }

    async fn subscribe(&self, channel: &str) -> Result<(), Error> {
        self.0.subscribe(channel).await
    }
}
