//! The faults of clients and stores.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use leasehold_conformance::FaultKind;

use crate::workload::KEYS;

/// A fault with its target, start and duration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Incident {
    /// The start, counted from the start of the simulation.
    pub(crate) at: Duration,
    /// The duration. It is zero for a fault that only changes data or a clock.
    pub(crate) lasts: Duration,
    /// The kind of the fault.
    pub(crate) kind: FaultKind,
    /// The part of the simulation that fails.
    pub(crate) target: Target,
}

/// The part of a simulation that a fault affects. Clients and stores have numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    /// A client's process.
    Client(usize),
    /// A store.
    Store(usize),
    /// The network between a client and a store.
    Link {
        /// The client's number.
        client: usize,
        /// The store's number.
        store: usize,
    },
    /// A key of a store.
    Key {
        /// The store's number.
        store: usize,
        /// The key.
        key: &'static str,
    },
    /// All keys of all stores.
    AllKeys,
}

/// The stores of a simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stores {
    pub(crate) count: usize,
    /// Whether the stores are the members of a quorum.
    pub(crate) are_members: bool,
}

impl Stores {
    /// Returns the largest number of members that may fail without the loss of a majority.
    fn minority(self) -> usize {
        (self.count / 2).max(1)
    }
}

impl Incident {
    /// All incidents start within this time, in milliseconds.
    const SPAN: u64 = 12_000;

    /// Draws the incidents of a seed, in the order of their start. In one simulation out of eight, all incidents are stalled keys.
    pub(crate) fn draw(rng: &mut Rng, clients: usize, stores: Stores) -> Vec<Self> {
        let draw_fault = if rng.u8(..8) == 0 { draw_stall } else { draw_fault };
        let draws = 0..rng.usize(..8);
        let mut incidents: Vec<_> =
            draws.map(|_| Self::of(draw_fault(rng, clients, stores), rng)).collect();
        incidents.sort_by_key(|incident| incident.at);
        incidents
    }

    fn of((kind, target): (FaultKind, Target), rng: &mut Rng) -> Self {
        let lasts = if is_a_moment(kind) { 0 } else { rng.u64(10..2_500) };
        // Timers have a resolution of one millisecond.
        let at = Duration::from_millis(rng.u64(..Self::SPAN));
        Self { at, lasts: Duration::from_millis(lasts), kind, target }
    }

    /// Returns whether this incident is a fault of this kind with this target.
    pub(crate) fn is(&self, kind: FaultKind, target: Target) -> bool {
        (self.kind, self.target) == (kind, target)
    }

    /// Returns the end of the incident.
    pub(crate) fn end(&self) -> Duration {
        self.at + self.lasts
    }

    /// Returns whether the incident has started and has not ended yet.
    pub(crate) fn is_on(&self, now: Duration) -> bool {
        self.at <= now && now < self.end()
    }
}

fn draw_fault(rng: &mut Rng, clients: usize, stores: Stores) -> (FaultKind, Target) {
    let (client, store) = (rng.usize(..clients), rng.usize(..stores.count));
    // A quorum guarantees exclusion as long as only a minority fails.
    let member = Target::Store(store % stores.minority());
    let link = Target::Link { client, store };
    let (client, store) = (Target::Client(client), Target::Store(store));
    match rng.u8(..18) {
        14 if stores.are_members => (FaultKind::MemberWiped, member),
        15 if stores.are_members => (FaultKind::MemberClockForward, member),
        0..4 => (FaultKind::ClientStopped, client),
        4..6 => (FaultKind::ClientKilled, client),
        6..9 => (FaultKind::RequestsDropped, link),
        9..12 => (FaultKind::RepliesDropped, link),
        12 => (FaultKind::ServerStopped, store),
        13 => (FaultKind::ServerKilled, store),
        14 => (FaultKind::DataFlushed, store),
        15 => (FaultKind::FailoverCommanded, store),
        16 => draw_stall(rng, clients, stores),
        _ => (FaultKind::LeasesRevoked, Target::AllKeys),
    }
}

fn draw_stall(rng: &mut Rng, _clients: usize, stores: Stores) -> (FaultKind, Target) {
    let store = rng.usize(..stores.count);
    (FaultKind::KeyStalled, Target::Key { store, key: KEYS[rng.usize(..KEYS.len())] })
}

fn is_a_moment(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::DataFlushed
            | FaultKind::FailoverCommanded
            | FaultKind::MemberWiped
            | FaultKind::MemberClockForward
            | FaultKind::LeasesRevoked
    )
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) at {:.3?}", self.kind, self.target, self.at)?;
        if self.lasts.is_zero() { Ok(()) } else { write!(f, " for {:.3?}", self.lasts) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(client) => write!(f, "client {client}"),
            Self::Store(store) => write!(f, "store {store}"),
            Self::Link { client, store } => write!(f, "client {client} and store {store}"),
            Self::Key { store, key } => write!(f, "{key} in store {store}"),
            Self::AllKeys => f.write_str("all keys"),
        }
    }
}
