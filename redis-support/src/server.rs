//! One server: runs scripts on it, over one line that all calls share and more lines for calls that wait for replicas.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::address::Address;
use crate::call::Call;
use crate::client::{Access, Client, Received, Request};
use crate::error::ServerError;
use crate::line::{Line, Role};
use crate::shared::Shared;

/// How many calls may wait for replicas at a time.
const MAX_LANES: usize = 16;

/// A server that has locks.
pub(crate) struct Server<C: Client> {
    line: Arc<Line<C>>,
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
        Arc::new(Self {
            line: Line::new(address, access, Role::Store, shared),
            shared: Arc::clone(shared),
            lanes: Lanes { permits: Semaphore::new(MAX_LANES), idle: Mutex::default() },
        })
    }

    pub(crate) fn address(&self) -> &Address {
        self.line.address()
    }

    /// Connects, if that is needed.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        self.line.current().await.map(drop)
    }

    /// Ends all connections. The next call makes another.
    pub(crate) fn disconnect(&self) {
        self.line.disconnect();
        self.lanes.idle().clear();
    }

    /// Sends one command.
    pub(crate) async fn command(&self, words: &[&str]) -> Result<Received, Error> {
        self.line.command(words).await
    }

    /// Runs one script.
    pub(crate) async fn call(&self, call: &Call) -> Result<Received, Error> {
        let current = self.line.current().await?;
        let received = self.line.exchange(&current, Request::ByHash(call)).await?;
        match received {
            Err(error) if error.is_no_script() => {
                self.line.exchange(&current, Request::BySource(call)).await
            }
            received => Ok(received),
        }
    }

    /// Runs many scripts in one round trip; in two, if the server does not know them.
    pub(crate) async fn call_all(&self, calls: &[&Call]) -> Result<Vec<Received>, Error> {
        let current = self.line.current().await?;
        let by_hash = calls.iter().map(|call| Request::ByHash(call)).collect();
        let mut received = self.line.exchange_all(&current, by_hash, Duration::ZERO).await?;
        let is_unknown = |reply: &Received| reply.as_ref().is_err_and(ServerError::is_no_script);
        let unknown: Vec<usize> =
            (0..calls.len()).filter(|index| is_unknown(&received[*index])).collect();
        if unknown.is_empty() {
            return Ok(received);
        }
        // The first call of each brings its source along, the others find it there.
        let mut known = Vec::new();
        let again = unknown.iter().map(|index| {
            let call = calls[*index];
            if known.contains(&call.script()) {
                return Request::ByHash(call);
            }
            known.push(call.script());
            Request::BySource(call)
        });
        let again = again.collect();
        let replies = self.line.exchange_all(&current, again, Duration::ZERO).await?;
        for (index, reply) in unknown.into_iter().zip(replies) {
            received[index] = reply;
        }
        Ok(received)
    }

    /// Runs one script for a key that is on its way to this server.
    pub(crate) async fn call_asking(&self, call: &Call) -> Result<Received, Error> {
        let current = self.line.current().await?;
        let asking = Request::Words(&["ASKING"]);
        for request in [Request::ByHash(call), Request::BySource(call)] {
            let replies = self.line.exchange_all(&current, vec![asking, request], Duration::ZERO);
            match pair(replies.await?)? {
                (Err(refusal), _) => return Ok(Err(refusal)),
                (Ok(_), Err(error)) if error.is_no_script() => {}
                (Ok(_), received) => return Ok(received),
            }
        }
        let message = "the server forgets scripts as soon as it has been told them";
        Err(Error::new(ErrorKind::Unavailable, message))
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
        let answer = Self::exchange_and_wait(lane, call, wait, time).await;
        self.lanes.idle().extend(used.lane.take());
        answer
    }

    async fn exchange_and_wait(
        line: &Arc<Line<C>>,
        call: &Call,
        wait: &[&str],
        time: Duration,
    ) -> Result<(Received, Received), Error> {
        let current = line.current().await?;
        let wait = Request::Words(wait);
        let requests = vec![Request::ByHash(call), wait];
        let (received, waited) = pair(line.exchange_all(&current, requests, time).await?)?;
        match received {
            Err(error) if error.is_no_script() => {
                let requests = vec![Request::BySource(call), wait];
                pair(line.exchange_all(&current, requests, time).await?)
            }
            received => Ok((received, waited)),
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

fn pair(replies: Vec<Received>) -> Result<(Received, Received), Error> {
    let replies: Result<[Received; 2], _> = replies.try_into();
    replies.map(Into::into).map_err(|_replies| incomplete())
}

/// As many replies as requests are what the protocol promises.
fn incomplete() -> Error {
    Error::new(ErrorKind::Unexpected, "replies are missing, outcome unknown")
}
