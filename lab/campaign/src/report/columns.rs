//! Stores rows as columns, which takes one third of the space. The page's script searches this
//! format.

use std::collections::HashMap;
use std::hash::Hash;

use leasehold_conformance::history::run::{End, HoldRow, Kind, Register, WriteRow};
use serde::Serialize;

/// All holds of a run. Keys, types and ends are indices into lists of distinct values.
#[derive(Serialize)]
pub(super) struct Holds<'a> {
    keys: Vec<&'a str>,
    kinds: Vec<Kind>,
    ends: Vec<End>,
    columns: Columns,
}

#[derive(Default, Serialize)]
struct Columns {
    process: Vec<u32>,
    task: Vec<u32>,
    key: Vec<usize>,
    kind: Vec<usize>,
    /// Stored as text, because numbers in JavaScript have 53 bits.
    token: Vec<String>,
    units: Vec<u32>,
    limit: Vec<u32>,
    from: Vec<f64>,
    until: Vec<f64>,
    end: Vec<usize>,
    lost: Vec<Option<f64>>,
}

impl<'a> Holds<'a> {
    pub(super) fn of(rows: &'a [HoldRow]) -> Self {
        let (mut keys, mut kinds, mut ends) =
            (Distinct::default(), Distinct::default(), Distinct::default());
        let mut columns = Columns::default();
        for row in rows {
            columns.process.push(row.process);
            columns.task.push(row.task);
            columns.key.push(keys.place(row.key.as_str()));
            columns.kind.push(kinds.place(row.kind));
            columns.token.push(row.token.to_string());
            columns.units.push(row.units);
            columns.limit.push(row.limit);
            columns.from.push(brief(row.from_ms));
            columns.until.push(brief(row.until_ms));
            columns.end.push(ends.place(row.end));
            columns.lost.push(row.lost_ms.map(brief));
        }
        Self { keys: keys.values, kinds: kinds.values, ends: ends.values, columns }
    }
}

/// All writes of a run.
#[derive(Default, Serialize)]
pub(super) struct Writes {
    hold: Vec<usize>,
    at: Vec<f64>,
    fenced: Vec<u8>,
    accepted: Vec<u8>,
    undid: Vec<u8>,
}

impl Writes {
    pub(super) fn of(rows: &[WriteRow]) -> Self {
        let mut writes = Self::default();
        for row in rows {
            writes.hold.push(row.hold);
            writes.at.push(brief(row.at_ms));
            writes.fenced.push((row.register == Register::Fenced).into());
            writes.accepted.push(row.accepted.into());
            writes.undid.push(row.undid.into());
        }
        writes
    }
}

/// Distinct values in the order of their first occurrence.
struct Distinct<T> {
    values: Vec<T>,
    places: HashMap<T, usize>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Self { values: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    fn place(&mut self, value: T) -> usize {
        *self.places.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() - 1
        })
    }
}

/// Rounds a time to whole microseconds. Additional digits would double the size of the page.
fn brief(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}
