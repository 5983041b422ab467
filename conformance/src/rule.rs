//! The rules for the history of a lock.

use std::fmt::{self, Display, Formatter};

#[cfg(feature = "history")]
use serde::{Deserialize, Serialize};

/// A rule for the history of a lock.
///
/// The checker of recorded histories, the fault campaign and the simulation report violations of
/// these rules by name.
///
/// ```
/// use leasehold_conformance::Rule;
///
/// assert_eq!(Rule::TokenOrder.to_string(), "token-order");
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "history", derive(Deserialize, Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Rule {
    /// `exclusion`: the callers that consider themselves holders of a key never use more permits
    /// than the key has.
    Exclusion,
    /// `fencing`: a resource that checks fencing tokens never accepts a write after a write from a
    /// later holder, and never rejects a write from the latest holder.
    Fencing,
    /// `token-order`: the tokens of a key increase from each grant to the next, and two
    /// guards that exclude each other have different tokens.
    TokenOrder,
    /// `entry-order`: callers receive the guards of an exclusive lock in the order of the tokens.
    EntryOrder,
    /// `honest-guard`: a guard never reports *held* after *lost* or for longer than
    /// allowed, and work under `run` never continues after a loss.
    HonestGuard,
    /// `bounded-wait`: a call never waits longer than its limit, and does not wait too long for a
    /// key that no caller holds.
    BoundedWait,
    /// `explained-failure`: a call fails, or a lease is lost, only if a fault, an operator
    /// or a limit of the caller explains it.
    ExplainedFailure,
    /// `no-residue`: after the clients' work, every key becomes free within a bounded time, and no
    /// data of the key and no resource of a client remains.
    NoResidue,
    /// `hand-off`: a lease is handed off within a process only if at least half of its TTL
    /// is left and no revocation is requested.
    HandOff,
    /// `sound-run`: no line of a process is missing in the record, no process exits on its own,
    /// and no paused process runs.
    SoundRun,
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusion => "exclusion",
            Self::Fencing => "fencing",
            Self::TokenOrder => "token-order",
            Self::EntryOrder => "entry-order",
            Self::HonestGuard => "honest-guard",
            Self::BoundedWait => "bounded-wait",
            Self::ExplainedFailure => "explained-failure",
            Self::NoResidue => "no-residue",
            Self::HandOff => "hand-off",
            Self::SoundRun => "sound-run",
        })
    }
}
