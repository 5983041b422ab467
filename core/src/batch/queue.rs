//! The queued requests.

use std::collections::{HashSet, VecDeque};
use std::mem;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::batch::limits::BatchLimits;
use crate::batch::meter::Queued;
use crate::contract::error::Error;
use crate::contract::key::LockKey;

/// The requests that have not been sent yet.
pub(super) struct Queue<Q, P> {
    /// The urgent requests and the remaining requests. Both lists are in the order in which the
    /// requests were submitted.
    lines: [VecDeque<Entry<Q, P>>; 2],
    /// The number of the next request.
    next: u64,
}

/// A request and its caller.
pub(super) struct Entry<Q, P> {
    number: u64,
    pub(super) queued_at: Instant,
    /// Counts the request in the metrics. `None` after the request was sent.
    pub(super) queued: Option<Queued>,
    pub(super) request: Q,
    /// Receives the reply, or an error if the request was not sent. `None` after the reply.
    pub(super) caller: Option<oneshot::Sender<Result<P, Error>>>,
}

/// The requests that were removed from the queue for a batch.
pub(super) struct Taken<Q, P> {
    pub(super) batch: Vec<Entry<Q, P>>,
    /// The requests whose callers have left. They must be dropped after the mutex of the queue was
    /// unlocked, because dropping a caller may run foreign code.
    pub(super) left: Vec<Entry<Q, P>>,
}

impl<Q, P> Entry<Q, P> {
    /// Returns whether the caller still waits for a reply.
    pub(super) fn is_open(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| !caller.is_closed())
    }
}

impl<Q, P> Queue<Q, P> {
    pub(super) fn new() -> Self {
        Self { lines: [VecDeque::new(), VecDeque::new()], next: 0 }
    }

    /// Returns the number of queued requests.
    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(VecDeque::len).sum()
    }

    /// Returns the number of queued requests that are equally urgent.
    pub(super) fn len_of(&self, is_urgent: bool) -> usize {
        self.lines[usize::from(!is_urgent)].len()
    }

    /// Adds a request at the time `queued_at`. Returns the number of the request.
    pub(super) fn push(
        &mut self,
        request: Q,
        is_urgent: bool,
        queued: Queued,
        queued_at: Instant,
        caller: oneshot::Sender<Result<P, Error>>,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let entry =
            Entry { number, queued_at, queued: Some(queued), request, caller: Some(caller) };
        self.lines[usize::from(!is_urgent)].push_back(entry);
        number
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let is_in = |line: &VecDeque<Entry<Q, P>>| {
            line.binary_search_by_key(&number, |entry| entry.number).is_ok()
        };
        self.lines.iter().any(is_in)
    }

    /// Removes a request.
    pub(super) fn remove(&mut self, number: u64) -> Option<Entry<Q, P>> {
        self.lines.iter_mut().find_map(|line| {
            let index = line.binary_search_by_key(&number, |entry| entry.number).ok()?;
            line.remove(index)
        })
    }

    /// Removes the requests of the next batch, urgent requests first. A batch contains each key
    /// only once.
    pub(super) fn take(
        &mut self,
        limits: &BatchLimits,
        weight: impl Fn(&Q) -> usize,
        key: impl for<'a> Fn(&'a Q) -> Option<&'a LockKey>,
    ) -> Taken<Q, P> {
        let mut taken = Taken { batch: Vec::new(), left: Vec::new() };
        let (mut keys, mut room, mut is_full) = (HashSet::new(), limits.weight, false);
        for line in &mut self.lines {
            let mut later = Vec::new();
            while !is_full
                && taken.batch.len() < limits.requests
                && let Some(entry) = line.pop_front()
            {
                let weight = weight(&entry.request);
                if !entry.is_open() {
                    taken.left.push(entry);
                } else if weight > room && !taken.batch.is_empty() {
                    later.push(entry);
                    is_full = true;
                } else if key(&entry.request).is_some_and(|key| !keys.insert(key.clone())) {
                    later.push(entry);
                } else {
                    room = room.saturating_sub(weight);
                    taken.batch.push(entry);
                }
            }
            later.into_iter().rev().for_each(|entry| line.push_front(entry));
        }
        taken
    }

    /// Removes the equally urgent requests whose callers have left. They must be dropped after the
    /// mutex of the queue was unlocked.
    pub(super) fn take_left(&mut self, is_urgent: bool) -> VecDeque<Entry<Q, P>> {
        let line = &mut self.lines[usize::from(!is_urgent)];
        if line.iter().all(Entry::is_open) {
            return VecDeque::new();
        }
        let (open, left) = mem::take(line).into_iter().partition(Entry::is_open);
        *line = open;
        left
    }

    /// Removes all requests.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Entry<Q, P>> + use<Q, P> {
        mem::take(&mut self.lines).into_iter().flatten()
    }
}
