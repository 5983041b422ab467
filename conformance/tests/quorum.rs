//! Runs the suite in virtual time on quorums of in-memory backends. The quorums have three members, five members, and five members of
//! which two do not respond.

use std::collections::HashMap;
use std::process::ExitCode;

use async_trait::async_trait;
use leasehold_conformance::{Harness, Need, Suites, Time};
use leasehold_core::backend::{Capabilities, StoreAdmin};
use leasehold_core::clock::TokioClock;
use leasehold_core::fault::{Fault, FaultBackend, Faults, Notifications};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{ErrorKind, Holder, LockClient, LockKey};
use leasehold_quorum::Quorum;

/// A member, as a client of it sees it.
type Member = FaultBackend<MemoryBackend>;

/// A server of a member, and the fault that all calls to it suffer once the quorum is founded.
#[derive(Clone, Debug)]
struct Server {
    store: MemoryBackend,
    faults: Faults,
}

impl Server {
    fn new() -> Self {
        let store = MemoryBackend::with_clock(TokioClock::new());
        Self { store, faults: Faults::default() }
    }

    fn die_of(&self, fault: Fault) {
        self.faults.set_lasting(Some(fault));
        self.faults.set_notifications(Notifications::Muted);
    }

    fn member(&self) -> Member {
        FaultBackend::new(self.store.clone()).with_faults(self.faults.clone())
    }
}

const REFUSES: Fault = Fault::Fail(ErrorKind::Unavailable);

fn quorum(servers: &[Server]) -> Quorum<Member> {
    let longest = Capabilities::DEFAULT_MAX_TTL;
    let members = servers.iter().map(Server::member).enumerate();
    let named = members.map(|(number, member)| (number.to_string(), member));
    Quorum::builder(named).max_ttl(longest).clock(TokioClock::new()).build().unwrap()
}

/// The holder whose lease a majority has.
async fn probe(servers: &[Server], key: &LockKey) -> Option<Holder> {
    let mut seen = HashMap::new();
    for server in servers {
        for holder in server.store.inspect(key).await.unwrap().holders() {
            *seen.entry(holder.fingerprint()).or_insert(0) += 1;
            if seen[&holder.fingerprint()] > servers.len() / 2 {
                return Some(holder.clone());
            }
        }
    }
    None
}

/// Declares a harness with one server per element of `$faults`. The faults begin after the quorum was created.
macro_rules! harness {
    ($harness:ident, $name:literal, $faults:expr) => {
        struct $harness(Vec<Server>);

        #[async_trait]
        impl Harness for $harness {
            type Backend = Quorum<Member>;

            const NAME: &str = $name;
            const TIME: Time = Time::Virtual;
            const LACKS: &[Need] = &[Need::Member, Need::Queue, Need::Together, Need::Units];

            async fn start() -> Self {
                let servers = $faults.map(|fault| (Server::new(), fault));
                let founded = servers.each_ref().map(|(server, _)| server.clone());
                let founder = LockClient::new(quorum(&founded));
                drop(founder.mutex("first").unwrap().lock().await.unwrap().release().await);
                for (server, fault) in &servers {
                    fault.iter().for_each(|fault| server.die_of(*fault));
                }
                Self(founded.into())
            }

            async fn connect(&self) -> Quorum<Member> {
                quorum(&self.0)
            }

            async fn probe(&self, key: &LockKey) -> Option<Holder> {
                probe(&self.0, key).await
            }

            async fn advance(&self, _keys: &[LockKey], time: std::time::Duration) {
                tokio::time::advance(time).await;
            }
        }
    };
}

harness!(Three, "quorum of 3", [None::<Fault>; 3]);
harness!(Five, "quorum of 5", [None::<Fault>; 5]);
harness!(
    TwoAreDead,
    "quorum of 5, two dead",
    [Some(Fault::SwallowRequest), None, None, Some(REFUSES), None]
);

fn main() -> ExitCode {
    Suites::new()
        .with::<Three>("of_three")
        .with::<Five>("of_five")
        .with::<TwoAreDead>("two_are_dead")
        .documented_in(include_str!("../../docs/conformance-cases.md"))
        .main()
}
