//! Records acquisitions that the database may not have received yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{Shared, join_all};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Acquisitions in progress, by the tags of their leases.
#[derive(Clone, Default)]
pub(super) struct UnderWay(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    begun: u64,
    by_tag: HashMap<Uuid, Vec<Call>>,
}

struct Call {
    id: u64,
    ended: Shared<oneshot::Receiver<()>>,
}

/// An acquisition in progress, until this value is dropped.
pub(super) struct Begun {
    under_way: UnderWay,
    id: u64,
    tags: Vec<Uuid>,
    _ends: oneshot::Sender<()>,
}

impl UnderWay {
    /// Records the acquisition of these leases.
    pub(super) fn begin(&self, tags: impl Iterator<Item = Uuid>) -> Begun {
        let (ends, ended) = oneshot::channel();
        let (ended, tags) = (ended.shared(), tags.collect::<Vec<_>>());
        let mut calls = self.lock();
        calls.begun += 1;
        let id = calls.begun;
        for tag in &tags {
            calls.by_tag.entry(*tag).or_default().push(Call { id, ended: ended.clone() });
        }
        drop(calls);
        Begun { under_way: self.clone(), id, tags, _ends: ends }
    }

    /// Waits until all earlier acquisitions of this lease have completed.
    pub(super) async fn ended(&self, tag: Uuid) {
        let ended = |call: &Call| call.ended.clone();
        let calls: Vec<_> = self.lock().by_tag.get(&tag).into_iter().flatten().map(ended).collect();
        join_all(calls).await;
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        // The map is consistent after every statement, so a panic cannot corrupt it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut calls = self.under_way.lock();
        for tag in &self.tags {
            let Some(others) = calls.by_tag.get_mut(tag) else { continue };
            others.retain(|call| call.id != self.id);
            if others.is_empty() {
                calls.by_tag.remove(tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_waits_for_all_acquisitions_of_its_lease() {
        let (one, other) = (Uuid::nil(), Uuid::max());
        let under_way = UnderWay::default();
        let has_ended = |tag| under_way.ended(tag).now_or_never().is_some();
        let first = under_way.begin([one].into_iter());
        let second = under_way.begin([one, other].into_iter());

        drop(second);
        assert!(has_ended(other) && !has_ended(one));
        drop(first);

        assert!(has_ended(one) && under_way.lock().by_tag.is_empty());
    }
}
