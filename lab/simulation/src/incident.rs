//! The faults that befall clients and stores.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::workload::KEYS;

/// A fault, from a moment on, for a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Incident {
    /// When it begins, counted from the start of the simulation.
    pub at: Duration,
    /// How long it lasts. A fault that is a moment only lasts for nothing.
    pub lasts: Duration,
    /// The fault.
    pub fault: Fault,
}

/// A fault of a client, of its link to a store, or of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The client's process ends. Nothing of it leaves any more, and a new process takes its place when the incident is over.
    Crash {
        /// The client's number.
        client: usize,
    },
    /// The client's process does not run, but its clock continues. Replies and notifications are delivered after the pause.
    Pause {
        /// The client's number.
        client: usize,
    },
    /// Requests of the client do not arrive.
    CutRequests {
        /// The client's number.
        client: usize,
        /// The store's number.
        store: usize,
    },
    /// Replies and notifications do not reach the client.
    CutReplies {
        /// The client's number.
        client: usize,
        /// The store's number.
        store: usize,
    },
    /// The store applies nothing. It applies requests that have arrived when the incident is over.
    Freeze {
        /// The store's number.
        store: usize,
    },
    /// The store applies nothing that concerns one key, and later all of that.
    Stall {
        /// The store's number.
        store: usize,
        /// The key.
        key: &'static str,
    },
    /// The store refuses connections, and keeps its data.
    Restart {
        /// The store's number.
        store: usize,
    },
    /// The store loses all leases and places at once. It keeps its counter of tokens.
    Wipe {
        /// The store's number.
        store: usize,
    },
    /// A replica takes over immediately, without the last writes. New tokens are larger than all earlier tokens.
    Failover {
        /// The store's number.
        store: usize,
    },
    /// A member of a quorum loses everything at once, also its tokens and its identity.
    Loss {
        /// The store's number.
        store: usize,
    },
    /// The clock of a member of a quorum is set forward, by more than most leases last.
    ClockStep {
        /// The store's number.
        store: usize,
    },
    /// An operator ends all leases of all keys in all stores at once.
    ForcedRelease,
}

/// The stores of a simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stores {
    pub(crate) count: usize,
    /// They are members of a quorum, and fail as such.
    pub(crate) are_members: bool,
}

impl Stores {
    /// The largest number of members without which a majority is left.
    fn minority(self) -> usize {
        (self.count / 2).max(1)
    }
}

impl Incident {
    /// Incidents begin within this time, in milliseconds.
    const SPAN: u64 = 12_000;

    /// The incidents of a seed, in the order in which they begin. In some simulations, keys that stall are the only ones.
    pub(crate) fn draw(rng: &mut Rng, clients: usize, stores: Stores) -> Vec<Self> {
        let draw_fault = if rng.u8(..8) == 0 { Fault::draw_stall } else { Fault::draw };
        let draws = 0..rng.usize(..8);
        let mut incidents: Vec<_> =
            draws.map(|_| Self::of(draw_fault(rng, clients, stores), rng)).collect();
        incidents.sort_by_key(|incident| incident.at);
        incidents
    }

    fn of(fault: Fault, rng: &mut Rng) -> Self {
        let lasts = if fault.is_a_moment() { 0 } else { rng.u64(10..2_500) };
        // In whole milliseconds, as timers are.
        let at = Duration::from_millis(rng.u64(..Self::SPAN));
        Self { at, lasts: Duration::from_millis(lasts), fault }
    }

    /// When it is over.
    pub(crate) fn end(&self) -> Duration {
        self.at + self.lasts
    }

    /// Whether it is going on.
    pub(crate) fn is_on(&self, now: Duration) -> bool {
        self.at <= now && now < self.end()
    }
}

impl Fault {
    fn draw(rng: &mut Rng, clients: usize, stores: Stores) -> Self {
        let (client, store) = (rng.usize(..clients), rng.usize(..stores.count));
        match rng.u8(..18) {
            // The promises of a quorum allow for a minority that fails.
            14 if stores.are_members => Self::Loss { store: store % stores.minority() },
            15 if stores.are_members => Self::ClockStep { store: store % stores.minority() },
            0..4 => Self::Pause { client },
            4..6 => Self::Crash { client },
            6..9 => Self::CutRequests { client, store },
            9..12 => Self::CutReplies { client, store },
            12 => Self::Freeze { store },
            13 => Self::Restart { store },
            14 => Self::Wipe { store },
            15 => Self::Failover { store },
            16 => Self::draw_stall(rng, clients, stores),
            _ => Self::ForcedRelease,
        }
    }

    fn draw_stall(rng: &mut Rng, _clients: usize, stores: Stores) -> Self {
        Self::Stall { store: rng.usize(..stores.count), key: KEYS[rng.usize(..KEYS.len())] }
    }

    /// The name of the fault.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crash { .. } => "client-killed",
            Self::Pause { .. } => "client-stopped",
            Self::CutRequests { .. } => "requests-dropped",
            Self::CutReplies { .. } => "replies-dropped",
            Self::Freeze { .. } => "server-stopped",
            Self::Stall { .. } => "key-stalled",
            Self::Restart { .. } => "server-restarted",
            Self::Wipe { .. } => "data-flushed",
            Self::Failover { .. } => "failover-commanded",
            Self::Loss { .. } => "member-wiped",
            Self::ClockStep { .. } => "member-clock-forward",
            Self::ForcedRelease => "forced-release",
        }
    }

    fn is_a_moment(self) -> bool {
        matches!(
            self,
            Self::Wipe { .. }
                | Self::Failover { .. }
                | Self::Loss { .. }
                | Self::ClockStep { .. }
                | Self::ForcedRelease
        )
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:.3?}", self.fault, self.at)?;
        if self.lasts.is_zero() { Ok(()) } else { write!(f, " for {:.3?}", self.lasts) }
    }
}
