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
    /// Acquires a lock of a server that is a member of a quorum.
    AcquireUnderCharter,
    /// Acquires units of a lock.
    AcquireUnits,
    /// Makes the server a member of a quorum.
    Enlist,
    /// Releases and acquires many locks that have neither a queue nor units.
    Exchange,
    /// Ends all leases in force on a key.
    ForceRelease,
    /// Tells the holders of a key.
    Inspect,
    /// Renews a lock that is ours, with a floor under its later tokens.
    RaiseFloor,
    /// Releases a lock that is ours.
    Release,
    /// Releases units that are ours.
    ReleaseUnits,
    /// Renews a lock that is ours.
    Renew,
    /// Renews many locks that have neither a queue nor units.
    RenewAll,
    /// Renews units that are ours.
    RenewUnits,
    /// Asks the holders of a key to finish early.
    Revoke,
    /// Tells how the server stands as a member of a quorum.
    Standing,
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
    pub const ALL: [Self; 16] = [
        Self::Acquire,
        Self::AcquireAll,
        Self::AcquireUnderCharter,
        Self::AcquireUnits,
        Self::Enlist,
        Self::Exchange,
        Self::ForceRelease,
        Self::Inspect,
        Self::RaiseFloor,
        Self::Release,
        Self::ReleaseUnits,
        Self::Renew,
        Self::RenewAll,
        Self::RenewUnits,
        Self::Revoke,
        Self::Standing,
    ];

    /// Its text, the same at every call and for every server.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Acquire => {
                script!("acquire": "time", "token", "crowd", "keep_place", "acquire_alone", "queue", "turn", "wait_turn", "units")
            }
            Self::AcquireAll => script!("acquire_all": "time", "token", "queue", "units"),
            Self::AcquireUnderCharter => {
                script!("acquire": "time", "token", "member", "under_charter", "crowd", "keep_place", "acquire_alone", "queue", "turn", "wait_turn", "units")
            }
            Self::AcquireUnits => {
                script!("acquire_units": "time", "crowd", "keep_place", "acquire_units_near", "token", "queue", "turn", "wait_turn", "units")
            }
            Self::Enlist => script!("enlist": "time", "member", "stand"),
            Self::Exchange => script!("exchange":),
            Self::ForceRelease => {
                script!("force_release": "time", "token", "queue", "turn", "units", "list")
            }
            Self::Inspect => script!("inspect": "time", "news", "units", "list"),
            Self::RaiseFloor => script!("renew": "member", "raise_floor"),
            Self::Release => {
                script!("release": "release_alone", "time", "queue", "turn", "give_way", "hand_over")
            }
            Self::ReleaseUnits => script!("release_units": "time", "queue", "turn"),
            Self::Renew => script!("renew":),
            Self::RenewAll => script!("renew_all":),
            Self::RenewUnits => script!("renew_units": "time", "crowd", "queue", "turn", "units"),
            Self::Revoke => script!("revoke": "time", "crowd", "units"),
            Self::Standing => script!("standing": "time", "member", "stand"),
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
