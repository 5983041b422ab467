//! The faults that the campaign causes.

use leasehold_conformance::history::fault::Window;
use leasehold_conformance::{FaultKind, Rule};

use crate::class::Class;
use crate::firewall::{Cut, Isolation};

/// A kind of fault, as the campaign causes faults of this kind.
#[derive(Debug)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The classes of stores for which the fault is possible.
    pub classes: &'static [Class],
    /// The part of the system that fails.
    pub part: Part,
    /// The shortest and the longest duration, in tenths of a second.
    pub lasts: (u32, u32),
    /// The period, if any, in which some rules do not apply because of the fault.
    pub window: Option<&'static Window>,
    /// Whether the fault is outside the guarantees, for example the loss of all data.
    pub is_outside: bool,
}

/// A part of the system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The client processes.
    Clients,
    /// The packets between clients and servers, which a firewall drops.
    Packets(Cut),
    /// The packets between the leader and its followers, which a firewall drops.
    Peers(Isolation),
    /// The servers, and the proxies in front of them.
    Servers,
    /// The disk of a file that clients open themselves.
    Disk,
}

impl Part {
    /// Returns whether faults of both parts may be in effect at the same time. If servers cannot reach each other, only clients may fail as well.
    pub fn is_beside(self, other: Self) -> bool {
        match (self, other) {
            (Self::Peers(_), other) | (other, Self::Peers(_)) => other == Self::Clients,
            (Self::Packets(_), Self::Packets(_)) => false,
            // A store causes only one fault at a time.
            (Self::Servers, Self::Disk) | (Self::Disk, Self::Servers) => false,
            _ => self != other,
        }
    }

    fn takes_namespaces(self) -> bool {
        matches!(self, Self::Packets(_) | Self::Peers(_) | Self::Disk)
    }
}

impl Fault {
    /// Returns the faults that are possible for a class of stores. Faults of packets and disks require separate namespaces.
    pub fn fitting(class: Class, has_namespaces: bool) -> Vec<&'static Self> {
        let fits = |fault: &&Self| {
            fault.classes.contains(&class) && (has_namespaces || !fault.part.takes_namespaces())
        };
        CATALOGUE.iter().filter(fits).collect()
    }
}

use Class::{Cluster, Etcd, Mariadb, Postgres, Quorum, Redis, Sentinel, Sqlite, Zookeeper};

const REMOTE: &[Class] = &[Redis, Sentinel, Cluster, Quorum, Etcd, Postgres, Mariadb, Zookeeper];
const ONE_SERVER: &[Class] = &[Redis, Postgres, Mariadb];
const SCRIPTED: &[Class] = &[Redis, Sentinel, Cluster, Quorum];
const FAILING_OVER: &[Class] = &[Sentinel, Cluster];
const DATABASES: &[Class] = &[Postgres, Mariadb];
const COPIED: &[Class] = &[Sentinel, Cluster, Postgres];
const ENSEMBLES: &[Class] = &[Etcd, Zookeeper];

/// If a lease expires early, the store may grant the key again before the first holder has received its own grant. The first holder then
/// enters later, with the smaller token.
const ENTRY: &[Rule] = &[Rule::Exclusion, Rule::EntryOrder];

/// The old primary is killed, paused or unreachable for all clients.
const FAILOVER: Window = Window {
    promise: "failover: two believe together at most for a TTL, less the time until another has taken over",
    rules: &[Rule::Exclusion],
    longest: (1, 0),
    after: (1, 4),
};

/// The old primary and some clients cannot reach the other servers.
const CUT_OFF: Window = Window {
    promise: "failover: the old primary is cut off together with the holder: two believe together at most for a TTL and 2 s",
    rules: &[Rule::Exclusion],
    longest: (1, 4),
    after: (1, 6),
};

/// The server's clock steps forward.
const CLOCK_FORWARD: Window = Window {
    promise: "clock: mutual exclusion holds while the server's clock does not step forward by more than the drift",
    rules: ENTRY,
    longest: (1, 0),
    after: (1, 0),
};

/// The server's clock steps back, so leases expire later.
const CLOCK_BACK: Window = Window {
    promise: "clock: leases end by the server's clock, which has stepped back",
    rules: &[Rule::BoundedWait],
    longest: (60, 60),
    after: (64, 70),
};

/// One member's clock steps forward.
const MEMBER_CLOCK: Window = Window {
    promise: "quorum: one clock steps forward, and the lease has exactly a majority of the members",
    rules: ENTRY,
    longest: (1, 0),
    after: (1, 0),
};

/// The server loses its data.
const DATA_LOST: Window = Window {
    promise: "data: the key is lost, so that the lock is granted again while its first holder believes for at most a TTL",
    rules: ENTRY,
    longest: (1, 0),
    after: (1, 1),
};

/// The file is deleted, and one process after another opens a new file.
const FILE_LOST: Window = Window {
    promise: "SQLite: a file that is removed has lost its leases, and tokens are in order while the file lives",
    rules: &[Rule::Exclusion, Rule::Fencing, Rule::TokenOrder, Rule::EntryOrder],
    longest: (1, 0),
    after: (1, 1),
};

/// An operator revokes leases.
const REVOKED: Window = Window {
    promise: "operator: leases are revoked under their holders, which hear of it at once or by their next renewal",
    rules: ENTRY,
    longest: (1, 0),
    after: (1, 0),
};

/// A paused etcd leader revokes leases that its successor has renewed.
const OLD_LEADER: Window = Window {
    promise: "etcd: a leader that is stopped for longer than a lease lasts may end it when it goes on (etcd-io/etcd#15247)",
    rules: ENTRY,
    longest: (1, 0),
    after: (1, 2),
};

const fn clients(kind: FaultKind, lasts: (u32, u32)) -> Fault {
    Fault {
        kind,
        classes: &Class::ALL,
        part: Part::Clients,
        lasts,
        window: None,
        is_outside: false,
    }
}

const fn packets(kind: FaultKind, cut: Cut) -> Fault {
    let (classes, part, lasts) = (REMOTE, Part::Packets(cut), (15, 40));
    Fault { kind, classes, part, lasts, window: None, is_outside: false }
}

const fn peers(kind: FaultKind, isolation: Isolation) -> Fault {
    let (classes, part, lasts) = (ENSEMBLES, Part::Peers(isolation), (20, 70));
    Fault { kind, classes, part, lasts, window: None, is_outside: false }
}

const fn servers(kind: FaultKind, classes: &'static [Class], lasts: (u32, u32)) -> Fault {
    Fault { kind, classes, part: Part::Servers, lasts, window: None, is_outside: false }
}

impl Fault {
    const fn opens(mut self, window: &'static Window) -> Self {
        self.window = Some(window);
        self
    }

    const fn outside(mut self) -> Self {
        self.is_outside = true;
        self
    }
}

/// All faults.
pub static CATALOGUE: &[Fault] = &[
    clients(FaultKind::ClientStopped, (10, 40)),
    clients(FaultKind::ClientKilled, (0, 10)),
    clients(FaultKind::ClientsStopped, (10, 30)),
    clients(FaultKind::ProcessorsBusy, (20, 40)),
    packets(FaultKind::ClientPartitioned, Cut::BothWays),
    packets(FaultKind::RequestsDropped, Cut::Requests),
    packets(FaultKind::RepliesDropped, Cut::Replies),
    packets(FaultKind::PacketsLost, Cut::Loss),
    packets(FaultKind::ConnectionsRefused, Cut::Reset),
    peers(FaultKind::LeaderIsolated, Isolation::BothWays),
    peers(FaultKind::LeaderDeaf, Isolation::Deaf),
    peers(FaultKind::LeaderMute, Isolation::Mute),
    servers(FaultKind::NetworkSlow, REMOTE, (20, 40)),
    servers(FaultKind::NetworkSilent, REMOTE, (10, 30)),
    servers(FaultKind::RepliesLost, REMOTE, (5, 15)),
    servers(FaultKind::ConnectionsReset, REMOTE, (10, 30)),
    servers(FaultKind::ServerStopped, ONE_SERVER, (10, 30)),
    servers(FaultKind::ServerKilled, ONE_SERVER, (5, 20)),
    servers(FaultKind::ServerTerminated, ONE_SERVER, (5, 20)),
    servers(FaultKind::ScriptsFlushed, SCRIPTED, (1, 5)),
    servers(
        FaultKind::ConnectionsKilled,
        &[Redis, Sentinel, Cluster, Quorum, Postgres, Mariadb],
        (5, 20),
    ),
    servers(FaultKind::CommandsPaused, &[Redis, Cluster], (10, 25)),
    // A sentinel checks the server over the connection on which the sentinel publishes, and that connection is paused, too.
    servers(FaultKind::CommandsPaused, &[Sentinel], (10, 25)).opens(&FAILOVER),
    servers(FaultKind::ServerAsleep, &[Redis], (10, 25)),
    servers(FaultKind::MemoryFull, &[Redis], (10, 30)),
    servers(FaultKind::RightsRemoved, &[Redis], (10, 30)),
    servers(FaultKind::SnapshotFailed, &[Redis], (10, 30)),
    servers(FaultKind::ClockForward, &[Redis], (10, 20)).opens(&CLOCK_FORWARD),
    servers(FaultKind::ClockBack, &[Redis], (10, 20)).opens(&CLOCK_BACK),
    servers(FaultKind::DataFlushed, &[Redis], (1, 5)).opens(&DATA_LOST).outside(),
    servers(FaultKind::DataWiped, &[Redis], (5, 15)).opens(&DATA_LOST).outside(),
    servers(FaultKind::FailoverCommanded, FAILING_OVER, (5, 20)).opens(&FAILOVER),
    servers(FaultKind::FailoverForced, &[Cluster], (5, 20)).opens(&CUT_OFF),
    servers(FaultKind::PrimaryKilled, FAILING_OVER, (30, 50)).opens(&FAILOVER),
    servers(FaultKind::PrimaryStopped, FAILING_OVER, (30, 50)).opens(&FAILOVER),
    servers(FaultKind::PrimaryIsolated, FAILING_OVER, (30, 50)).opens(&FAILOVER),
    servers(FaultKind::PrimaryIsolatedWithClients, FAILING_OVER, (30, 60)).opens(&CUT_OFF),
    // The replica has all commits that the primary acknowledged.
    servers(FaultKind::FailoverCommanded, &[Postgres], (5, 20)),
    servers(FaultKind::PrimaryKilled, &[Postgres], (10, 30)),
    servers(FaultKind::PrimaryStopped, &[Postgres], (20, 50)),
    servers(FaultKind::WaitsCancelled, &[Postgres], (5, 20)),
    servers(FaultKind::ReplicaKilled, COPIED, (10, 30)),
    servers(FaultKind::ReplicaStopped, COPIED, (10, 30)),
    servers(FaultKind::SentinelKilled, &[Sentinel], (10, 30)),
    servers(FaultKind::SentinelStopped, &[Sentinel], (10, 30)),
    servers(FaultKind::SlotMigrated, &[Cluster], (5, 15)),
    servers(FaultKind::MemberKilled, &[Quorum], (10, 40)),
    servers(FaultKind::MemberStopped, &[Quorum], (10, 40)),
    servers(FaultKind::MembersKilled, &[Quorum], (10, 40)),
    servers(FaultKind::MembersStopped, &[Quorum], (10, 40)),
    servers(FaultKind::MajorityStopped, &[Quorum], (10, 25)),
    servers(FaultKind::MemberWiped, &[Quorum], (5, 15)),
    servers(FaultKind::MemberClockForward, &[Quorum], (10, 20)).opens(&MEMBER_CLOCK),
    servers(FaultKind::MemberClockBack, &[Quorum], (10, 20)),
    servers(FaultKind::LeaderKilled, ENSEMBLES, (20, 40)),
    servers(FaultKind::LeaderStopped, &[Etcd], (20, 60)).opens(&OLD_LEADER),
    servers(FaultKind::LeaderStopped, &[Zookeeper], (20, 60)),
    servers(FaultKind::FollowerKilled, ENSEMBLES, (10, 30)),
    servers(FaultKind::FollowerStopped, ENSEMBLES, (10, 30)),
    servers(FaultKind::RollingRestart, ENSEMBLES, (5, 10)),
    servers(FaultKind::AllStopped, ENSEMBLES, (10, 25)),
    servers(FaultKind::LeaderMoved, &[Etcd], (5, 15)),
    servers(FaultKind::HistoryCompacted, &[Etcd], (1, 5)),
    servers(FaultKind::DiskStalled, &[Etcd], (20, 40)).opens(&OLD_LEADER),
    servers(FaultKind::QuotaUsedUp, &[Etcd], (20, 40)),
    servers(FaultKind::LeasesRevoked, &[Etcd], (1, 5)).opens(&REVOKED),
    servers(FaultKind::TablesLocked, DATABASES, (10, 25)),
    servers(FaultKind::ReadOnly, DATABASES, (10, 30)),
    servers(FaultKind::DiskFull, &[Postgres, Mariadb, Zookeeper], (10, 30)),
    Fault { part: Part::Disk, ..servers(FaultKind::DiskFull, &[Sqlite], (10, 30)) },
    servers(FaultKind::FileLocked, &[Sqlite], (5, 20)),
    servers(FaultKind::FileRemoved, &[Sqlite], (1, 5)).opens(&FILE_LOST).outside(),
];
