//! Independent servers in memory that die, hang, are slow, and lose their data on command.

use std::time::Duration;

use leasehold_core::backend::{Attempt, Operation, Reply, StoreAdmin};
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::fault::{Fault, FaultBackend, Faults};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Error, ErrorKind, LockClient, LockKey, LockOptions};
use leasehold_quorum::{Quorum, QuorumBuilder};

/// The TTL of most leases.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The longest TTL that the quorums here allow.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(20);

/// A server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) store: MemoryBackend,
    faults: Faults,
}

/// A server, as a client of it sees it.
pub(crate) type Member = FaultBackend<MemoryBackend>;

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Up,
    /// It refuses connections.
    Down,
    /// It answers each request with an error of this kind.
    Fails(ErrorKind),
    /// It answers nothing.
    Silent,
    /// It applies each request so late, and answers at once then.
    Slow(Duration),
}

impl Server {
    fn new() -> Self {
        Self::on_clock(TokioClock::new())
    }

    /// A server without data that reads the time from `clock`.
    pub(crate) fn on_clock(clock: impl Clock) -> Self {
        Self { store: MemoryBackend::with_clock(clock), faults: Faults::default() }
    }

    pub(crate) fn set(&self, state: State) {
        self.faults.set_lasting(match state {
            State::Up => None,
            State::Down => Some(Fault::Fail(ErrorKind::Unavailable)),
            State::Fails(kind) => Some(Fault::Fail(kind)),
            State::Silent => Some(Fault::SwallowRequest),
            State::Slow(delay) => Some(Fault::DelayRequest(delay)),
        });
    }

    /// The next release arrives so late, and its caller gets no answer.
    pub(crate) fn delay_next_release(&self, delay: Duration) {
        self.faults.inject(Operation::Release, Fault::Late(delay), 1);
    }

    /// The server does not announce events of leases before their first renewal.
    pub(crate) fn announce_no_grant(&self) {
        self.faults.on_reply(|_request, reply| {
            Ok(match reply {
                Reply::Attempt(Attempt::Granted(grant)) => {
                    Reply::Attempt(Attempt::Granted(grant.without_news()))
                }
                reply => reply,
            })
        });
    }

    /// The number of calls of `operation`.
    pub(crate) fn calls(&self, operation: Operation) -> usize {
        self.faults.calls(operation)
    }

    fn member(&self) -> Member {
        FaultBackend::new(self.store.clone()).with_faults(self.faults.clone())
    }
}

/// All servers of a quorum.
#[derive(Clone, Debug)]
pub(crate) struct Servers(pub(crate) Vec<Server>);

impl Servers {
    /// Starts so many servers without data.
    pub(crate) fn start(count: usize) -> Self {
        Self((0..count).map(|_| Server::new()).collect())
    }

    /// Starts so many servers and founds a quorum of them.
    pub(crate) async fn found(count: usize) -> Self {
        let servers = Self::start(count);
        lock_once(&servers.client()).await.unwrap();
        servers
    }

    /// The servers, as one more client of them sees them.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        self.0.iter().map(Server::member)
    }

    pub(crate) fn builder(&self) -> QuorumBuilder<Member> {
        let names = ["a", "b", "c", "d", "e"].into_iter();
        Quorum::builder(names.zip(self.members())).max_ttl(MAX_TTL).clock(TokioClock::new())
    }

    pub(crate) fn quorum(&self) -> Quorum<Member> {
        self.builder().build().unwrap()
    }

    /// A new client of the quorum.
    pub(crate) fn client(&self) -> LockClient<Quorum<Member>> {
        client_of(self.quorum())
    }

    /// How many servers have a lease of the key.
    pub(crate) async fn holding(&self, key: &LockKey) -> usize {
        let mut count = 0;
        for server in &self.0 {
            count += usize::from(server.store.inspect(key).await.unwrap().is_held());
        }
        count
    }
}

pub(crate) fn client_of(quorum: Quorum<Member>) -> LockClient<Quorum<Member>> {
    let options = LockOptions::new().ttl(TTL).outage_wait(Duration::ZERO);
    LockClient::builder(quorum).clock(TokioClock::new()).options(options).build().unwrap()
}

pub(crate) fn key() -> LockKey {
    LockKey::new("k").unwrap()
}

/// Locks and releases, and tells the token.
pub(crate) async fn lock_once(client: &LockClient<Quorum<Member>>) -> Result<u64, Error> {
    let guard = client.mutex(key())?.lock().await?;
    let token = guard.token().number();
    guard.release().await?;
    Ok(token)
}
