//! The requests of several callers, which are sent together and share one allocation and one mutex.

use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::backend::{Claim, Grant, Lease};
use leasehold_core::{Error, ErrorKind};

use crate::call::Call;
use crate::connection::is_unknown;
use crate::driver::{Request, Run};
use crate::error::ServerError;
use crate::layout::{Layout, Place};
use crate::reply::{Received, Reply, unexpected};
use crate::script::Script;
use crate::words::{Shape, Words, millis};

/// The maximum number of callers in a batch. A full batch keeps a server busy for about 1 ms.
pub(super) const MAX_CALLERS: usize = 128;

/// The maximum size of a batch in bytes, unless the batch has only one caller. A connection sends
/// this number of bytes at a time.
const MAX_BYTES: usize = 64 * 1024;

/// A change of a mutex.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Change {
    // Releases are listed first, because they precede acquisitions.
    Release,
    Acquire,
}

/// The outcome for one caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// The mutex was acquired with this token and `spare` additional tokens.
    Granted {
        token: i64,
        spare: u32,
    },
    Released,
    /// Nothing was done. The lock needs the script for a single lock.
    LeftAlone,
    /// Nothing was done. The server does not have the lock's hash slot, or does not support scripts
    /// for locks of several slots.
    Elsewhere,
    /// The script for many locks ran, but its reply cannot be read.
    Senseless,
    /// The caller's own script ran or was rejected.
    Received(Received),
}

impl Outcome {
    /// Returns the grant of a claim in a batch, if it was granted. The first renewal of the lease
    /// enables notifications.
    pub(crate) fn into_grant(self, claim: &Claim) -> Result<Option<Grant>, Error> {
        match self {
            Self::Granted { token, spare } => {
                let token = u64::try_from(token).ok().and_then(NonZeroU64::new);
                let grant = Grant::new(token.ok_or_else(unexpected)?).without_news();
                Ok(Some(grant.with_spare_tokens(spare.min(claim.spare_tokens()))))
            }
            Self::LeftAlone | Self::Elsewhere => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// Returns the reply to the caller's own script.
    pub(crate) fn into_received(self) -> Result<Received, Error> {
        match self {
            Self::Received(received) => Ok(received),
            _ => Err(unexpected()),
        }
    }
}

/// Callers whose requests are sent together.
pub(crate) struct Batch(Mutex<Callers>);

struct Callers {
    /// The keys and arguments of the mutexes.
    words: Words,
    /// The total size of the callers' own scripts in bytes.
    bytes_of_calls: usize,
    callers: Vec<Caller>,
    /// After the batch has ended, the error for all callers without an outcome.
    end: Option<Error>,
}

struct Caller {
    work: Work,
    waker: Option<Waker>,
    has_gone: bool,
    outcome: Option<Outcome>,
}

/// The request of one caller.
enum Work {
    Change(MutexChange),
    Call(Call),
}

/// A change of one mutex.
#[derive(Clone, Copy)]
struct MutexChange {
    change: Change,
    ttl: Duration,
    /// The index of the mutex's name. The name is followed by the mutex's value and, if slots have
    /// separate keys, by the tag of its hash slot.
    name: usize,
}

impl Batch {
    /// Creates a batch with space for `count` callers.
    pub(super) fn of(count: usize) -> Arc<Self> {
        let words = Words::with_capacity(2 * count, 96 * count);
        let callers = Vec::with_capacity(count);
        Arc::new(Self(Mutex::new(Callers { words, bytes_of_calls: 0, callers, end: None })))
    }

    pub(super) fn len(&self) -> usize {
        self.callers().callers.len()
    }

    /// Adds a caller. Returns whether the batch is full afterwards.
    pub(super) fn join(
        self: &Arc<Self>,
        change: Change,
        lease: &Lease,
        layout: &Layout,
    ) -> (Joined, bool) {
        let mut callers = self.callers();
        let name = callers.words.len();
        callers.words.push_lock(layout, lease.key());
        callers.words.push_value(lease);
        if layout.is_by_slot() {
            callers.words.push_tag(layout, lease.key());
        }
        let ttl = if change == Change::Acquire { lease.ttl() } else { Duration::ZERO };
        callers.add(self, Work::Change(MutexChange { change, ttl, name }))
    }

    /// Adds a caller with its own script. Returns whether the batch is full afterwards.
    pub(super) fn join_call(self: &Arc<Self>, call: &Call) -> (Joined, bool) {
        let mut callers = self.callers();
        callers.bytes_of_calls += call.run().words.bytes();
        callers.add(self, Work::Call(call.clone()))
    }

    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callers {
    fn add(&mut self, batch: &Arc<Batch>, work: Work) -> (Joined, bool) {
        let index = self.callers.len();
        self.callers.push(Caller { work, waker: None, has_gone: false, outcome: None });
        (Joined { batch: Arc::clone(batch), index, is_told: false }, self.is_full())
    }

    fn is_full(&self) -> bool {
        let bytes = self.words.bytes() + self.bytes_of_calls;
        self.callers.len() >= MAX_CALLERS || bytes >= MAX_BYTES
    }
}

/// A caller that waits for its outcome.
///
/// # Cancel safety
///
/// This future is cancel safe. A request that has not been sent yet is never sent.
pub(crate) struct Joined {
    batch: Arc<Batch>,
    index: usize,
    is_told: bool,
}

impl Joined {
    pub(super) fn is_in(&self, batch: &Arc<Batch>) -> bool {
        Arc::ptr_eq(&self.batch, batch)
    }
}

impl Future for Joined {
    type Output = Result<Outcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut callers = this.batch.callers();
        let caller = &mut callers.callers[this.index];
        if let Some(outcome) = caller.outcome.take() {
            // The caller must be omitted if the batch is sent again.
            (this.is_told, caller.has_gone) = (true, true);
            return Poll::Ready(Ok(outcome));
        }
        if let Some(error) = &callers.end {
            this.is_told = true;
            return Poll::Ready(Err(error.repeated()));
        }
        let caller = &mut callers.callers[this.index];
        if caller.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let replaced = caller.waker.replace(cx.waker().clone());
        drop(callers);
        // The in-process mutex is unlocked first, because dropping a waker may wake other tasks.
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if self.is_told {
            return;
        }
        let mut callers = self.batch.callers();
        let caller = &mut callers.callers[self.index];
        caller.has_gone = true;
        let waker = caller.waker.take();
        drop(callers);
        drop(waker);
    }
}

/// A batch that is being sent. If this value is dropped before the batch is complete, the outcome
/// is unknown.
pub(super) struct Taken(Arc<Batch>);

impl Taken {
    pub(super) fn new(batch: Arc<Batch>) -> Self {
        Self(batch)
    }

    /// Returns the requests for all callers that still wait for an outcome: one script per TTL, and
    /// then the callers' own scripts.
    pub(super) fn requests(&self, layout: &Layout) -> Requests {
        let callers = self.0.callers();
        let Callers { words, callers, .. } = &*callers;
        let is_open = |caller: &Caller| !caller.has_gone && caller.outcome.is_none();
        let (mut changes, mut own) = (Vec::with_capacity(callers.len()), Vec::new());
        for (index, caller) in callers.iter().enumerate().filter(|(_, caller)| is_open(caller)) {
            match &caller.work {
                Work::Change(change) => changes.push((*change, index)),
                Work::Call(call) => {
                    own.push(OneScript::OfOne { call: call.clone(), caller: index });
                }
            }
        }
        // Callers that share a script are grouped, in their original order.
        changes.sort_by_key(|(change, _)| (change.change, change.ttl));
        let mut requests = Requests {
            words: Words::with_capacity(words.len() + 4, words.bytes() + 64),
            scripts: Vec::with_capacity(1 + own.len()),
        };
        let is_release = |(change, _): &(MutexChange, usize)| change.change == Change::Release;
        let (releases, acquisitions) = changes.split_at(changes.partition_point(is_release));
        let mut of_ttls = acquisitions.chunk_by(|(one, _), (other, _)| one.ttl == other.ttl);
        requests.add(layout, releases, of_ttls.next().unwrap_or_default(), words);
        of_ttls.for_each(|of_ttl| requests.add(layout, &[], of_ttl, words));
        requests.scripts.append(&mut own);
        requests
    }

    /// Stores the outcomes from the replies to `requests`. Returns whether a lock was found on a
    /// different server. Callers of a script that the server does not know do not have an outcome
    /// yet.
    pub(super) fn note(&self, requests: &Requests, replies: Vec<Received>) -> bool {
        let mut callers = self.0.callers();
        for (script, reply) in requests.scripts.iter().zip(replies) {
            if !is_unknown(&reply) {
                script.note(&mut callers.callers, reply);
            }
        }
        callers.callers.iter().any(|caller| caller.outcome == Some(Outcome::Elsewhere))
    }

    /// Ends the batch. Callers without an outcome must send their own requests.
    pub(super) fn finish(&self) {
        self.end(unexpected(), |caller| {
            caller.outcome.get_or_insert_with(|| match caller.work {
                Work::Change(_) => Outcome::LeftAlone,
                Work::Call(_) => Outcome::Received(Err(ServerError::new("NOSCRIPT", "twice"))),
            });
        });
    }

    /// Ends the batch. Callers without an outcome receive this error.
    pub(super) fn fail(&self, error: Error) {
        self.end(error, |_caller| ());
    }

    fn end(&self, error: Error, mut each: impl FnMut(&mut Caller)) {
        let mut callers = self.0.callers();
        let wakers: Vec<Waker> = callers
            .callers
            .iter_mut()
            .filter_map(|caller| {
                each(caller);
                caller.waker.take()
            })
            .collect();
        callers.end = Some(error);
        drop(callers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.0.callers().end.is_none() {
            let message =
                "the runtime that sent the request was shut down, so the outcome is unknown";
            self.fail(Error::new(ErrorKind::Indeterminate, message));
        }
    }
}

/// The scripts of a batch.
pub(super) struct Requests {
    /// The keys and arguments of the scripts for many locks.
    words: Words,
    scripts: Vec<OneScript>,
}

/// One script of a batch.
enum OneScript {
    /// A script for many locks.
    Exchange {
        shape: Shape,
        /// The callers of the script. Releases precede acquisitions.
        callers: Vec<usize>,
        releases: usize,
    },
    /// A caller's own script.
    OfOne { call: Call, caller: usize },
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    pub(super) fn by_hash(&self) -> Vec<Request<'_>> {
        self.scripts.iter().map(|script| Request::ByHash(script.run(&self.words))).collect()
    }

    /// For each script, returns whether the script opts out of notifications.
    pub(super) fn forgo_news(&self) -> impl Iterator<Item = bool> {
        self.scripts.iter().map(|script| matches!(script, OneScript::Exchange { .. }))
    }

    fn add(
        &mut self,
        layout: &Layout,
        releases: &[(MutexChange, usize)],
        acquisitions: &[(MutexChange, usize)],
        from: &Words,
    ) {
        let changes = || releases.iter().chain(acquisitions);
        if changes().next().is_none() {
            return;
        }
        let ttl = acquisitions.first().map_or(Duration::ZERO, |(change, _)| change.ttl);
        let words = &mut self.words;
        words.begin();
        let script = if layout.is_by_slot() {
            words.push_number(releases.len());
            words.push_number(millis(ttl));
            words.push_up_to_tag(layout, Place::Crowd);
            words.push_up_to_tag(layout, Place::Fence);
            let of = |change: &MutexChange| from.in_range(change.name..change.name + 3);
            changes().for_each(|(change, _)| of(change).for_each(|word| words.push(word)));
            Script::ExchangeBySlot
        } else {
            words.push_key(&layout.shared(), Place::Fence);
            words.push_key(&layout.shared(), Place::Crowd);
            changes().for_each(|(change, _)| words.push(from.get(change.name)));
            words.end_keys();
            words.push_number(releases.len());
            words.push_number(millis(ttl));
            changes().for_each(|(change, _)| words.push(from.get(change.name + 1)));
            Script::Exchange
        };
        let shape = words.shape(script);
        let callers = changes().map(|(_, index)| *index).collect();
        self.scripts.push(OneScript::Exchange { shape, callers, releases: releases.len() });
    }
}

impl OneScript {
    fn run<'a>(&'a self, words: &'a Words) -> Run<'a> {
        match self {
            Self::Exchange { shape, .. } => Run { shape, words },
            Self::OfOne { call, .. } => call.run(),
        }
    }

    fn note(&self, callers: &mut [Caller], reply: Received) {
        match self {
            Self::OfOne { caller, .. } => {
                callers[*caller].outcome = Some(Outcome::Received(reply));
            }
            Self::Exchange { shape, callers: of_script, releases } => {
                let (is_by_slot, count) = (shape.script == Script::ExchangeBySlot, of_script.len());
                let outcomes = match reply {
                    Ok(reply) if is_by_slot => outcomes_by_slot(&reply, *releases, count),
                    Ok(reply) => outcomes(&reply, *releases, count),
                    // Each caller will receive this error from the script for a single lock, unless
                    // that script succeeds.
                    Err(_refusal) if is_by_slot => Some(vec![Outcome::Elsewhere; count]),
                    Err(_refusal) => Some(vec![Outcome::LeftAlone; count]),
                };
                let outcomes = outcomes.unwrap_or_else(|| vec![Outcome::Senseless; count]);
                for (index, outcome) in of_script.iter().zip(outcomes) {
                    callers[*index].outcome = Some(outcome);
                }
            }
        }
    }
}

/// Returns the outcomes of `count` changes, the first of which are releases. Returns `None` if the
/// reply cannot be read.
fn outcomes(reply: &Reply, releases: usize, count: usize) -> Option<Vec<Outcome>> {
    let Reply::Array(parts) = reply else { return None };
    let [Reply::Int(first), Reply::Int(share), left_alone @ ..] = &parts[..] else {
        return None;
    };
    let spare = u32::try_from(share.checked_sub(1)?).unwrap_or(u32::MAX);
    let mut outcomes = vec![Outcome::Released; count];
    let mut token = *first;
    for outcome in &mut outcomes[releases..] {
        *outcome = Outcome::Granted { token, spare };
        token = token.checked_add(*share)?;
    }
    for number in left_alone {
        let Reply::Int(number) = number else { return None };
        let index = usize::try_from(*number).ok()?.checked_sub(1)?;
        *outcomes.get_mut(index)? = Outcome::LeftAlone;
    }
    Some(outcomes)
}

/// Returns the outcomes from the reply of the script for locks of several slots.
fn outcomes_by_slot(reply: &Reply, releases: usize, count: usize) -> Option<Vec<Outcome>> {
    let Reply::Array(parts) = reply else { return None };
    let (changes, spares) = parts.split_at_checked(count)?;
    let outcomes = changes.iter().zip(spares).enumerate().map(|(n, part)| match part {
        (Reply::Int(0), _) => Some(Outcome::LeftAlone),
        (Reply::Int(-1), _) => Some(Outcome::Elsewhere),
        (Reply::Int(1), _) if n < releases => Some(Outcome::Released),
        (Reply::Int(token @ 1..), Reply::Int(spare)) if n >= releases => {
            Some(Outcome::Granted { token: *token, spare: u32::try_from(*spare).ok()? })
        }
        _ => None,
    });
    outcomes.collect::<Option<Vec<_>>>().filter(|_| spares.len() == count)
}
