//! The kinds of faults that the project's tests cause.

use std::fmt::{self, Display, Formatter};

#[cfg(feature = "history")]
use serde::{Deserialize, Serialize};

/// Defines [`FaultKind`], so that each name occurs only once.
macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident = $name:tt,)+) => {
        /// A kind of fault of clients, of the network or of servers.
        ///
        /// The suite, the checker of recorded histories, the fault campaign and the simulation use
        /// these kinds and their names. The target and the duration of a fault are not part of its
        /// kind. The list grows over time.
        ///
        /// ```
        /// use leasehold_conformance::FaultKind;
        ///
        /// assert_eq!(FaultKind::ServerStopped.to_string(), "server-stopped");
        /// ```
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[cfg_attr(feature = "history", derive(Deserialize, Serialize))]
        #[non_exhaustive]
        pub enum FaultKind {
            $($(#[$doc])+ #[cfg_attr(feature = "history", serde(rename = $name))] $kind,)+
        }

        impl FaultKind {
            /// Returns the name of the kind in kebab case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    // Clients.
    /// A client process is paused. Its clock and its leases continue.
    ClientStopped = "client-stopped",
    /// A client process is killed, and a new process replaces the killed process.
    ClientKilled = "client-killed",
    /// All client processes are paused at the same time.
    ClientsStopped = "clients-stopped",
    /// Other programs use all processors of the machine.
    ProcessorsBusy = "processors-busy",
    // Packets.
    /// All packets between a client and the servers are lost.
    ClientPartitioned = "client-partitioned",
    /// The packets from a client to a server are lost.
    RequestsDropped = "requests-dropped",
    /// The packets from a server to a client are lost, including notifications.
    RepliesDropped = "replies-dropped",
    /// Some of the packets between clients and servers are lost.
    PacketsLost = "packets-lost",
    /// A client's connections are reset, and its new connections are refused.
    ConnectionsRefused = "connections-refused",
    /// All packets between the leader and its followers are lost.
    LeaderIsolated = "leader-isolated",
    /// The packets from the followers to the leader are lost.
    LeaderDeaf = "leader-deaf",
    /// The packets from the leader to its followers are lost.
    LeaderMute = "leader-mute",
    // Connections.
    /// All traffic between clients and servers is delayed.
    NetworkSlow = "network-slow",
    /// Messages between clients and servers are lost, delayed, repeated and refused at random.
    NetworkDisturbed = "network-disturbed",
    /// All traffic between clients and servers is dropped, but connections stay open.
    NetworkSilent = "network-silent",
    /// Servers apply requests, but no client receives a reply.
    RepliesLost = "replies-lost",
    /// All connections are reset, including new connections, until the fault ends.
    ConnectionsReset = "connections-reset",
    /// All connections are closed. New connections can be opened immediately.
    ConnectionsKilled = "connections-killed",
    // Servers.
    /// The server is paused. After the pause, the server applies the requests that have arrived.
    ServerStopped = "server-stopped",
    /// The server is killed and restarted. The data on its disk remains.
    ServerKilled = "server-killed",
    /// The server shuts down in the normal way and restarts.
    ServerTerminated = "server-terminated",
    /// The server delays all requests for one key.
    KeyStalled = "key-stalled",
    /// The server discards all cached scripts.
    ScriptsFlushed = "scripts-flushed",
    /// The server delays commands (`CLIENT PAUSE`).
    CommandsPaused = "commands-paused",
    /// The server executes a single long command (`DEBUG SLEEP`).
    ServerAsleep = "server-asleep",
    /// The server rejects writes because its memory limit is reached.
    MemoryFull = "memory-full",
    /// The clients' user loses all permissions.
    RightsRemoved = "rights-removed",
    /// The server rejects writes because it cannot save a snapshot.
    SnapshotFailed = "snapshot-failed",
    /// The server's clock steps forward.
    ClockForward = "clock-forward",
    /// The server's clock steps back.
    ClockBack = "clock-back",
    /// The server loses all keys, and keeps running.
    DataFlushed = "data-flushed",
    /// The server stops, loses all data, and starts again.
    DataWiped = "data-wiped",
    /// An operator locks the tables in the database.
    TablesLocked = "tables-locked",
    /// The store rejects writes.
    ReadOnly = "read-only",
    /// The disk of the server, or of the file, is full.
    DiskFull = "disk-full",
    /// Another process locks the database file.
    FileLocked = "file-locked",
    /// The database file is deleted while clients use it.
    FileRemoved = "file-removed",
    // Servers with replicas.
    /// An operator orders a failover, and a replica becomes the primary.
    FailoverCommanded = "failover-commanded",
    /// A replica becomes the primary without the consent of the old primary.
    FailoverForced = "failover-forced",
    /// The primary is killed, and a replica becomes the primary.
    PrimaryKilled = "primary-killed",
    /// The primary is paused, and a replica becomes the primary in the meantime.
    PrimaryStopped = "primary-stopped",
    /// The primary cannot reach any other server or client.
    PrimaryIsolated = "primary-isolated",
    /// The primary cannot reach any other server, but some clients reach the primary.
    PrimaryIsolatedWithClients = "primary-isolated-with-clients",
    /// The primary stops waiting for its replica to acknowledge commits, and then fails.
    WaitsCancelled = "waits-cancelled",
    /// A replica is killed and restarted.
    ReplicaKilled = "replica-killed",
    /// A replica is paused.
    ReplicaStopped = "replica-stopped",
    /// A Redis Sentinel is killed and restarted.
    SentinelKilled = "sentinel-killed",
    /// A Redis Sentinel is paused.
    SentinelStopped = "sentinel-stopped",
    /// A hash slot moves to another primary of a Redis Cluster.
    SlotMigrated = "slot-migrated",
    // Members of a quorum.
    /// A member of a quorum is killed and restarted.
    MemberKilled = "member-killed",
    /// A member of a quorum is paused.
    MemberStopped = "member-stopped",
    /// Several members of a quorum, but not a majority, are killed and restarted.
    MembersKilled = "members-killed",
    /// Several members of a quorum, but not a majority, are paused.
    MembersStopped = "members-stopped",
    /// A majority of a quorum's members is paused.
    MajorityStopped = "majority-stopped",
    /// A member of a quorum loses all data, including its tokens and its identity.
    MemberWiped = "member-wiped",
    /// The clock of a member of a quorum steps forward.
    MemberClockForward = "member-clock-forward",
    /// The clock of a member of a quorum steps back.
    MemberClockBack = "member-clock-back",
    // Servers that elect a leader.
    /// The leader is killed and restarted.
    LeaderKilled = "leader-killed",
    /// The leader is paused.
    LeaderStopped = "leader-stopped",
    /// A follower is killed and restarted.
    FollowerKilled = "follower-killed",
    /// A follower is paused.
    FollowerStopped = "follower-stopped",
    /// All servers are restarted one after another.
    RollingRestart = "rolling-restart",
    /// All servers are paused at the same time.
    AllStopped = "all-stopped",
    /// An operator moves the leadership to another server.
    LeaderMoved = "leader-moved",
    /// An operator removes the history of all keys.
    HistoryCompacted = "history-compacted",
    /// The leader's disk does not complete any write.
    DiskStalled = "disk-stalled",
    /// The servers reject writes because the database has reached its size limit.
    QuotaUsedUp = "quota-used-up",
    // Operators.
    /// An operator releases or revokes leases that clients hold.
    LeasesRevoked = "leases-revoked",
}

impl Display for FaultKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
