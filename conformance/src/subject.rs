//! What a case tests.

use std::fmt;

/// What a case tests, for example the client or the store.
///
/// [`Harness::SUBJECTS`](crate::Harness::SUBJECTS) selects cases by their subject.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subject {
    /// The client's queue, retries, renewals and guards. A store only adds latency to cases that
    /// test the client, so these cases run on harnesses in [virtual time](crate::Time::Virtual). To
    /// run them on all harnesses, set the environment variable `LEASEHOLD_CONFORMANCE_ALL`.
    Layers,
    /// The client and its store under load.
    Load,
    /// The network connection between the client and its store.
    Network,
    /// The contract that the store and its backend must fulfil.
    Store,
}

impl Subject {
    /// All subjects.
    pub const ALL: [Self; 4] = [Self::Layers, Self::Load, Self::Network, Self::Store];
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Layers => "layers",
            Self::Load => "load",
            Self::Network => "network",
            Self::Store => "store",
        })
    }
}
