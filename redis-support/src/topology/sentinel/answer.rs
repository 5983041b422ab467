//! The replies of sentinels.

use std::collections::HashMap;
use std::fmt;

use crate::address::Address;
use crate::reply::Reply;

/// The reply of one sentinel.
#[derive(Clone, Debug)]
pub(in crate::topology) struct Answer {
    /// The ID of the sentinel that replied.
    id: String,
    /// The number of additional sentinels that this sentinel knows, running or not. All sentinels
    /// vote on a failover.
    others: usize,
    /// Whether the sentinel is performing a failover, so that the reported primary may already have
    /// been replaced.
    switches: bool,
    /// The number of failovers so far.
    epoch: u64,
    pub(super) address: Address,
    pub(super) replicas: u32,
}

impl Answer {
    /// Reads the reply of the sentinel `id` to `SENTINEL MASTER`.
    pub(super) fn read(id: String, master: &Reply, asked: &Address) -> Option<Self> {
        let fields = read_fields(master)?;
        let number = |name: &str| fields.get(name)?.parse::<u32>().ok();
        Some(Self {
            id,
            others: usize::try_from(number("num-other-sentinels")?).ok()?,
            switches: fields.get("flags")?.split(',').any(|flag| flag == "failover_in_progress"),
            epoch: fields.get("config-epoch")?.parse().ok()?,
            address: Address::of(fields.get("ip")?, fields.get("port")?.parse().ok()?, asked)?,
            replicas: number("num-slaves").unwrap_or_default(),
        })
    }
}

/// The replies of several sentinels, with one reply per sentinel.
#[derive(Debug, Default)]
pub(super) struct Answers(HashMap<String, Answer>);

impl Answers {
    /// Adds a reply. A sentinel may be known by several addresses but counts only once.
    pub(super) fn add(&mut self, answer: Answer) {
        self.0.insert(answer.id.clone(), answer);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the reply after the latest failover, if a majority of all sentinels has replied.
    pub(super) fn of_majority(&self) -> Option<Answer> {
        if self.confirming().count() <= self.all() / 2 {
            return None;
        }
        self.confirming().max_by_key(|answer| answer.epoch).cloned()
    }

    /// A sentinel that is performing a failover does not confirm a primary, because it reports the
    /// former primary until all replicas follow the new primary.
    fn confirming(&self) -> impl Iterator<Item = &Answer> {
        self.0.values().filter(|answer| !answer.switches)
    }

    /// Returns the number of all sentinels.
    fn all(&self) -> usize {
        self.0.values().map(|answer| answer.others + 1).max().unwrap_or_default()
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} sentinels name the server", self.confirming().count(), self.all())
    }
}

/// Reads the addresses of further sentinels from the reply to `SENTINEL SENTINELS`.
pub(super) fn read_others(reply: &Reply, asked: &Address) -> Vec<Address> {
    let Reply::Array(others) = reply else { return Vec::new() };
    let address = |other: &Reply| {
        let fields = read_fields(other)?;
        Address::of(fields.get("ip")?, fields.get("port")?.parse().ok()?, asked)
    };
    others.iter().filter_map(address).collect()
}

/// Reads a list of names and values.
fn read_fields(reply: &Reply) -> Option<HashMap<&str, &str>> {
    let Reply::Array(parts) = reply else { return None };
    let mut fields = HashMap::new();
    for pair in parts.chunks_exact(2) {
        let [Reply::Bytes(name), Reply::Bytes(value)] = pair else { continue };
        if let (Ok(name), Ok(value)) = (str::from_utf8(name), str::from_utf8(value)) {
            fields.insert(name, value);
        }
    }
    Some(fields)
}
