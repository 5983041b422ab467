//! The scripts of a batch, and the outcome for each of its callers.

use std::num::NonZeroU64;
use std::time::Duration;

use leasehold_core::backend::{Claim, Grant, Lease};
use leasehold_core::{Description, Error};

use crate::call::Call;
use crate::driver::{Request, Run, in_full};
use crate::error::ServerError;
use crate::layout::{Layout, Place};
use crate::reply::{Received, Reply, unexpected};
use crate::script::Script;
use crate::words::{Shape, Words, millis};

/// A batch of requests to a server.
pub(super) type Batch = leasehold_core::batch::Batch<Work, Result<Outcome, Error>>;

/// The usual size of a lease ID in bytes.
const LEASE_ID: usize = 40;

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

/// The request of one caller.
pub(crate) enum Work {
    Change(Change, Lease),
    Call(Call),
}

impl Work {
    /// Returns the approximate size of the request in bytes.
    pub(super) fn bytes(&self, layout: &Layout) -> usize {
        match self {
            Self::Change(_, lease) => {
                let description = lease.description().map_or("", Description::as_str);
                layout.lock_len(lease.key()) + LEASE_ID + description.len()
            }
            Self::Call(call) => call.run().words.bytes(),
        }
    }

    /// Returns whether the request renews a lease.
    ///
    /// Releases are not urgent. A quorum releases a lease while a vote for the same lease may still
    /// be queued, and `Script::Release` must run after this vote. The release in a shared script
    /// may run before the vote. In this case, the shared script leaves the lock alone, and the
    /// caller then sends `Script::Release`.
    pub(super) fn is_urgent(&self) -> bool {
        match self {
            Self::Change(..) => false,
            Self::Call(call) => {
                matches!(call.script(), Script::Raise | Script::Renew | Script::RenewUnits)
            }
        }
    }
}

/// Answers the requests without an outcome. Their callers must send their own requests.
pub(super) fn finish(batch: &mut Batch) {
    batch.answer_all(|work| match work {
        Work::Change(..) => Ok(Outcome::LeftAlone),
        Work::Call(_) => Ok(Outcome::Received(Err(ServerError::new("NOSCRIPT", "twice")))),
    });
}

/// Answers the requests without an outcome with this error.
pub(super) fn fail(batch: &mut Batch, error: &Error) {
    batch.answer_all(|_work| Err(error.repeated()));
}

/// The scripts of a batch.
pub(super) struct Requests {
    /// The keys and arguments of the scripts for many locks.
    words: Words,
    pub(super) scripts: Vec<OneScript>,
    /// The command that precedes each script for many locks.
    forgo_news: Option<Request<'static>>,
}

/// One script of a batch.
pub(super) enum OneScript {
    /// A script for many locks.
    Exchange {
        shape: Shape,
        /// The indices of the requests in the batch. Releases precede acquisitions.
        requests: Vec<usize>,
        releases: usize,
    },
    /// A caller's own script.
    OfOne { call: Call, request: usize },
}

/// A change of one mutex, and the index of its request in the batch.
struct MutexChange<'a> {
    change: Change,
    lease: &'a Lease,
    request: usize,
}

impl MutexChange<'_> {
    /// Returns the TTL of an acquisition, or zero for a release.
    fn ttl(&self) -> Duration {
        if self.change == Change::Acquire { self.lease.ttl() } else { Duration::ZERO }
    }
}

impl Requests {
    /// Returns the scripts for all callers that still wait for an outcome: one script per TTL, and
    /// then the callers' own scripts. `forgo_news` is the command that opts a script for many locks
    /// out of notifications, if the server supports it.
    pub(super) fn of(batch: &Batch, layout: &Layout, forgo_news: Option<Request<'static>>) -> Self {
        let (mut changes, mut own) = (Vec::new(), Vec::new());
        for (request, work) in batch.open() {
            match work {
                Work::Change(change, lease) => {
                    changes.push(MutexChange { change: *change, lease, request });
                }
                Work::Call(call) => own.push(OneScript::OfOne { call: call.clone(), request }),
            }
        }
        // Changes that share a script are grouped, in their original order.
        changes.sort_by_key(|change| (change.change, change.ttl()));
        let mut requests = Self {
            words: Words::with_capacity(2 * changes.len() + 4, 96 * changes.len() + 64),
            scripts: Vec::with_capacity(1 + own.len()),
            forgo_news,
        };
        let is_release = |change: &MutexChange<'_>| change.change == Change::Release;
        let (releases, acquisitions) = changes.split_at(changes.partition_point(is_release));
        let mut of_ttls = acquisitions.chunk_by(|one, other| one.lease.ttl() == other.lease.ttl());
        requests.add(layout, releases, of_ttls.next().unwrap_or_default());
        of_ttls.for_each(|of_ttl| requests.add(layout, &[], of_ttl));
        requests.scripts.append(&mut own);
        requests
    }

    pub(super) fn by_hash(&self) -> Vec<Request<'_>> {
        let mut requests = Vec::with_capacity(2 * self.scripts.len());
        for script in &self.scripts {
            requests.extend(self.forgo_news.filter(|_| self.forgoes_news(script)));
            requests.push(Request::ByHash(script.run(&self.words)));
        }
        requests
    }

    pub(super) fn in_full(&self) -> Vec<Request<'_>> {
        in_full(self.by_hash())
    }

    /// Returns whether the command that opts out of notifications precedes the script.
    pub(super) fn forgoes_news(&self, script: &OneScript) -> bool {
        self.forgo_news.is_some() && matches!(script, OneScript::Exchange { .. })
    }

    fn add(
        &mut self,
        layout: &Layout,
        releases: &[MutexChange<'_>],
        acquisitions: &[MutexChange<'_>],
    ) {
        let changes = || releases.iter().chain(acquisitions);
        if changes().next().is_none() {
            return;
        }
        let ttl = acquisitions.first().map_or(Duration::ZERO, MutexChange::ttl);
        let words = &mut self.words;
        words.begin();
        let script = if layout.is_by_slot() {
            words.push_number(releases.len());
            words.push_number(millis(ttl));
            words.push_up_to_tag(layout, Place::Contended);
            words.push_up_to_tag(layout, Place::Fence);
            for MutexChange { lease, .. } in changes() {
                words.push_lock(layout, lease.key());
                words.push_value(lease);
                words.push_tag(layout, lease.key());
            }
            Script::ExchangeBySlot
        } else {
            words.push_key(&layout.shared(), Place::Fence);
            words.push_key(&layout.shared(), Place::Contended);
            changes().for_each(|change| words.push_lock(layout, change.lease.key()));
            words.end_keys();
            words.push_number(releases.len());
            words.push_number(millis(ttl));
            changes().for_each(|change| words.push_value(change.lease));
            Script::Exchange
        };
        let shape = words.shape(script);
        let requests = changes().map(|change| change.request).collect();
        self.scripts.push(OneScript::Exchange { shape, requests, releases: releases.len() });
    }
}

impl OneScript {
    fn run<'a>(&'a self, words: &'a Words) -> Run<'a> {
        match self {
            Self::Exchange { shape, .. } => Run { shape, words },
            Self::OfOne { call, .. } => call.run(),
        }
    }

    /// Calls `answer` with the outcome of each request.
    pub(super) fn outcomes(&self, reply: Received, mut answer: impl FnMut(usize, Outcome)) {
        match self {
            Self::OfOne { request, .. } => answer(*request, Outcome::Received(reply)),
            Self::Exchange { shape, requests, releases } => {
                let (is_by_slot, count) = (shape.script == Script::ExchangeBySlot, requests.len());
                let outcomes = match reply {
                    Ok(reply) if is_by_slot => outcomes_by_slot(&reply, *releases, count),
                    Ok(reply) => outcomes(&reply, *releases, count),
                    // Each caller will receive this error from the script for a single lock, unless
                    // that script succeeds.
                    Err(_refusal) if is_by_slot => Some(vec![Outcome::Elsewhere; count]),
                    Err(_refusal) => Some(vec![Outcome::LeftAlone; count]),
                };
                let outcomes = outcomes.unwrap_or_else(|| vec![Outcome::Senseless; count]);
                requests.iter().zip(outcomes).for_each(|(index, outcome)| answer(*index, outcome));
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
