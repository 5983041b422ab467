//! The scripts.

use std::sync::LazyLock;

use sha1_smol::Sha1;

/// A Lua script that the server runs as one atomic step.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Script {
    /// Acquires a lock.
    Acquire,
    /// Acquires several locks, or none.
    AcquireAll,
    /// Acquires those of many locks that nobody else is about.
    AcquireMany,
    /// Acquires a lock of a server that is a member of a quorum.
    AcquireUnderCharter,
    /// Acquires units of a lock.
    AcquireUnits,
    /// Makes the server a member of a quorum.
    Enlist,
    /// Ends whatever leases are in force on a key.
    ForceRelease,
    /// Tells who holds a key.
    Inspect,
    /// Renews a lock that is ours, with a floor under its later tokens.
    RaiseFloor,
    /// Releases a lock that is ours.
    Release,
    /// Releases those of many locks that are ours and nobody waits for.
    ReleaseMany,
    /// Releases units that are ours.
    ReleaseUnits,
    /// Renews a lock that is ours.
    Renew,
    /// Renews those of many locks that are ours.
    RenewMany,
    /// Renews units that are ours.
    RenewUnits,
    /// Asks those who hold a key to finish early.
    Revoke,
    /// Tells what the server knows of itself as a member of a quorum.
    Standing,
}

/// The script that does for many calls at once what another one does for one. It does nothing for those where something is in the
/// way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Many {
    pub(crate) script: Script,
    /// How many keys it takes of each call: the first.
    pub(crate) keys: usize,
    /// How many arguments.
    pub(crate) args: usize,
    /// Of how many parts its reply to each is; the first of them is nil where it has done nothing.
    pub(crate) parts: usize,
}

/// The text of a script, after that of the parts which it is made of.
macro_rules! script {
    ($name:literal: $($part:literal),*) => {
        concat!(
            $(include_str!(concat!("scripts/parts/", $part, ".lua")), "\n",)*
            include_str!(concat!("scripts/", $name, ".lua")),
        )
    };
}

impl Script {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Acquire,
        Self::AcquireAll,
        Self::AcquireMany,
        Self::AcquireUnderCharter,
        Self::AcquireUnits,
        Self::Enlist,
        Self::ForceRelease,
        Self::Inspect,
        Self::RaiseFloor,
        Self::Release,
        Self::ReleaseMany,
        Self::ReleaseUnits,
        Self::Renew,
        Self::RenewMany,
        Self::RenewUnits,
        Self::Revoke,
        Self::Standing,
    ];

    /// Its text, the same at every call and for every server.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Acquire => {
                script!("acquire": "time", "token", "keep_place", "acquire_alone", "queue", "turn", "wait_turn", "units")
            }
            Self::AcquireAll => script!("acquire_all": "time", "token", "queue", "units"),
            Self::AcquireMany => script!("acquire_many": "time", "token"),
            Self::AcquireUnderCharter => {
                script!("acquire": "time", "token", "member", "under_charter", "keep_place", "acquire_alone", "queue", "turn", "wait_turn", "units")
            }
            Self::AcquireUnits => {
                script!("acquire_units": "time", "keep_place", "acquire_units_near", "token", "queue", "turn", "wait_turn", "units")
            }
            Self::Enlist => script!("enlist": "time", "member", "stand"),
            Self::ForceRelease => {
                script!("force_release": "time", "token", "queue", "turn", "units", "list")
            }
            Self::Inspect => script!("inspect": "time", "news", "units", "list"),
            Self::RaiseFloor => script!("renew": "member", "raise_floor"),
            Self::Release => {
                script!("release": "release_alone", "time", "queue", "turn", "give_way", "hand_over")
            }
            Self::ReleaseMany => script!("release_many":),
            Self::ReleaseUnits => script!("release_units": "time", "queue", "turn"),
            Self::Renew => script!("renew":),
            Self::RenewMany => script!("renew_many":),
            Self::RenewUnits => script!("renew_units": "time", "queue", "turn", "units"),
            Self::Revoke => script!("revoke": "time", "units"),
            Self::Standing => script!("standing": "time", "member", "stand"),
        }
    }

    /// The script for many such calls, if there is one.
    pub(crate) const fn many(self) -> Option<Many> {
        match self {
            Self::Acquire => Some(Many { script: Self::AcquireMany, keys: 5, args: 3, parts: 2 }),
            Self::Release => Some(Many { script: Self::ReleaseMany, keys: 2, args: 1, parts: 1 }),
            Self::Renew => Some(Many { script: Self::RenewMany, keys: 2, args: 2, parts: 1 }),
            _ => None,
        }
    }

    /// How servers name it: the SHA-1 of its text.
    pub fn hash(self) -> &'static str {
        static HASHES: LazyLock<Vec<String>> = LazyLock::new(|| {
            let hash = |script: &Script| Sha1::from(script.source()).hexdigest();
            Script::ALL.iter().map(hash).collect()
        });

        // In the order in which they are declared.
        &HASHES[self as usize]
    }
}
