//! The keys that are in use.

use std::fmt;
use std::sync::Arc;

use crate::contract::backend::Operation;
use crate::contract::error::Error;
use crate::contract::key::LockKey;
use crate::engine::pipeline::Engine;

/// The keys in use whose names begin alike, page by page: made by [`Admin::list`](crate::admin::Admin::list).
///
/// It holds no page but the one that it gives away, however many keys there are.
///
/// See [`Admin::list`](crate::admin::Admin::list) for an example.
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
            let backend = self.engine.store()?;
            let page = backend.list(&self.prefix, self.next.as_deref()).await.map_err(|error| {
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
