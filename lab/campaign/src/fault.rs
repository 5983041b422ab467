//! The catalogue of faults.

use leasehold_conformance::Rule;
use leasehold_conformance::history::fault::Window;

use crate::class::Class;
use crate::firewall::{Cut, Isolation};

/// A kind of fault.
#[derive(Debug)]
pub struct Fault {
    /// Its name.
    pub kind: &'static str,
    /// The classes of store that it fits.
    pub classes: &'static [Class],
    /// The part of the system that it befalls.
    pub part: Part,
    /// How long it is in force, in tenths of a second: from, and to.
    pub lasts: (u32, u32),
    /// The window of the promises that it opens, if it opens one.
    pub window: Option<&'static Window>,
    /// Whether the promises exclude it, such as the loss of all data.
    pub is_outside: bool,
}

/// A part of the system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The client processes.
    Clients,
    /// The packets between clients and servers, by a firewall.
    Packets(Cut),
    /// The packets between the leader of the servers and the others, by a firewall.
    Peers(Isolation),
    /// The servers, and the proxies in front of them.
    Servers,
    /// The disk of a file that clients open themselves.
    Disk,
}

impl Part {
    /// Whether faults of both parts may be in force at once. Where servers are cut off from each other, nothing else befalls them.
    pub fn is_beside(self, other: Self) -> bool {
        match (self, other) {
            (Self::Peers(_), other) | (other, Self::Peers(_)) => other == Self::Clients,
            (Self::Packets(_), Self::Packets(_)) => false,
            // The store brings about one after the other.
            (Self::Servers, Self::Disk) | (Self::Disk, Self::Servers) => false,
            _ => self != other,
        }
    }

    fn takes_namespaces(self) -> bool {
        matches!(self, Self::Packets(_) | Self::Peers(_) | Self::Disk)
    }
}

impl Fault {
    /// The faults that fit a class of store. Without namespaces of the campaign's own, there are none of packets and of files.
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

/// A lease that ends early is granted to another while its own grant may still be on the way: that holder then enters late, with the older token.
const ENTRY: &[Rule] = &[Rule::Exclusion, Rule::EntryOrder];

/// The old primary is dead, frozen or out of reach of all clients.
const FAILOVER: Window = Window {
    promise: "failover: two believe together at most for a TTL, less the time until another has taken over",
    rules: &[Rule::Exclusion],
    longest: (1, 0),
    after: (1, 4),
};

/// The old primary is cut off together with clients.
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

/// The server's clock steps back: its leases live longer.
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

/// The file is removed, and processes go over to a new one, one after the other.
const FILE_LOST: Window = Window {
    promise: "SQLite: a file that is removed has lost its leases, and tokens are in order while the file lives",
    rules: &[Rule::Exclusion, Rule::Fencing, Rule::TokenOrder, Rule::EntryOrder],
    longest: (1, 0),
    after: (1, 1),
};

/// An operator ends leases.
const REVOKED: Window = Window {
    promise: "operator: leases are revoked under their holders, which hear of it at once or by their next renewal",
    rules: ENTRY,
    longest: (1, 0),
    after: (1, 0),
};

/// A leader of etcd that was stopped ends leases that live on with its successor.
const OLD_LEADER: Window = Window {
    promise: "etcd: a leader that is stopped for longer than a lease lasts may end it when it goes on (etcd-io/etcd#15247)",
    rules: ENTRY,
    longest: (1, 0),
    after: (1, 2),
};

const fn clients(kind: &'static str, lasts: (u32, u32)) -> Fault {
    Fault {
        kind,
        classes: &Class::ALL,
        part: Part::Clients,
        lasts,
        window: None,
        is_outside: false,
    }
}

const fn packets(kind: &'static str, cut: Cut) -> Fault {
    let (classes, part, lasts) = (REMOTE, Part::Packets(cut), (15, 40));
    Fault { kind, classes, part, lasts, window: None, is_outside: false }
}

const fn peers(kind: &'static str, isolation: Isolation) -> Fault {
    let (classes, part, lasts) = (ENSEMBLES, Part::Peers(isolation), (20, 70));
    Fault { kind, classes, part, lasts, window: None, is_outside: false }
}

const fn servers(kind: &'static str, classes: &'static [Class], lasts: (u32, u32)) -> Fault {
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

/// All kinds of faults.
pub static CATALOGUE: &[Fault] = &[
    clients("client-stopped", (10, 40)),
    clients("client-killed", (0, 10)),
    clients("clients-stopped", (10, 30)),
    clients("processors-busy", (20, 40)),
    packets("client-partitioned", Cut::BothWays),
    packets("requests-dropped", Cut::Requests),
    packets("replies-dropped", Cut::Replies),
    packets("packets-lost", Cut::Loss),
    packets("connections-refused", Cut::Reset),
    peers("leader-isolated", Isolation::BothWays),
    peers("leader-deaf", Isolation::Deaf),
    peers("leader-mute", Isolation::Mute),
    servers("network-slow", REMOTE, (20, 40)),
    servers("network-silent", REMOTE, (10, 30)),
    servers("replies-lost", REMOTE, (5, 15)),
    servers("connections-reset", REMOTE, (10, 30)),
    servers("server-stopped", ONE_SERVER, (10, 30)),
    servers("server-killed", ONE_SERVER, (5, 20)),
    servers("server-terminated", ONE_SERVER, (5, 20)),
    servers("scripts-flushed", SCRIPTED, (1, 5)),
    servers("connections-killed", &[Redis, Sentinel, Cluster, Quorum, Postgres, Mariadb], (5, 20)),
    servers("commands-paused", &[Redis, Cluster], (10, 25)),
    // A sentinel publishes on the connection over which it asks whether the server is up, and that waits, too.
    servers("commands-paused", &[Sentinel], (10, 25)).opens(&FAILOVER),
    servers("server-asleep", &[Redis], (10, 25)),
    servers("memory-full", &[Redis], (10, 30)),
    servers("rights-removed", &[Redis], (10, 30)),
    servers("snapshot-failed", &[Redis], (10, 30)),
    servers("clock-forward", &[Redis], (10, 20)).opens(&CLOCK_FORWARD),
    servers("clock-back", &[Redis], (10, 20)).opens(&CLOCK_BACK),
    servers("data-flushed", &[Redis], (1, 5)).opens(&DATA_LOST).outside(),
    servers("data-wiped", &[Redis], (5, 15)).opens(&DATA_LOST).outside(),
    servers("failover-commanded", FAILING_OVER, (5, 20)).opens(&FAILOVER),
    servers("failover-forced", &[Cluster], (5, 20)).opens(&CUT_OFF),
    servers("primary-killed", FAILING_OVER, (30, 50)).opens(&FAILOVER),
    servers("primary-stopped", FAILING_OVER, (30, 50)).opens(&FAILOVER),
    servers("primary-isolated", FAILING_OVER, (30, 50)).opens(&FAILOVER),
    servers("primary-isolated-with-clients", FAILING_OVER, (30, 60)).opens(&CUT_OFF),
    // The replica has all commits that the primary has acknowledged.
    servers("failover-commanded", &[Postgres], (5, 20)),
    servers("primary-killed", &[Postgres], (10, 30)),
    servers("primary-stopped", &[Postgres], (20, 50)),
    servers("waits-cancelled", &[Postgres], (5, 20)),
    servers("replica-killed", COPIED, (10, 30)),
    servers("replica-stopped", COPIED, (10, 30)),
    servers("sentinel-killed", &[Sentinel], (10, 30)),
    servers("sentinel-stopped", &[Sentinel], (10, 30)),
    servers("slot-migrated", &[Cluster], (5, 15)),
    servers("member-killed", &[Quorum], (10, 40)),
    servers("member-stopped", &[Quorum], (10, 40)),
    servers("members-killed", &[Quorum], (10, 40)),
    servers("members-stopped", &[Quorum], (10, 40)),
    servers("majority-stopped", &[Quorum], (10, 25)),
    servers("member-wiped", &[Quorum], (5, 15)),
    servers("member-clock-forward", &[Quorum], (10, 20)).opens(&MEMBER_CLOCK),
    servers("member-clock-back", &[Quorum], (10, 20)),
    servers("leader-killed", ENSEMBLES, (20, 40)),
    servers("leader-stopped", &[Etcd], (20, 60)).opens(&OLD_LEADER),
    servers("leader-stopped", &[Zookeeper], (20, 60)),
    servers("follower-killed", ENSEMBLES, (10, 30)),
    servers("follower-stopped", ENSEMBLES, (10, 30)),
    servers("rolling-restart", ENSEMBLES, (5, 10)),
    servers("all-stopped", ENSEMBLES, (10, 25)),
    servers("leader-moved", &[Etcd], (5, 15)),
    servers("history-compacted", &[Etcd], (1, 5)),
    servers("disk-stalled", &[Etcd], (20, 40)).opens(&OLD_LEADER),
    servers("quota-used-up", &[Etcd], (20, 40)),
    servers("leases-revoked", &[Etcd], (1, 5)).opens(&REVOKED),
    servers("tables-locked", DATABASES, (10, 25)),
    servers("read-only", DATABASES, (10, 30)),
    servers("disk-full", &[Postgres, Mariadb, Zookeeper], (10, 30)),
    Fault { part: Part::Disk, ..servers("disk-full", &[Sqlite], (10, 30)) },
    servers("file-locked", &[Sqlite], (5, 20)),
    servers("file-removed", &[Sqlite], (1, 5)).opens(&FILE_LOST).outside(),
];
