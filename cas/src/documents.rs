//! Reads a document, applies a step, and writes the document if its version has not changed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::sync::{Mutex as AsyncMutex, OnceCell, OwnedMutexGuard};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::clock::{Reading, StoreClock};
use crate::observed::Observed;
use crate::state::{Now, REQUEST, State};
use crate::store::{CasStore, Facts, Loaded, Version, Written};
use crate::stored::Stored;

/// How often a step is applied to a new version of the document until the caller gets an error.
const MOST_ATTEMPTS: u32 = 32;

/// The number of writes without a reply until the caller gets an error.
const MOST_UNKNOWN: usize = 4;

/// The longest pause after a conflict.
const LONGEST_PAUSE: Duration = Duration::from_millis(128);

/// How long a step waits for its turn. A caller may stop polling its future while it has the turn,
/// and must not delay renewals for long. Turns only avoid conflicts, so a step may begin without
/// its turn.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// The number of keys whose documents are remembered.
const MOST_KNOWN: usize = 4_096;

/// The key of the document that shows whether the store compares versions. It cannot be locked.
const PROBED: &str = "leasehold:probe";

/// The documents of a store.
#[derive(Debug)]
pub(crate) struct Documents<S> {
    pub(crate) store: S,
    pub(crate) facts: Facts,
    clock: Arc<dyn Clock>,
    store_clock: Mutex<StoreClock>,
    probed: OnceCell<()>,
    known: Mutex<HashMap<LockKey, Known>>,
    /// Steps on the same key take turns. Otherwise, one step would cause the write of another step
    /// to fail.
    turns: Turns,
}

type Turns = Mutex<HashMap<LockKey, Arc<AsyncMutex<()>>>>;

/// The last known document of a key, and the observed renewals.
#[derive(Debug, Default)]
struct Known {
    document: Option<(Version, Stored)>,
    observed: Observed,
}

/// A write without a reply.
struct Unknown<T> {
    write: u64,
    /// The reply of the step if the write was applied.
    reply: T,
    /// The clock from which the step has computed an end.
    clock: Option<StoreClock>,
}

/// The time of the store in a reply, and the local time when the reply was received.
type Read = (Reading, i64);

/// The turn of a step, or a wait for it.
struct Turn<'a> {
    turns: &'a Turns,
    key: &'a LockKey,
    guard: Option<OwnedMutexGuard<()>>,
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
            turns: Mutex::default(),
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
        let turn = Turn::new(&self.turns, key).await;
        self.probed.get_or_try_init(|| self.probe()).await?;
        let mut remembered = (start == Start::Remembered).then(|| self.remembered(key)).flatten();
        let mut unknown: Vec<Unknown<T>> = Vec::new();
        let mut was_written = false;
        for attempt in 0..MOST_ATTEMPTS {
            let is_remembered = remembered.is_some();
            let (version, stored, read) = match remembered.take() {
                Some((version, stored)) => (version, stored, None),
                None => match self.load(key, start).await {
                    Ok(loaded) => loaded,
                    Err(error) if unknown.is_empty() && !was_written => return Err(error),
                    Err(error) => return Err(unknown_outcome(error)),
                },
            };
            let applied = unknown.iter().position(|one| stored.write == Some(one.write));
            if let Some(position) = applied {
                let Unknown { reply, clock, .. } = unknown.swap_remove(position);
                let is_early = clock.zip(read).is_some_and(|(clock, read)| is_early(clock, read));
                if !is_early {
                    return Ok(reply);
                }
                was_written = true;
            }
            let clock = *unpoisoned(&self.store_clock);
            let mut state = self.state(key, stored, clock);
            state.may_be_applied = !unknown.is_empty() || was_written;
            let done = step(&mut state);
            if is_remembered && (done.is_err() || !state.is_changed() || state.needs_read) {
                continue;
            }
            let reply = done?;
            if !state.is_changed() {
                return Ok(reply);
            }
            let (write, sent) = (unique_number(), self.local());
            let set_by = state.prolongs().then_some(clock);
            let stored = state.written(write);
            match self.store.write(key, &version, &stored.to_text(write)).await {
                Ok(Written::Written { version, time }) => {
                    let (document, read) = ((version, stored), (time, self.local()));
                    self.remember(key, document.clone(), time, sent, Some(write));
                    if !set_by.is_some_and(|clock| is_early(clock, read)) {
                        return Ok(reply);
                    }
                    remembered = Some(document);
                    was_written = true;
                }
                Ok(Written::Conflict) => {
                    if self.facts.may_repeat {
                        unknown.push(Unknown { write, reply, clock: set_by });
                    }
                    sleep(pause(attempt)).await;
                }
                // The next read shows whether the write was applied. A pause would allow another
                // client to replace the document.
                Err(error) if error.kind() == ErrorKind::Indeterminate => {
                    unknown.push(Unknown { write, reply, clock: set_by });
                    if unknown.len() >= MOST_UNKNOWN {
                        return Err(error);
                    }
                }
                Err(error) if unknown.is_empty() && !was_written => return Err(error),
                Err(error) => return Err(unknown_outcome(error)),
            }
        }
        drop(turn);
        let message = "other clients change the document of the key all the time; retry later";
        let error = Error::new(ErrorKind::Unavailable, message);
        Err(if unknown.is_empty() && !was_written { error } else { unknown_outcome(error) })
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
        let document = unpoisoned(&self.known).get(key)?.document.clone()?;
        let entry = &document.1.document.entry;
        let ends = entry.holders.iter().map(|held| held.ends);
        let mut ends = ends.chain(entry.queue.iter().map(|waiter| waiter.ends));
        ends.all(|end| latest < end).then_some(document)
    }

    /// Reads the document of a key. Also returns the time of the store, and the local time of the
    /// reply.
    async fn load(
        &self,
        key: &LockKey,
        start: Start,
    ) -> Result<(Version, Stored, Option<Read>), Error> {
        let sent = self.local();
        let Loaded { document, version, time } = self.store.load(key).await?;
        let read = Some((time, self.local()));
        let stored = match document.as_deref().map(Stored::parse).transpose() {
            Ok(stored) => stored.unwrap_or_default(),
            // This document is not remembered, because other operations must not replace it.
            Err(_) if start == Start::Overwrite => {
                unpoisoned(&self.store_clock).read(time, sent, self.local());
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
        let timers = stored.timers.iter().map(|(tag, timer)| (*tag, timer.beat));
        let beats = timers.chain(stored.asked.map(|timer| (REQUEST, timer.beat)));
        let mut all = unpoisoned(&self.known);
        if all.len() >= MOST_KNOWN && !all.contains_key(key) {
            let any = all.keys().next().cloned();
            any.map(|any| all.remove(&any));
        }
        let known = match all.entry(key.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Known::default()),
        };
        known.observed.see(beats, sent, own);
        known.document = Some(document);
    }

    /// Checks that the store compares the version before it writes.
    async fn probe(&self) -> Result<(), Error> {
        let key = LockKey::new(PROBED).expect("the name is valid");
        for attempt in 0..MOST_ATTEMPTS {
            let Loaded { version: stale, .. } = self.store.load(&key).await?;
            let write = async |expected: &Version| {
                let document = Stored::default().to_text(unique_number());
                match self.store.write(&key, expected, &document).await {
                    Ok(Written::Written { .. }) => Ok(Some(true)),
                    Ok(Written::Conflict) => Ok(Some(false)),
                    Err(error) if error.kind() == ErrorKind::Indeterminate => Ok(None),
                    Err(error) => Err(error),
                }
            };
            if write(&stale).await? == Some(true) {
                match (write(&stale).await?, write(&Version::Absent).await?) {
                    (Some(false), Some(false)) => return Ok(()),
                    (Some(true), _) | (_, Some(true)) => return Err(ignores_conditions()),
                    (None, _) | (_, None) => {}
                }
            }
            sleep(pause(attempt)).await;
        }
        let message = "other clients check the store all the time; retry later";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Returns the time of this process in microseconds.
    fn local(&self) -> i64 {
        let since = self.clock.now().since(Instant::from_zero(Duration::ZERO));
        since.as_micros().try_into().unwrap_or(i64::MAX)
    }
}

impl<'a> Turn<'a> {
    async fn new(turns: &'a Turns, key: &'a LockKey) -> Self {
        let mutex = Arc::clone(unpoisoned(turns).entry(key.clone()).or_default());
        // If the caller leaves while it waits, the turn is dropped.
        let mut turn = Self { turns, key, guard: None };
        turn.guard = timeout(LONGEST_WAIT, mutex.lock_owned()).await.ok();
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = unpoisoned(self.turns);
        self.guard = None;
        if turns.get(self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            turns.remove(self.key);
        }
    }
}

/// Returns whether an end that was computed from `clock` is too early according to a later reply.
/// The clock of the store was set, or this process was paused.
fn is_early(clock: StoreClock, (time, received): Read) -> bool {
    clock.is_behind_of(time, received)
}

/// Returns a number that no other write has, even if this process is a copy of another one.
fn unique_number() -> u64 {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high ^ low
}

/// Returns a random pause, which becomes longer with each conflict.
fn pause(attempt: u32) -> Duration {
    let longest = Duration::from_millis(1 << attempt.min(7)).min(LONGEST_PAUSE);
    longest.mul_f64(fastrand::f64())
}

/// Creates the error of an operation that may have been applied before another request failed.
fn unknown_outcome(error: Error) -> Error {
    let message = "the reply to a write was lost, so the outcome is unknown";
    Error::new(ErrorKind::Indeterminate, message).with_source(error)
}

fn ignores_conditions() -> Error {
    let message = "the store ignores the condition of a write, so it cannot exclude clients; use a store with conditional writes";
    Error::new(ErrorKind::Unsupported, message)
}
