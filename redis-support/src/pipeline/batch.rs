//! Callers that leave together: one allocation and one lock for all of them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::backend::Lease;
use leasehold_core::{Error, ErrorKind};

use crate::driver::{Received, Request, Run, first_in_full};
use crate::layout::{Layout, Place};
use crate::reply::{Reply, unexpected};
use crate::script::Script;
use crate::words::{Shape, Words, millis};

/// As many callers leave together as keep a server from others for a millisecond or so.
pub(super) const MAX_CALLERS: usize = 128;

/// As many bytes leave together as a connection takes at once, or one caller.
const MAX_BYTES: usize = 64 * 1024;

/// A caller's purpose with a mutex.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Wanted {
    // First, since releases come before acquisitions.
    Release,
    Acquire,
}

/// The outcome for one caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// The mutex was acquired, with this token and so many more.
    Granted {
        token: i64,
        spare: u32,
    },
    Released,
    /// Nothing was done: it takes a script for one lock.
    LeftAlone,
    /// The script ran, and its reply makes no sense.
    Senseless,
}

/// Callers that leave together.
pub(crate) struct Batch(Mutex<Callers>);

struct Callers {
    /// The name and the value of each lock.
    words: Words,
    callers: Vec<Caller>,
    /// The end of the batch, and the error for the callers without an outcome.
    end: Option<Error>,
}

struct Caller {
    wanted: Wanted,
    ttl: Duration,
    slot: u16,
    waker: Option<Waker>,
    has_gone: bool,
    outcome: Option<Outcome>,
}

impl Batch {
    /// A batch of probably so many callers.
    pub(super) fn of(count: usize) -> Arc<Self> {
        let words = Words::with_capacity(2 * count, 96 * count);
        let callers = Vec::with_capacity(count);
        Arc::new(Self(Mutex::new(Callers { words, callers, end: None })))
    }

    pub(super) fn len(&self) -> usize {
        self.callers().callers.len()
    }

    pub(super) fn is_full(&self) -> bool {
        let callers = self.callers();
        callers.callers.len() >= MAX_CALLERS || callers.words.bytes() >= MAX_BYTES
    }

    pub(super) fn join(self: &Arc<Self>, wanted: Wanted, lease: &Lease, layout: &Layout) -> Joined {
        let mut callers = self.callers();
        callers.words.push_lock(layout, lease.key());
        callers.words.push_value(lease);
        let ttl = if wanted == Wanted::Acquire { lease.ttl() } else { Duration::ZERO };
        let slot = layout.slot(lease.key());
        let index = callers.callers.len();
        let (waker, has_gone, outcome) = (None, false, None);
        callers.callers.push(Caller { wanted, ttl, slot, waker, has_gone, outcome });
        drop(callers);
        Joined { batch: Arc::clone(self), index, is_told: false }
    }

    fn callers(&self) -> MutexGuard<'_, Callers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for its outcome.
///
/// # Cancel safety
///
/// Safe to drop. A request that was not sent yet is not sent any more.
pub(crate) struct Joined {
    batch: Arc<Batch>,
    index: usize,
    is_told: bool,
}

impl Future for Joined {
    type Output = Result<Outcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut callers = this.batch.callers();
        let caller = &mut callers.callers[this.index];
        if let Some(outcome) = caller.outcome {
            this.is_told = true;
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
        // After the lock is released, since dropping a waker may wake other tasks.
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

/// A batch on its way. Dropped before it is complete, its outcome is unknown.
pub(super) struct Taken(Arc<Batch>);

impl Taken {
    pub(super) fn new(batch: Arc<Batch>) -> Self {
        Self(batch)
    }

    /// The scripts for the callers that are still there: one for each hash slot and TTL.
    pub(super) fn scripts(&self, layout: &Layout) -> Scripts {
        let callers = self.0.callers();
        let Callers { words, callers, .. } = &*callers;
        let is_open = |index: &usize| {
            let caller = &callers[*index];
            !caller.has_gone && caller.outcome.is_none()
        };
        let mut order: Vec<usize> = (0..callers.len()).filter(is_open).collect();
        order.sort_unstable_by_key(|index| {
            let caller = &callers[*index];
            (caller.slot, caller.wanted, caller.ttl, *index)
        });
        let mut scripts = Scripts {
            words: Words::with_capacity(2 * order.len() + 4, words.bytes() + 64),
            scripts: Vec::with_capacity(1),
        };
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let slot = callers[*first].slot;
            let of_slot = |index: &usize| callers[*index].slot == slot;
            let releases = rest
                .iter()
                .take_while(|index| of_slot(index) && callers[**index].wanted == Wanted::Release)
                .count();
            let ttl = rest.get(releases).filter(|index| of_slot(index));
            let ttl = ttl.map_or(Duration::ZERO, |index| callers[*index].ttl);
            let is_like = |index: &&usize| of_slot(index) && callers[**index].ttl == ttl;
            let acquisitions = rest[releases..].iter().take_while(is_like).count();
            let (now, later) = rest.split_at(releases + acquisitions);
            rest = later;
            scripts.add(layout, slot, (now, releases), ttl, words);
        }
        scripts
    }

    /// Notes the outcomes that the replies to `scripts` tell. A script that the server does not know has none.
    pub(super) fn note(&self, scripts: &Scripts, replies: &[Received]) {
        let mut callers = self.0.callers();
        for (script, reply) in scripts.scripts.iter().zip(replies) {
            script.note(&mut callers.callers, reply);
        }
    }

    /// Tells all callers that have no outcome to go on alone, and the others their outcomes.
    pub(super) fn finish(&self) {
        self.end(unexpected(), |caller| {
            caller.outcome.get_or_insert(Outcome::LeftAlone);
        });
    }

    /// Tells all callers that have no outcome of an error, and the others their outcomes.
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
            let message = "the runtime that ran it has ended, outcome unknown";
            self.fail(Error::new(ErrorKind::Indeterminate, message));
        }
    }
}

/// The scripts of a batch.
pub(super) struct Scripts {
    words: Words,
    scripts: Vec<OneScript>,
}

/// One of them.
struct OneScript {
    shape: Shape,
    /// Its callers: first those that release.
    callers: Vec<usize>,
    releases: usize,
}

impl Scripts {
    pub(super) fn by_hash(&self) -> Vec<Request<'_>> {
        self.runs().map(Request::ByHash).collect()
    }

    pub(super) fn by_source(&self) -> Vec<Request<'_>> {
        first_in_full(self.by_hash())
    }

    fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        self.scripts.iter().map(|script| Run { shape: &script.shape, words: &self.words })
    }

    fn add(
        &mut self,
        layout: &Layout,
        slot: u16,
        (callers, releases): (&[usize], usize),
        ttl: Duration,
        from: &Words,
    ) {
        let words = &mut self.words;
        let shared = layout.shared_in(slot);
        words.begin();
        words.push_key(&shared, Place::Fence);
        words.push_key(&shared, Place::Crowd);
        callers.iter().for_each(|index| words.push(from.get(2 * index)));
        words.end_keys();
        words.push_number(releases);
        words.push_number(millis(ttl));
        callers.iter().for_each(|index| words.push(from.get(2 * index + 1)));
        let shape = words.shape(Script::Exchange);
        self.scripts.push(OneScript { shape, callers: callers.to_vec(), releases });
    }
}

impl OneScript {
    fn note(&self, callers: &mut [Caller], reply: &Received) {
        let outcomes = match reply {
            Ok(reply) => self.outcomes(reply),
            Err(refusal) if refusal.is_no_script() => return,
            // Each hears of it by the script for one lock, unless that fares better.
            Err(_refusal) => Some(vec![Outcome::LeftAlone; self.callers.len()]),
        };
        for (n, index) in self.callers.iter().enumerate() {
            let outcome = outcomes.as_ref().map_or(Outcome::Senseless, |outcomes| outcomes[n]);
            callers[*index].outcome = Some(outcome);
        }
    }

    /// The outcome for each of its callers; `None` if the reply makes no sense.
    fn outcomes(&self, reply: &Reply) -> Option<Vec<Outcome>> {
        let Reply::Array(parts) = reply else { return None };
        let [Reply::Int(first), Reply::Int(share), left_alone @ ..] = &parts[..] else {
            return None;
        };
        let spare = u32::try_from(share.checked_sub(1)?).unwrap_or(u32::MAX);
        let mut outcomes = vec![Outcome::Released; self.callers.len()];
        let mut token = *first;
        for outcome in &mut outcomes[self.releases..] {
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
}
