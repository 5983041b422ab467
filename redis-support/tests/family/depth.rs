//! Tests that a call passes few functions on its way to the client crate, so that a reader can
//! follow the call.
//!
//! This module is part of debug builds only, because optimized builds lack the lines of functions.
//! If you disable debug information for `leasehold-core`, its functions are not counted.

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

/// The maximum number of functions from `Mutex::lock` to the method of the driver that sends.
const LOCK: usize = 12;

/// The maximum number of these functions below the core, from the backend's `acquire`.
const ACQUIRE: usize = 5;

/// The maximum number of functions from the backend's `release` to the method of the driver that
/// sends.
const RELEASE: usize = 6;

/// The words before the `fn` of a function.
const HEAD: [&str; 4] = ["", "pub", "const", "async"];

thread_local! {
    /// The functions that were on the stack when a driver sent a single script, outermost first.
    static STACKS: RefCell<Vec<Vec<String>>> = const { RefCell::new(Vec::new()) };
}

#[tokio::test]
async fn an_uncontended_lock_passes_few_functions_on_its_way_to_the_server() {
    let redis = Redis::start().await;
    let backend = Backend::<Traced<Native>>::connect(&patiently(&redis.url())).await.unwrap();
    let mutex = LockClient::new(backend).mutex("job").unwrap();
    // The first requests load the scripts into the server.
    mutex.lock().await.unwrap().release().await.unwrap();
    STACKS.take();

    mutex.lock().await.unwrap().release().await.unwrap();

    let stacks = STACKS.take();
    let acquire = only_one_below("acquire at redis-support/src/backend.rs:", &stacks);
    assert_few(acquire.0, LOCK);
    assert_few(acquire.1, ACQUIRE);
    assert_few(only_one_below("release at redis-support/src/backend.rs:", &stacks).1, RELEASE);
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

fn assert_few(functions: &[String], most: usize) {
    let count = functions.len();
    assert!(count <= most, "{count} functions instead of {most}:\n{}", functions.join("\n"));
}

/// Returns the distinct functions of Leasehold in a backtrace, outermost first, and then the method
/// of the driver for which a [`TracedConnection`] stands in.
fn functions<C>(backtrace: &Backtrace) -> Vec<String> {
    let mut functions = vec![format!("{}::send", type_name::<C>())];
    for line in backtrace.to_string().lines() {
        let place = line.trim_start().strip_prefix("at ").and_then(function_at);
        functions.extend(place.filter(|function| !functions.contains(function)));
    }
    functions.reverse();
    functions
}

/// Returns the function that contains a line of Leasehold's code, such as
/// `run at redis-support/src/node.rs:76`.
///
/// Line tables do not name the function that contains a closure or an async block, so the name
/// comes from the source.
fn function_at(place: &str) -> Option<String> {
    let mut parts = place.rsplitn(3, ':');
    let (_column, line, path) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let path = env::current_dir().ok()?.join(path);
    let path = path.strip_prefix(root).ok().filter(|path| path.iter().any(|part| part == "src"))?;
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
        if let [Request::ByHash(_)] = &requests[..] {
            let stack = functions::<C>(&Backtrace::force_capture());
            STACKS.with_borrow_mut(|stacks| stacks.push(stack));
        }
        self.0.send(requests).await
    }

    async fn subscribe(&self, channel: &str) -> Result<(), Error> {
        self.0.subscribe(channel).await
    }
}
