//! Some of the keys that are in use.

use crate::contract::key::LockKey;

/// Some of the keys that a store has leases or queues for: the answer to [`LockBackend::list`](crate::backend::LockBackend::list).
///
/// See [`Admin::list`](crate::admin::Admin::list) for an example.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyPage {
    keys: Vec<LockKey>,
    next: Option<String>,
}

impl KeyPage {
    /// Creates the last page, with these keys.
    pub fn new(keys: Vec<LockKey>) -> Self {
        Self { keys, next: None }
    }

    /// Says where the next page begins, in words that only the store reads.
    #[must_use]
    pub fn with_next(mut self, next: Option<String>) -> Self {
        self.next = next;
        self
    }

    /// The keys, none of them twice.
    pub fn keys(&self) -> &[LockKey] {
        &self.keys
    }

    /// Where the next page begins; `None` if this is the last.
    pub fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    pub(crate) fn into_parts(self) -> (Vec<LockKey>, Option<String>) {
        (self.keys, self.next)
    }
}
