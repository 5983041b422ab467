//! One server: runs scripts on it, over one line that all calls share and more lines for calls that wait for replicas.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::address::Address;
use crate::call::Call;
use crate::client::{Access, Client, Received, Request};
use crate::error::ServerError;
use crate::group::Group;
use crate::line::{Line, Role};
use crate::shared::Shared;

/// How many calls may wait for replicas at a time.
const MAX_LANES: usize = 16;

/// A server that has locks.
pub(crate) struct Server<C: Client> {
    line: Arc<Line<C>>,
    group: Arc<Group<C>>,
    shared: Arc<Shared<C>>,
    lanes: Lanes<C>,
}

/// More lines to the same server, each for one call at a time.
struct Lanes<C: Client> {
    permits: Semaphore,
    idle: Mutex<Vec<Arc<Line<C>>>>,
}

impl<C: Client> Lanes<C> {
    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Line<C>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Client> Server<C> {
    pub(crate) fn new(address: Address, access: Access, shared: &Arc<Shared<C>>) -> Arc<Self> {
        let line = Line::new(address, access, Role::Store, shared);
        Arc::new(Self {
            group: Group::new(&line),
            line,
            shared: Arc::clone(shared),
            lanes: Lanes { permits: Semaphore::new(MAX_LANES), idle: Mutex::default() },
        })
    }

    pub(crate) fn address(&self) -> &Address {
        self.line.address()
    }

    /// Connects, if that is needed.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.line.connect().await
    }

    /// Ends all connections. The next call makes another.
    pub(crate) fn disconnect(&self) {
        self.line.disconnect();
        let idle = mem::take(&mut *self.lanes.idle());
        // Not locked any more: what ends with a connection may wake others.
        drop(idle);
    }

    /// Sends one command.
    pub(crate) async fn command(&self, words: &[&str]) -> Result<Received, Error> {
        self.line.command(words).await
    }

    /// Runs one script, in one round trip with those of other callers.
    pub(crate) async fn call(&self, call: &Call) -> Result<Received, Error> {
        self.group.run(call).await
    }

    /// Runs many scripts in one round trip.
    pub(crate) async fn call_all(&self, calls: &[&Call]) -> Result<Vec<Received>, Error> {
        call_all(&self.line, calls).await
    }

    /// Runs one script for a key that is on its way to this server.
    pub(crate) async fn call_asking(&self, call: &Call) -> Result<Received, Error> {
        let group = [Request::Words(&["ASKING"]), Request::ByHash(call)];
        let [asking, received] = run(&self.line, &[group], Duration::ZERO).await.map(only)?;
        Ok(asking.and(received))
    }

    /// Runs one script, and then `wait`, a command that the server answers when replicas have got as far, or when its `time` is
    /// up.
    ///
    /// Until then the server does nothing else for a connection, so this has one to itself.
    pub(crate) async fn call_and_wait(
        &self,
        call: &Call,
        wait: &[&str],
        time: Duration,
    ) -> Result<(Received, Received), Error> {
        let permit = timeout(self.shared.timeout, self.lanes.permits.acquire()).await;
        let _permit = permit.map_err(|_elapsed| self.shared.no_connection())?;
        let lane = self.lanes.idle().pop();
        let lane = lane.unwrap_or_else(|| self.line.another());
        let mut used = UsedLane { server: self, lane: Some(lane) };
        let lane = used.lane.as_ref().expect("it was put there");
        let group = [Request::ByHash(call), Request::Words(wait)];
        let answer = run(lane, &[group], time).await;
        if let Some(lane) = used.lane.take() {
            self.put_back(lane);
        }
        answer.map(only).map(Into::into)
    }

    /// Keeps a lane for the next call, unless the backend was closed while it was in use.
    fn put_back(&self, lane: Arc<Line<C>>) {
        let mut idle = self.lanes.idle();
        // With the lanes locked: whoever closes the backend says so first, and then takes out what is kept here.
        if self.shared.ensure_open().is_ok() {
            idle.push(lane);
        }
    }
}

impl<C: Client> fmt::Debug for Server<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line.fmt(f)
    }
}

/// A lane in use. If that is cut off, its connection ends, since the server may be busy with it for a while.
struct UsedLane<'a, C: Client> {
    server: &'a Server<C>,
    lane: Option<Arc<Line<C>>>,
}

impl<C: Client> Drop for UsedLane<'_, C> {
    fn drop(&mut self) {
        if self.lane.is_some() {
            // So does the news of what was asked for on it.
            self.server.shared.news.interrupted();
        }
    }
}

/// Runs many scripts in one round trip.
pub(crate) async fn call_all<C: Client>(
    line: &Arc<Line<C>>,
    calls: &[&Call],
) -> Result<Vec<Received>, Error> {
    let groups: Vec<_> = calls.iter().map(|call| [Request::ByHash(call)]).collect();
    let replies = run(line, &groups, Duration::ZERO).await?;
    Ok(replies.into_iter().flatten().collect())
}

/// What failed a whole batch failed each of its parts.
pub(crate) fn spread(
    replies: Result<Vec<Received>, Error>,
    count: usize,
) -> Vec<Result<Received, Error>> {
    match replies {
        Ok(replies) => replies.into_iter().map(Ok).collect(),
        Err(error) => (0..count).map(|_| Err(error.repeated())).collect(),
    }
}

/// Sends groups of requests in one round trip; in two, if the server does not know a script.
async fn run<C: Client, const N: usize>(
    line: &Arc<Line<C>>,
    groups: &[[Request<'_>; N]],
    more_time: Duration,
) -> Result<Vec<[Received; N]>, Error> {
    let mut replies = exchange(line, groups, more_time).await?;
    let is_unknown = |reply: &Received| reply.as_ref().is_err_and(ServerError::is_no_script);
    let unknown: Vec<usize> =
        (0..groups.len()).filter(|index| replies[*index].iter().any(is_unknown)).collect();
    if unknown.is_empty() {
        return Ok(replies);
    }
    let mut again: Vec<_> = unknown.iter().map(|index| groups[*index]).collect();
    bring_sources(again.as_flattened_mut());
    for (index, reply) in unknown.into_iter().zip(exchange(line, &again, more_time).await?) {
        replies[index] = reply;
    }
    Ok(replies)
}

/// The first request for each script brings its source along, the others find it there.
fn bring_sources(requests: &mut [Request<'_>]) {
    let mut known = Vec::new();
    for request in requests {
        if let Request::ByHash(call) = *request
            && !known.contains(&call.script())
        {
            known.push(call.script());
            *request = Request::BySource(call);
        }
    }
}

async fn exchange<C: Client, const N: usize>(
    line: &Arc<Line<C>>,
    groups: &[[Request<'_>; N]],
    more_time: Duration,
) -> Result<Vec<[Received; N]>, Error> {
    let mut replies = line.exchange(groups.as_flattened().to_vec(), more_time).await?.into_iter();
    let mut next = || replies.next().expect("as many replies come as requests were sent");
    Ok(groups.iter().map(|_group| std::array::from_fn(|_| next())).collect())
}

/// What is there once for each of what was sent, of which there was one.
fn only<T>(mut replies: Vec<T>) -> T {
    replies.pop().expect("one was sent")
}
