//! A run of the campaign, as plain data.
//!
//! All times are milliseconds since the start of the run, on the clock that all processes on the
//! machine share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Rule;

/// The history of clients and faults on one class of store, with the result of the check.
///
/// The example of [`Summary`](super::summary::Summary) creates a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// The seed of the fault schedule.
    pub seed: u64,
    /// The store's class in one word, such as `sentinel`.
    pub class: String,
    /// The title of the store's class, such as "Redis with Sentinel".
    pub title: String,
    /// The versions of the programs, by program name.
    pub versions: BTreeMap<String, String>,
    /// The machine: its cores, its memory and its kernel.
    pub machine: String,
    /// The time from the first client's start to the last client's exit, in seconds.
    pub seconds: f64,
    /// The TTL of all leases.
    pub ttl_ms: f64,
    /// The client processes.
    pub clients: Vec<ClientRow>,
    /// The holds, ordered by start time.
    pub holds: Vec<HoldRow>,
    /// The faults, ordered by start time.
    pub faults: Vec<FaultRow>,
    /// The writes, in the order in which the resource received them.
    pub writes: Vec<WriteRow>,
    /// The violations, in chronological order.
    pub violations: Vec<ViolationRow>,
    /// The counts and extremes.
    pub figures: Figures,
}

/// A client process.
///
/// [`Run::clients`] contains these rows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ClientRow {
    /// The number of the process. A process that replaces a killed process gets a new number.
    pub process: u32,
    /// When the campaign started the process.
    pub started_ms: f64,
    /// When the process ended, or `None` if the run ended first.
    pub ended_ms: Option<f64>,
    /// Why the process ended.
    pub cause: Option<Cause>,
}

/// Why a process ended.
///
/// [`ClientRow`] contains a value of this type.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The campaign killed the process.
    Killed,
    /// The process finished its work.
    Ended,
}

/// A period in which a task considered itself a holder.
///
/// [`Run::holds`] contains these rows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HoldRow {
    /// The number of the process.
    pub process: u32,
    /// The task's number within its process.
    pub task: u32,
    /// The key.
    pub key: String,
    /// The type of the lock.
    pub kind: Kind,
    /// The fencing token.
    pub token: u64,
    /// The number of permits of the guard.
    pub units: u32,
    /// The total number of permits.
    pub limit: u32,
    /// The start of the hold.
    pub from_ms: f64,
    /// The end of the hold.
    pub until_ms: f64,
    /// Why the hold ended.
    pub end: End,
    /// When the caller was notified of a loss. For a paused process, the notification time is after
    /// the deadline.
    pub lost_ms: Option<f64>,
}

/// The type of a lock that a caller requested.
///
/// [`HoldRow`] contains a value of this type.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A mutex.
    Mutex,
    /// A mutex that serves waiters in order of arrival.
    Fair,
    /// A reentrant mutex.
    Reentrant,
    /// One of several keys in a multi-lock.
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

/// Why a hold ended.
///
/// [`HoldRow`] contains a value of this type.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The caller released the guard.
    Released,
    /// The caller dropped the guard.
    Dropped,
    /// The guard reported a loss before its deadline.
    Lost,
    /// The deadline passed.
    Deadline,
    /// The campaign killed the process.
    Killed,
}

/// A fault, from its first effect until it is repaired.
///
/// [`Run::faults`] contains these rows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FaultRow {
    /// The kind of the fault, such as `primary-killed`.
    pub kind: String,
    /// The affected process, or the pair of processes whose traffic is affected.
    pub target: String,
    /// The start of the fault.
    pub from_ms: f64,
    /// The end of the fault.
    pub until_ms: f64,
    /// Whether the fault is outside the guarantees, for example the loss of all of a server's data.
    pub outside: bool,
}

/// A write that the resource received.
///
/// [`Run::writes`] contains these rows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WriteRow {
    /// The number of the process.
    pub process: u32,
    /// The index of the hold in [`Run::holds`].
    pub hold: usize,
    /// When the resource received the write.
    pub at_ms: f64,
    /// The register.
    pub register: Register,
    /// Whether the register accepted the write. An unfenced register accepts all writes.
    pub accepted: bool,
    /// Whether the write overwrote a write that the writer had not read.
    pub undid: bool,
}

/// A register of the resource.
///
/// [`WriteRow`] contains a value of this type.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Register {
    /// A register that rejects tokens below the largest token that it has received.
    Fenced,
    /// A register that does not check tokens.
    Unfenced,
}

/// A violation of a rule.
///
/// [`Run::violations`] contains these rows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ViolationRow {
    /// The rule.
    pub rule: Rule,
    /// When the violation occurred.
    pub at_ms: f64,
    /// The key, or an empty string if the violation does not concern a key.
    pub key: String,
    /// A sentence that describes the violation.
    pub text: String,
    /// The holds that are involved in the violation, as indices into [`Run::holds`].
    pub holds: Vec<usize>,
    /// How long the violation lasted, or zero if it was instantaneous.
    pub length_ms: f64,
    /// The window in `docs/promises.md` that permits the violation, if there is one.
    pub excused: Option<String>,
}

/// A run's counts and extreme values.
///
/// [`Run::figures`] contains a value of this type.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Figures {
    /// The number of events in the record.
    pub events: u64,
    /// The number of calls that requested a lock.
    pub calls: u64,
    /// The outcomes of the calls that requested a lock: `granted`, `busy`, `cancelled`, and the
    /// kinds of errors.
    pub outcomes: BTreeMap<String, u64>,
    /// The number of holds, by lock type.
    pub holds: BTreeMap<String, u64>,
    /// The number of lost leases that guards reported, by reason.
    pub losses: BTreeMap<String, u64>,
    /// The number of faults, by kind.
    pub faults: BTreeMap<String, u64>,
    /// The number of faults that started while a lock was held.
    pub faults_on_holds: u64,
    /// The number of violations, by rule, not counting excused violations.
    pub violations: BTreeMap<Rule, u64>,
    /// The number of excused violations, by rule. A violation is excused if the guarantees permit
    /// a violation of this kind and length during a fault, or for a limited time after the fault.
    pub excused: BTreeMap<Rule, u64>,
    /// The number of guards whose leases were handed off within a process.
    pub handed_off: u64,
    /// The longest overlap of two holds that should exclude each other.
    pub longest_overlap_ms: f64,
    /// The numbers of writes that the fenced register accepted and rejected.
    pub writes: [u64; 2],
    /// The number of writes to the unfenced register that overwrote a write that the writer had not
    /// read.
    pub lost_updates: u64,
    /// The time from a deadline to the loss notification, except for paused processes: median, 99th
    /// percentile and maximum.
    pub loss_latency_ms: [f64; 3],
    /// The longest time that a caller waited for a free key while no fault was in effect.
    pub longest_unserved_ms: f64,
    /// The time between the last client's exit and the moment when all keys were free.
    pub until_free_ms: f64,
    /// The total time for which the machine stalled during the run. Only stalls of 200 ms or more
    /// are detected.
    pub stalled_ms: f64,
    /// The largest numbers of file descriptors that a client process had open during its work and
    /// afterwards.
    pub fds: [u64; 2],
    /// In long runs, the client processes' resource usage over time.
    pub samples: Vec<Sample>,
}

/// The resource usage of a client process.
///
/// [`Figures::samples`] contains these samples.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sample {
    /// The number of the process.
    pub process: u32,
    /// The time of the sample.
    pub at_ms: f64,
    /// The resident memory in KiB.
    pub memory_kib: u64,
    /// The number of open file descriptors.
    pub fds: u64,
    /// The number of tasks in the runtime.
    pub tasks: u64,
    /// The number of entries in each map of the client.
    pub entries: BTreeMap<String, u64>,
}

/// Returns a description of the machine: its cores, its memory and its kernel.
///
/// ```
/// println!("{}", leasehold_conformance::history::run::machine());
/// ```
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = memory.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    let gib = kib.unwrap_or(0.0_f64) / f64::from(1 << 20);
    let system = rustix::system::uname();
    let (name, release) = (system.sysname(), system.release());
    format!("{cores} cores, {gib:.0} GiB, {} {}", name.to_string_lossy(), release.to_string_lossy())
}
