//! Reads a document, applies a step, and writes the document if its version has not changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold_core::backend::unpoisoned;
use leasehold_core::clock::Clock;
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::sync::OnceCell;

use crate::clock::{Reading, StoreClock, micros};
use crate::observed::Observed;
use crate::pause::pause;
use crate::probe::{PROBED, probe};
use crate::state::{Now, REQUEST, State};
use crate::store::{CasStore, Facts, Loaded, Version, Written};
use crate::stored::Stored;
use crate::turns::Turns;
use crate::unknown::{Read, Unknown, Write};

/// How often a step is applied to a new version of the document until the caller gets an error.
const MOST_ATTEMPTS: u32 = 32;

/// The number of keys whose documents are remembered.
const MOST_KNOWN: usize = 4_096;

/// The documents of a store.
#[derive(Debug)]
pub(crate) struct Documents<S> {
    pub(crate) store: S,
    pub(crate) facts: Facts,
    clock: Arc<dyn Clock>,
    store_clock: Mutex<StoreClock>,
    probed: OnceCell<()>,
    known: Mutex<HashMap<LockKey, Known>>,
    turns: Turns,
}

/// The last known document of a key, and the observed renewals.
#[derive(Debug)]
struct Known {
    document: (Version, Stored),
    observed: Observed,
}

/// How a step may begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Start {
    /// With the remembered document, because the outcome matters only if the document was written.
    Remembered,
    /// With a read.
    Read,
    /// With a read. A document that this version cannot read is replaced.
    Overwrite,
}

impl<S: CasStore> Documents<S> {
    pub(crate) fn new(store: S, clock: Arc<dyn Clock>) -> Self {
        let facts = store.facts();
        let skew = facts.skew.as_micros().try_into().unwrap_or(i64::MAX);
        Self {
            facts,
            store,
            clock,
            store_clock: Mutex::new(StoreClock::new(skew)),
            probed: OnceCell::new(),
            known: Mutex::default(),
            turns: Turns::default(),
        }
    }

    /// Applies `step` to the document of a key, and writes the document atomically. `step` may be
    /// called several times. Its last call determines the reply. `step` must act only on leases
    /// that its first call has found.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Indeterminate`] if a reply was lost, unless the document shows the
    /// outcome. Returns [`ErrorKind::Unavailable`] if other clients write the document all the
    /// time.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may apply a write later, unless another write changes
    /// the version.
    pub(crate) async fn step<T: Send>(
        &self,
        key: &LockKey,
        start: Start,
        mut step: impl FnMut(&mut State) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        if key.as_str() == PROBED {
            let message =
                "the name is reserved for the check of the store; choose a different name";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let _turn = self.turns.wait(key).await;
        self.probed.get_or_try_init(|| probe(&self.store)).await?;
        let mut remembered = (start == Start::Remembered).then(|| self.remembered(key)).flatten();
        let mut unknown = Unknown::new();
        for attempt in 0..MOST_ATTEMPTS {
            let is_remembered = remembered.is_some();
            let (version, stored) = match remembered.take() {
                Some(document) => document,
                None => {
                    let loaded = self.load(key, start).await;
                    let (version, stored, read) = loaded.map_err(|error| unknown.error(error))?;
                    if let Some(reply) = unknown.applied(stored.write, read) {
                        return Ok(reply);
                    }
                    (version, stored)
                }
            };
            let clock = *unpoisoned(&self.store_clock);
            let mut state = self.state(key, stored, clock);
            state.may_be_applied = unknown.is_possible();
            let done = step(&mut state);
            if is_remembered && (done.is_err() || !state.is_changed() || state.needs_read) {
                continue;
            }
            let reply = done?;
            if !state.is_changed() && !unknown.may_replace(&version) {
                return Ok(reply);
            }
            let (number, sent) = (Stored::unique_number(), self.local());
            let clock = state.prolongs().then_some(clock);
            let stored = state.written(number);
            let written = self.store.write(key, &version, &stored.to_text(number)).await;
            let write = Write { number, expected: version, reply, clock };
            match written {
                Ok(Written::Written { version, time }) => {
                    let (document, read) = ((version, stored), (time, self.local()));
                    self.remember(key, document.clone(), time, sent, Some(number));
                    if !write.is_early(read) {
                        return Ok(write.reply);
                    }
                    unknown.was_early();
                    remembered = Some(document);
                }
                Ok(Written::Conflict) => {
                    if self.facts.may_repeat {
                        unknown.add(write);
                    }
                    pause(attempt).await;
                }
                // The next read shows whether the write was applied. A pause would allow another
                // client to replace the document.
                Err(error) if error.kind() == ErrorKind::Indeterminate => {
                    unknown.add(write);
                    if unknown.are_too_many() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(unknown.error(error)),
            }
        }
        let message = "other clients change the document of the key all the time; retry later";
        Err(unknown.error(Error::new(ErrorKind::Unavailable, message)))
    }

    fn state(&self, key: &LockKey, stored: Stored, clock: StoreClock) -> State {
        let local = self.local();
        let store = clock.bounds_at(local).expect("each reply contains the time");
        let known = unpoisoned(&self.known);
        let observed = known.get(key).map(|known| &known.observed);
        State::new(
            stored,
            observed.unwrap_or(&Observed::default()),
            Now { local, store, skew: clock.skew },
        )
    }

    /// Returns the remembered document of a key, unless part of it may have expired, or the time of
    /// the store is not known well enough.
    fn remembered(&self, key: &LockKey) -> Option<(Version, Stored)> {
        let (clock, now) = (*unpoisoned(&self.store_clock), self.local());
        let (_, latest) = clock.bounds_at(now).filter(|_| clock.is_fresh(now))?;
        let document = unpoisoned(&self.known).get(key)?.document.clone();
        let entry = &document.1.document.entry;
        let ends = entry.holders.iter().map(|held| held.ends);
        let mut ends = ends.chain(entry.queue.iter().map(|waiter| waiter.ends));
        ends.all(|end| latest < end).then_some(document)
    }

    /// Reads the document of a key. Also returns the time of the store, and the local time of the
    /// reply.
    async fn load(&self, key: &LockKey, start: Start) -> Result<(Version, Stored, Read), Error> {
        let sent = self.local();
        let Loaded { document, version, time } = self.store.load(key).await?;
        let read = (time, self.local());
        let stored = match document.as_deref().map(Stored::parse).transpose() {
            Ok(stored) => stored.unwrap_or_default(),
            // This document is not remembered, because other operations must not replace it.
            Err(_) if start == Start::Overwrite => {
                unpoisoned(&self.store_clock).read(time, sent, read.1);
                return Ok((version, Stored::unreadable(), read));
            }
            Err(error) => return Err(error),
        };
        self.remember(key, (version.clone(), stored.clone()), time, sent, None);
        Ok((version, stored, read))
    }

    /// Returns whether a key is in use, without remembering its document. A document that this
    /// version cannot read counts as in use.
    pub(crate) async fn is_in_use(&self, key: &LockKey) -> Result<bool, Error> {
        let sent = self.local();
        let Loaded { document, time, .. } = self.store.load(key).await?;
        unpoisoned(&self.store_clock).read(time, sent, self.local());
        let Some(stored) = document.as_deref().map(Stored::parse) else { return Ok(false) };
        let clock = *unpoisoned(&self.store_clock);
        Ok(stored.map_or(true, |stored| !self.state(key, stored, clock).entry().is_empty()))
    }

    /// Remembers a document that was read, or written with the number `own`, by a request that was
    /// `sent` at this time.
    fn remember(
        &self,
        key: &LockKey,
        document: (Version, Stored),
        time: Reading,
        sent: i64,
        own: Option<u64>,
    ) {
        unpoisoned(&self.store_clock).read(time, sent, self.local());
        let stored = &document.1;
        let timers = stored.timers.iter().map(|(tag, timer)| (*tag, timer.write));
        let writes = timers.chain(stored.asked.map(|timer| (REQUEST, timer.write)));
        let mut all = unpoisoned(&self.known);
        let mut observed = all.remove(key).map(|known| known.observed).unwrap_or_default();
        observed.see(writes, sent, own);
        if all.len() >= MOST_KNOWN {
            let any = all.keys().next().cloned();
            any.map(|any| all.remove(&any));
        }
        all.insert(key.clone(), Known { document, observed });
    }

    /// Returns the time of this process in microseconds.
    fn local(&self) -> i64 {
        micros(&*self.clock)
    }
}
