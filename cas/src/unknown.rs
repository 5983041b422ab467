//! The writes of one operation that may have been applied.

use leasehold_core::{Error, ErrorKind};

use crate::clock::{Reading, StoreClock};
use crate::store::Version;

/// The number of writes without a reply until the caller gets an error.
const MOST: usize = 4;

/// The time of the store in a reply, and the local time when the reply was received.
pub(crate) type Read = (Reading, i64);

/// The writes of one operation that may have been applied.
pub(crate) struct Unknown<T> {
    writes: Vec<Write<T>>,
    /// Whether a write was applied, but has set an end that was too early.
    was_early: bool,
}

/// A write without a reply.
pub(crate) struct Write<T> {
    pub(crate) number: u64,
    pub(crate) expected: Version,
    /// The reply of the step if the write was applied.
    pub(crate) reply: T,
    /// The clock from which the step has computed an end, if it has set one.
    pub(crate) clock: Option<StoreClock>,
}

impl<T> Write<T> {
    /// Returns whether the end was too early according to a later reply, because the clock of the
    /// store was set, or because this process was paused.
    pub(crate) fn is_early(&self, (time, received): Read) -> bool {
        self.clock.is_some_and(|clock| clock.is_behind_of(time, received))
    }
}

impl<T> Unknown<T> {
    pub(crate) fn new() -> Self {
        Self { writes: Vec::new(), was_early: false }
    }

    pub(crate) fn add(&mut self, write: Write<T>) {
        self.writes.push(write);
    }

    /// Returns the reply of the write with this number, which was applied, unless its end was too
    /// early.
    pub(crate) fn applied(&mut self, number: Option<u64>, read: Read) -> Option<T> {
        let position = self.writes.iter().position(|write| Some(write.number) == number)?;
        let write = self.writes.swap_remove(position);
        self.was_early |= write.is_early(read);
        (!write.is_early(read)).then_some(write.reply)
    }

    /// Records that a write was applied, but has set an end that was too early.
    pub(crate) fn was_early(&mut self) {
        self.was_early = true;
    }

    /// Returns whether a write may have been applied.
    pub(crate) fn is_possible(&self) -> bool {
        self.was_early || !self.writes.is_empty()
    }

    /// Returns whether the store may still apply a write to this version.
    pub(crate) fn may_replace(&self, version: &Version) -> bool {
        self.writes.iter().any(|write| write.expected == *version)
    }

    pub(crate) fn are_too_many(&self) -> bool {
        self.writes.len() >= MOST
    }

    /// Returns the error of the operation after this error of a request.
    pub(crate) fn error(&self, error: Error) -> Error {
        if !self.is_possible() {
            return error;
        }
        let message = "the reply to a write was lost, so the outcome is unknown";
        Error::new(ErrorKind::Indeterminate, message).with_source(error)
    }
}
