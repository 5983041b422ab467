//! The faults that befall clients and store.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

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

/// A fault of a client, of its link to the store, or of the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The client's process ends. Nothing of it leaves any more, and a new process takes its place when the incident is over.
    Crash {
        /// The client's number.
        client: usize,
    },
    /// The client's process does not run, while its clock goes on. Its messages leave, and replies reach it, when it runs again.
    Pause {
        /// The client's number.
        client: usize,
    },
    /// Requests of the client do not arrive.
    CutRequests {
        /// The client's number.
        client: usize,
    },
    /// Replies and news do not reach the client.
    CutReplies {
        /// The client's number.
        client: usize,
    },
    /// The store applies nothing. It applies requests that have arrived when the incident is over.
    Freeze,
    /// The store refuses connections, and keeps its data.
    Restart,
    /// The store loses all leases and places at once. It keeps its counter of tokens.
    Wipe,
    /// A replica takes over at once, without the writes of the last moments. Tokens go on above all earlier ones.
    Failover,
    /// An operator ends all leases of all keys at once.
    ForcedRelease,
}

impl Incident {
    /// Incidents begin within this time.
    pub(crate) const SPAN: Duration = Duration::from_secs(12);

    /// The incidents of a seed, in the order in which they begin.
    pub(crate) fn draw(rng: &mut Rng, clients: usize) -> Vec<Self> {
        let mut incidents: Vec<_> = (0..rng.usize(..8)).map(|_| Self::one(rng, clients)).collect();
        incidents.sort_by_key(|incident| incident.at);
        incidents
    }

    fn one(rng: &mut Rng, clients: usize) -> Self {
        let client = rng.usize(..clients);
        let fault = match rng.u8(..16) {
            0..3 => Fault::Pause { client },
            3..5 => Fault::Crash { client },
            5..8 => Fault::CutRequests { client },
            8..11 => Fault::CutReplies { client },
            11 => Fault::Freeze,
            12 => Fault::Restart,
            13 => Fault::Wipe,
            14 => Fault::Failover,
            _ => Fault::ForcedRelease,
        };
        let lasts = match fault {
            Fault::Wipe | Fault::Failover | Fault::ForcedRelease => Duration::ZERO,
            _ => Duration::from_millis(rng.u64(10..2_500)),
        };
        let at = Duration::from_micros(rng.u64(..micros(Self::SPAN)));
        Self { at, lasts, fault }
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

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a simulation is short")
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:.3?}", self.fault, self.at)?;
        if self.lasts.is_zero() { Ok(()) } else { write!(f, " for {:.3?}", self.lasts) }
    }
}
