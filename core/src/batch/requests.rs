//! The requests of one batch.

use std::fmt;

use crate::batch::queue::Entry;

/// Requests that are sent together.
///
/// If this value is dropped, all callers without a reply receive an error that says that the
/// outcome of their requests is unknown.
///
/// See [`Batcher`](super::Batcher) for an example.
pub struct Batch<Q, P>(Vec<Entry<Q, P>>);

impl<Q, P> Batch<Q, P> {
    pub(super) fn new(entries: Vec<Entry<Q, P>>) -> Self {
        Self(entries)
    }

    /// Returns the requests whose callers still wait for a reply, with the index of each request,
    /// urgent requests first.
    ///
    /// If a batch must be sent again, this method excludes callers that have left in the meantime,
    /// because their next requests may already have been sent. Call it at the moment of sending.
    pub fn open(&self) -> impl Iterator<Item = (usize, &Q)> {
        let open = self.0.iter().enumerate().filter(|(_index, entry)| entry.is_open());
        open.map(|(index, entry)| (index, &entry.request))
    }

    /// Replies to the request at `index`. A second reply to a request is ignored.
    ///
    /// # Panics
    ///
    /// Panics if the batch does not contain a request with this index.
    pub fn answer(&mut self, index: usize, reply: P) {
        if let Some(caller) = self.0[index].caller.take() {
            // A caller that has left does not need the reply.
            let _ = caller.send(Ok(reply));
        }
    }

    /// Replies to all requests that do not have a reply yet.
    pub fn answer_all(&mut self, mut reply: impl FnMut(&Q) -> P) {
        for entry in &mut self.0 {
            if let Some(caller) = entry.caller.take() {
                let _ = caller.send(Ok(reply(&entry.request)));
            }
        }
    }
}

impl<Q, P> fmt::Debug for Batch<Q, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("requests", &self.0.len()).finish_non_exhaustive()
    }
}
