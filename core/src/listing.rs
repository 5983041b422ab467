//! The keys that are in use.

use std::fmt;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::{Error, Operation};
use crate::key::LockKey;

/// Some of the keys that a store has leases or queues for: the answer to [`LockBackend::list`](crate::LockBackend::list).
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
}

/// The keys in use whose names begin alike, page by page: made by [`Admin::list`](crate::Admin::list).
///
/// It holds no page but the one that it gives away, however many keys there are.
pub struct KeyList {
    engine: Arc<Engine>,
    prefix: String,
    next: Option<String>,
    is_over: bool,
}

impl KeyList {
    pub(crate) fn new(engine: Arc<Engine>, prefix: String) -> Self {
        Self { engine, prefix, next: None, is_over: false }
    }

    /// Asks for the next page that has any keys; `None` after the last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot list keys,
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) if this user may not. After an error, the same page may be asked for again.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the next call asks for the same page.
    pub async fn next_page(&mut self) -> Result<Option<Vec<LockKey>>, Error> {
        while !self.is_over {
            let backend = self.engine.backend();
            let page = backend.list(&self.prefix, self.next.as_deref()).await.map_err(|error| {
                error.with_operation(Operation::List).with_backend(backend.capabilities().name())
            })?;
            let KeyPage { keys, next } = page;
            self.is_over = next.is_none();
            self.next = next;
            if !keys.is_empty() {
                return Ok(Some(keys));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for KeyList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyList").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
