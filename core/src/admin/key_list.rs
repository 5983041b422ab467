//! The list of keys in use.

use std::fmt;
use std::sync::Arc;

use crate::contract::backend::Operation;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::engine::pipeline::Engine;

/// A paged list of the keys in use whose names start with a prefix, as returned by
/// [`Admin::list`](crate::admin::Admin::list).
///
/// Only one page is in memory at a time, regardless of the number of keys.
///
/// See [`Admin::list`](crate::admin::Admin::list) for an example that reads all pages.
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

    /// Returns the next non-empty page, or `None` after the last page.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store cannot list
    /// keys. Returns [`ErrorKind::Denied`](crate::ErrorKind::Denied) if the user does not have the
    /// required permission. After an error, the next call requests the same page again.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped, the next call requests the same page
    /// again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<LockKey>>, Error> {
        while !self.is_over {
            let backend = self.engine.backend();
            let admin = self.engine.admin(Operation::List)?;
            let page = admin.list(&self.prefix, self.next.as_deref()).await.map_err(|error| {
                error.with_operation(Operation::List).with_backend(backend.capabilities().name())
            })?;
            let (keys, next) = page.into_parts();
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
