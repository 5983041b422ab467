//! The scripts.

/// A Lua script that the server runs as one atomic step.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Script {
    /// Acquires a lock.
    Acquire,
    /// Ends whatever lock lies under a key.
    ForceRelease,
    /// Tells what lies under a key.
    Inspect,
    /// Releases a lock that is ours.
    Release,
    /// Renews a lock that is ours.
    Renew,
}

impl Script {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Acquire, Self::ForceRelease, Self::Inspect, Self::Release, Self::Renew];

    /// Its text, the same at every call and for every server.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Acquire => include_str!("scripts/acquire.lua"),
            Self::ForceRelease => include_str!("scripts/force_release.lua"),
            Self::Inspect => include_str!("scripts/inspect.lua"),
            Self::Release => include_str!("scripts/release.lua"),
            Self::Renew => include_str!("scripts/renew.lua"),
        }
    }
}
