//! One request to several members, whose replies are returned in the order of arrival.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::Error;
use leasehold_core::clock::{self, Clock, Instant};

/// A member's reply, with the member's number.
pub(super) type Answer<T> = (usize, Result<T, Error>);

/// Requests in progress, one for each of several members.
pub(super) struct Round<T> {
    requests: FuturesUnordered<BoxFuture<'static, Answer<T>>>,
    unheard: BTreeSet<usize>,
}

impl<T> Round<T> {
    pub(super) fn new(
        requests: impl IntoIterator<Item = (usize, BoxFuture<'static, Result<T, Error>>)>,
    ) -> Self
    where
        T: Send + 'static,
    {
        let (mut unheard, under_way) = (BTreeSet::new(), FuturesUnordered::new());
        for (number, request) in requests {
            unheard.insert(number);
            under_way.push(request.map(move |answer| (number, answer)).boxed());
        }
        Self { requests: under_way, unheard }
    }

    /// Returns the next reply, or `None` if all members have replied or no reply arrives before
    /// `ends`.
    pub(super) async fn next(&mut self, clock: &dyn Clock, ends: Instant) -> Option<Answer<T>> {
        let answer = clock::until(clock, ends, self.requests.next()).await.flatten();
        self.heard(answer)
    }

    /// Returns the next reply that has already arrived.
    pub(super) fn next_ready(&mut self) -> Option<Answer<T>> {
        let answer = self.requests.next().now_or_never().flatten();
        self.heard(answer)
    }

    /// Returns the next reply, without a timeout.
    pub(super) async fn next_at_last(&mut self) -> Option<Answer<T>> {
        let answer = self.requests.next().await;
        self.heard(answer)
    }

    /// Returns the members that have not replied.
    pub(super) fn unheard(&self) -> &BTreeSet<usize> {
        &self.unheard
    }

    fn heard(&mut self, answer: Option<Answer<T>>) -> Option<Answer<T>> {
        if let Some((number, _)) = &answer {
            self.unheard.remove(number);
        }
        answer
    }
}
