//! A store in memory, which can behave badly.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_cas::{CasStore, Facts, Loaded, Reading, Version, Written};
use leasehold_core::backend::KeyPage;
use leasehold_core::clock::Clock;
use leasehold_core::{Error, ErrorKind, LockKey};

/// The number of keys on a page.
const PAGE: usize = 100;

/// How a store behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) name: &'static str,
    /// Whether the clock shows whole seconds, as the header `Date` of HTTP.
    pub(crate) is_coarse: bool,
    /// The part of the writes that fail without a cause.
    pub(crate) conflicts: f64,
    /// The part of the replies to writes that are lost.
    pub(crate) lost: f64,
    /// Whether the client library sends a write again if its reply is lost.
    pub(crate) repeats: bool,
}

impl Options {
    pub(crate) const fn exact(name: &'static str) -> Self {
        Self { name, is_coarse: false, conflicts: 0.0, lost: 0.0, repeats: false }
    }
}

/// A client of the store. Clones share the documents.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    pub(crate) documents: Arc<Mutex<HashMap<LockKey, (u64, String)>>>,
    pub(crate) options: Options,
    pub(crate) clock: Arc<dyn Clock>,
}

impl MemoryStore {
    pub(crate) fn new(clock: impl Clock, options: Options) -> Self {
        Self { documents: Arc::default(), clock: Arc::new(clock), options }
    }

    fn time(&self) -> Reading {
        // The clock of the store differs from the clock of the clients.
        let now = 1_700_000_000_000_000 + Reading::of(&*self.clock).earliest;
        if self.options.is_coarse { Reading::seconds(now / 1_000_000) } else { Reading::exact(now) }
    }

    fn write_once(&self, key: &LockKey, expected: &Version, document: &str) -> Written {
        let mut documents = self.documents.lock().unwrap();
        let current = documents.get(key).map(|(version, _)| *version);
        if *expected != current.map_or(Version::Absent, Version::Number) {
            return Written::Conflict;
        }
        let next = current.unwrap_or_default() + 1;
        documents.insert(key.clone(), (next, document.to_owned()));
        Written::Written { version: Version::Number(next), time: self.time() }
    }
}

#[async_trait]
impl CasStore for MemoryStore {
    fn facts(&self) -> Facts {
        let resolution = Duration::from_secs(self.options.is_coarse.into());
        let facts = Facts::new(self.options.name).with_resolution(resolution);
        if self.options.repeats { facts.with_repeated_writes() } else { facts }
    }

    async fn load(&self, key: &LockKey) -> Result<Loaded, Error> {
        let documents = self.documents.lock().unwrap();
        let (document, version) = match documents.get(key) {
            Some((version, document)) => (Some(document.clone()), Version::Number(*version)),
            None => (None, Version::Absent),
        };
        Ok(Loaded { document, version, time: self.time() })
    }

    async fn write(
        &self,
        key: &LockKey,
        expected: &Version,
        document: &str,
    ) -> Result<Written, Error> {
        if fastrand::f64() < self.options.conflicts {
            return Ok(Written::Conflict);
        }
        let written = self.write_once(key, expected, document);
        if fastrand::f64() >= self.options.lost {
            return Ok(written);
        }
        if self.options.repeats {
            return Ok(self.write_once(key, expected, document));
        }
        Err(Error::new(ErrorKind::Indeterminate, "the reply was lost"))
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let documents = self.documents.lock().unwrap();
        let is_meant = |key: &&LockKey| {
            key.as_str().starts_with(prefix) && after.is_none_or(|after| key.as_str() > after)
        };
        let mut keys: Vec<_> = documents.keys().filter(is_meant).cloned().collect();
        keys.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let is_last = keys.len() <= PAGE;
        keys.truncate(PAGE);
        let next = keys.last().filter(|_| !is_last).map(|key| key.as_str().to_owned());
        Ok(KeyPage::new(keys).with_next(next))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
