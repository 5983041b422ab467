//! The backend on top of a store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold_core::backend::entry::Step;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, Feature, KeyWatch, KeyWatches, Lease, LockBackend, Operation,
    Release, Renewal, StoreAdmin, Subject, unpoisoned,
};
use leasehold_core::clock::{Clock, SystemClock};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_entry::Tag;
use uuid::Uuid;

use crate::clock::INEXACTNESS;
use crate::documents::{Documents, Start};
use crate::state::State;
use crate::store::CasStore;
use crate::stored::Released;

/// Locks in a store with conditional writes. Clones share the store.
///
/// See the example of [the crate](crate).
pub struct CasBackend<S>(Arc<Inner<S>>);

struct Inner<S> {
    documents: Documents<S>,
    /// The watches of the waiters and observers of this process.
    watches: KeyWatches,
    /// The watches of the holders of this process.
    lease_watches: KeyWatches,
    unanswered: Unanswered,
}

/// The number of acquisitions and renewals of each lease whose outcome is not known, because they
/// are running, their callers have left, or their replies were lost. The store may still apply
/// their writes. A release of such a lease writes in any case. The version then changes, which
/// prevents the late writes.
type Unanswered = Mutex<HashMap<Uuid, usize>>;

/// An acquisition or a renewal. If this value is dropped without an outcome, the request remains
/// unanswered.
struct Request<'a> {
    unanswered: &'a Unanswered,
    tag: Uuid,
}

impl<'a> Request<'a> {
    fn begin(unanswered: &'a Unanswered, tag: &Tag) -> Self {
        *unpoisoned(unanswered).entry(tag.id).or_default() += 1;
        Self { unanswered, tag: tag.id }
    }

    fn end<T>(self, outcome: &Result<T, Error>) {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Indeterminate) {
            return;
        }
        let mut all = unpoisoned(self.unanswered);
        // A release may have removed the entry.
        if let Entry::Occupied(mut count) = all.entry(self.tag) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl<S: CasStore> CasBackend<S> {
    /// Creates a backend. The first request checks whether the store compares versions.
    ///
    /// If it does not, all requests fail with [`ErrorKind::Unsupported`].
    pub fn new(store: S) -> Self {
        Self::with_clock(store, SystemClock)
    }

    /// Creates a backend that measures time with this clock, which is the clock of this process and
    /// not of the store. In driven time, the store and the backend use the same
    /// [`ManualClock`](leasehold_core::clock::ManualClock).
    pub fn with_clock(store: S, clock: impl Clock) -> Self {
        Self(Arc::new(Inner {
            documents: Documents::new(store, Arc::new(clock)),
            watches: KeyWatches::default(),
            lease_watches: KeyWatches::default(),
            unanswered: Unanswered::default(),
        }))
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.0.documents.store
    }

    /// Applies a step, and notifies the waiters and observers of this process of changes.
    pub(crate) async fn step<T: Send>(
        &self,
        key: &LockKey,
        operation: Operation,
        start: Start,
        step: impl FnMut(&mut State) -> Result<Step<T>, Error> + Send,
    ) -> Result<T, Error> {
        let stepped = self.0.documents.step(key, start, step).await;
        let may_be_news = match &stepped {
            Ok(step) => step.is_news,
            Err(error) => error.kind() == ErrorKind::Indeterminate,
        };
        if may_be_news {
            self.0.watches.notify(key.as_str());
        }
        stepped.map(|step| step.reply).map_err(|error| {
            let error = error.with_operation(operation).with_key(key);
            error.with_backend(self.0.documents.facts.name)
        })
    }

    pub(crate) fn documents(&self) -> &Documents<S> {
        &self.0.documents
    }

    pub(crate) fn notify_holders(&self, key: &LockKey) {
        self.0.lease_watches.notify(key.as_str());
    }
}

/// Grants or queues a claim.
fn acquire(state: &mut State, tag: Tag, claim: &Claim) -> Result<Step<Attempt>, Error> {
    let (now, tokens) = (state.now(), state.tokens());
    let claim = state.limited(&tag, claim);
    let attempt = state.entry().acquire(tag, &claim, tokens, now)?;
    let is_granted = matches!(attempt.reply, Attempt::Granted(_));
    if is_granted {
        state.released().remove(&tag.id);
    }
    if is_granted || claim.queue_ttl().is_some() {
        state.prolong(&tag);
    }
    // The remembered time is not exact enough to refuse a claim.
    state.needs_read = !is_granted;
    Ok(attempt)
}

/// Renews a lease.
fn renew(state: &mut State, tag: &Tag, lease: &Lease) -> Step<Renewal> {
    let now = state.now();
    let renewed = state.entry().renew(tag, lease, now);
    if matches!(renewed.reply, Renewal::Renewed | Renewal::RevocationRequested) {
        state.prolong(tag);
    }
    renewed
}

/// Releases a lease. `is_unanswered` shows whether the store may still apply a write for this
/// lease. `earlier` contains the released leases at the first call.
fn release(
    state: &mut State,
    tag: &Tag,
    is_unanswered: bool,
    earlier: &mut Option<Released>,
) -> Result<Step<Release>, Error> {
    state.must_write |= is_unanswered;
    let now = state.now();
    let mut step = state.entry().release(tag, now);
    let may_be_applied = state.may_be_applied;
    let released = state.released();
    let earlier = earlier.get_or_insert_with(|| released.clone());
    if step.reply == Release::Released {
        released.add(tag.id);
    } else if may_be_applied && released.contains(&tag.id) {
        step.reply = Release::Released;
        step.is_news = true;
    } else if may_be_applied && !released.contains_all_after(earlier) {
        let message = "the reply to a write was lost, and the document does not show whether the lease was released";
        return Err(Error::new(ErrorKind::Indeterminate, message));
    }
    Ok(step)
}

#[async_trait]
impl<S: CasStore> LockBackend for CasBackend<S> {
    fn capabilities(&self) -> Capabilities {
        let facts = &self.0.documents.facts;
        Capabilities::new(facts.name, facts.fencing)
            .with_ttl_granularity(2 * (facts.skew + facts.resolution) + INEXACTNESS)
            .with(Feature::Queue)
            .with(Feature::SpareTokens)
            .with(Feature::Units)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let tag = Tag::of(&claim.id());
        let request = Request::begin(&self.0.unanswered, &tag);
        let acquire = |state: &mut State| acquire(state, tag, claim);
        let acquired = self.step(claim.key(), Operation::Acquire, Start::Remembered, acquire).await;
        request.end(&acquired);
        acquired
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let tag = Tag::of(&lease.id());
        let request = Request::begin(&self.0.unanswered, &tag);
        let renew = |state: &mut State| Ok(renew(state, &tag, lease));
        let renewed = self.step(lease.key(), Operation::Renew, Start::Remembered, renew).await;
        request.end(&renewed);
        renewed
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let tag = Tag::of(&lease.id());
        let is_unanswered = unpoisoned(&self.0.unanswered).contains_key(&tag.id);
        let mut earlier = None;
        let release = |state: &mut State| release(state, &tag, is_unanswered, &mut earlier);
        let released = self.step(lease.key(), Operation::Release, Start::Remembered, release).await;
        if released.is_ok() {
            unpoisoned(&self.0.unanswered).remove(&tag.id);
        }
        released
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        match subject {
            Subject::Lease(lease) => self.0.lease_watches.watch(lease.key()),
            subject => self.0.watches.watch(subject.key()),
        }
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Some(self)
    }

    fn disconnect(&self) {
        self.store().disconnect();
    }

    async fn close(&self) {
        self.store().close().await;
    }
}

impl<S> Clone for CasBackend<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: fmt::Debug> fmt::Debug for CasBackend<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasBackend").field("store", &self.0.documents.store).finish_non_exhaustive()
    }
}
