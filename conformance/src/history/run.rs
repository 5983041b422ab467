//! One run of the campaign as plain data.
//!
//! All times are milliseconds since the start of the run, by the one clock of the machine that all processes read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The history of clients and faults on one class of store, with the verdict on it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// The seed of the schedule of faults.
    pub seed: u64,
    /// The class of store, in one word, such as `sentinel`.
    pub class: String,
    /// The class as a title, such as "Redis with Sentinel".
    pub title: String,
    /// The versions of programs, by their names.
    pub versions: BTreeMap<String, String>,
    /// The machine: its cores, its memory and its kernel.
    pub machine: String,
    /// The time from the first client to the last, in seconds.
    pub seconds: f64,
    /// The TTL of all leases.
    pub ttl_ms: f64,
    /// The processes.
    pub clients: Vec<ClientRow>,
    /// The beliefs, in the order in which they began.
    pub holds: Vec<HoldRow>,
    /// The faults, in the order in which they began.
    pub faults: Vec<FaultRow>,
    /// The writes to the resource, in the order in which it received them.
    pub writes: Vec<WriteRow>,
    /// The broken rules, in the order of time.
    pub violations: Vec<ViolationRow>,
    /// The counts and extremes.
    pub figures: Figures,
}

/// A client process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClientRow {
    /// Its number. A process that takes the place of a killed one has another.
    pub process: u32,
    /// The time at which the campaign started the process.
    pub started_ms: f64,
    /// The time at which the process ended; none if the run ended first.
    pub ended_ms: Option<f64>,
    /// The reason of its end.
    pub cause: Option<Cause>,
}

/// The reason why a process ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The campaign killed the process.
    Killed,
    /// The process finished its work and left.
    Ended,
}

/// A time for which a task believed in a lease.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HoldRow {
    /// The process.
    pub process: u32,
    /// The task, of those of its process.
    pub task: u32,
    /// The locked name.
    pub key: String,
    /// The kind of lock.
    pub kind: Kind,
    /// The fencing token.
    pub token: u64,
    /// The units that the guard has.
    pub units: u32,
    /// The units that there are.
    pub limit: u32,
    /// The start of the belief.
    pub from_ms: f64,
    /// The end of the belief.
    pub until_ms: f64,
    /// The reason of its end.
    pub end: End,
    /// The time at which the caller heard of a loss, which is after the deadline where its process was stopped.
    pub lost_ms: Option<f64>,
}

/// A kind of lock, as the caller asked for it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A mutex.
    Mutex,
    /// A mutex whose waiters are served first come, first served.
    Fair,
    /// A mutex that its owner enters again.
    Reentrant,
    /// One of several keys that a caller takes together.
    Multi,
    /// A reader.
    Reader,
    /// A writer.
    Writer,
    /// Permits of a semaphore.
    Permit,
    /// A leader.
    Leader,
}

/// The reason why a belief ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The caller released the guard.
    Released,
    /// The caller dropped the guard.
    Dropped,
    /// The guard told of a loss before its deadline.
    Lost,
    /// The deadline passed.
    Deadline,
    /// The campaign killed the process.
    Killed,
}

/// A fault, from its first effect until it is mended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FaultRow {
    /// The kind, such as `primary-killed`.
    pub kind: String,
    /// The process that it hits, or the pair whose traffic it hits.
    pub target: String,
    /// The start.
    pub from_ms: f64,
    /// The end.
    pub until_ms: f64,
    /// Whether the promises exclude it, as the loss of all data of a server.
    pub outside: bool,
}

/// A write that the resource received.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WriteRow {
    /// The process.
    pub process: u32,
    /// The place of its hold in [`Run::holds`].
    pub hold: usize,
    /// The time at which the resource received it.
    pub at_ms: f64,
    /// The register.
    pub register: Register,
    /// Whether the register took it. An unfenced register takes all.
    pub accepted: bool,
    /// Whether it undid a write that its writer had not read.
    pub undid: bool,
}

/// A register of the resource.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Register {
    /// It refuses tokens below the largest that it has seen.
    Fenced,
    /// It knows no tokens.
    Unfenced,
}

/// A broken rule.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ViolationRow {
    /// The rule: `V1` to `V4`, `tokens`, `entries`, `liveness`, `leak`, `record`.
    pub rule: String,
    /// The time at which it shows.
    pub at_ms: f64,
    /// The key; empty if it concerns none.
    pub key: String,
    /// The sentence for readers.
    pub text: String,
    /// The holds that show it, as places in [`Run::holds`].
    pub holds: Vec<usize>,
    /// How long it lasts; zero for an instant.
    pub length_ms: f64,
    /// The window of `docs/promises.md` that excludes it from the promises, if one does.
    pub excused: Option<String>,
}

/// The counts and extremes of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Figures {
    /// The events in the record.
    pub events: u64,
    /// The calls that asked for a lock.
    pub calls: u64,
    /// Their outcomes: `granted`, `busy`, `cancelled`, and the kinds of errors.
    pub outcomes: BTreeMap<String, u64>,
    /// The beliefs, by kind of lock.
    pub holds: BTreeMap<String, u64>,
    /// The losses that guards told of, by reason.
    pub losses: BTreeMap<String, u64>,
    /// The faults, by kind.
    pub faults: BTreeMap<String, u64>,
    /// The faults that began while a caller believed in a lease.
    pub faults_on_holds: u64,
    /// The violations, by rule, without those that are excused.
    pub violations: BTreeMap<String, u64>,
    /// The violations that a window of the promises covers, by rule.
    pub excused: BTreeMap<String, u64>,
    /// The longest overlap of beliefs that exclude each other.
    pub longest_overlap_ms: f64,
    /// The writes that the fenced register accepted and refused.
    pub writes: [u64; 2],
    /// The writes to the unfenced register that undid another (V3).
    pub lost_updates: u64,
    /// The time from a deadline to the signal of the loss, where the process was not stopped: median, 99th percentile, maximum.
    pub loss_latency_ms: [f64; 3],
    /// The longest time that a caller waited for a key in which no caller believed, while no fault was in force.
    pub longest_unserved_ms: f64,
    /// The time from the last client's end until all keys were free.
    pub until_free_ms: f64,
    /// The time in all for which the machine ran no process of the campaign, as far as a stall of a fifth of a second or more tells.
    pub stalled_ms: f64,
    /// The file descriptors of the client that had most of them when it was at work, and when it had finished.
    pub fds: [u64; 2],
    /// The use of resources over time, in long runs.
    pub samples: Vec<Sample>,
}

/// The use of resources of a client process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sample {
    /// The process.
    pub process: u32,
    /// The time.
    pub at_ms: f64,
    /// The resident memory, in KiB.
    pub memory_kib: u64,
    /// The open file descriptors.
    pub fds: u64,
    /// The tasks of its runtime.
    pub tasks: u64,
    /// The entries in the maps of the client, by map.
    pub entries: BTreeMap<String, u64>,
}

/// The machine: its cores, its memory and its kernel.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    let gib = kib.unwrap_or(0.0_f64) / f64::from(1 << 20);
    let system = rustix::system::uname();
    let (name, release) = (system.sysname(), system.release());
    format!("{cores} cores, {gib:.0} GiB, {} {}", name.to_string_lossy(), release.to_string_lossy())
}
