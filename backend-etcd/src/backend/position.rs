//! A claim's position in the queue until the claim is granted.

use etcd_client::{Compare, CompareOp};
use leasehold_core::backend::Lease;

use super::keyed_claim::KeyedClaim;
use crate::entry::{self, BETWEEN_HELD_AND_QUEUED, Entry, State};
use crate::queue::Queue;

/// The position of a claim before it is granted.
pub(super) enum Position<'a> {
    /// The queue is expected to be empty.
    First,
    /// The claim has been queued since this revision. The claims before it may have left the queue.
    Queued(i64),
    /// The queue was read and admits the claim. The entry is the claim's queue entry, if it has
    /// one.
    Seen(&'a Queue, Option<&'a Entry>),
}

impl<'a> Position<'a> {
    pub(super) fn of(
        keyed: &KeyedClaim<'_>,
        seen: Option<&'a Queue>,
        queues_since: Option<i64>,
    ) -> Self {
        match (seen, queues_since) {
            (Some(queue), _) => Self::Seen(queue, queue.entry(&keyed.tag)),
            // A claim for permits must read the whole queue.
            (None, Some(created)) if keyed.claim.mode().is_mutex() => Self::Queued(created),
            (None, _) => Self::First,
        }
    }

    /// Returns the conditions under which the claim may be granted.
    pub(super) fn is_unchanged(&self, keyed: &KeyedClaim<'_>) -> Vec<Compare> {
        let KeyedClaim { range, entry, .. } = keyed;
        match *self {
            Self::First => vec![range.is_empty()],
            Self::Queued(created) => vec![
                Compare::create_revision(entry.as_str(), CompareOp::Equal, created),
                range.has_come_since(created),
                range.has_values_above(BETWEEN_HELD_AND_QUEUED),
            ],
            // Every entry that was read counts, even if it has been deleted since.
            Self::Seen(queue, None) if queue.is_held_in_units() => {
                vec![range.has_no_arrival_since(queue.revision)]
            }
            // The condition implies that the claim still has no entry.
            Self::Seen(queue, None) => vec![range.is_as_at(queue.revision)],
            Self::Seen(queue, Some(own)) => vec![
                range.is_as_at(queue.revision),
                Compare::create_revision(own.key.as_slice(), CompareOp::Equal, own.created),
            ],
        }
    }

    /// Returns whether the claim finds the lock free, or has found it free in an earlier attempt.
    pub(super) fn is_first(&self, keyed: &KeyedClaim<'_>) -> bool {
        match self {
            Self::First => true,
            Self::Queued(_) => false,
            Self::Seen(queue, None) => queue.is_empty(),
            Self::Seen(_, Some(own)) => own.key == keyed.first.as_bytes(),
        }
    }

    /// Returns whether the claim has no entry yet.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::First | Self::Seen(_, None))
    }

    /// Returns whether the lock was free until this claim was granted.
    pub(super) fn is_free(&self) -> bool {
        match self {
            Self::First | Self::Queued(_) => true,
            Self::Seen(queue, _) => !queue.is_held(),
        }
    }

    /// Returns the key of the claim's entry. A different client may have created the key if it sent
    /// the same claim earlier.
    pub(super) fn key(&self, keyed: &KeyedClaim<'_>) -> Vec<u8> {
        match self {
            _ if self.is_first(keyed) => keyed.first.clone().into(),
            Self::Seen(_, Some(own)) => own.key.clone(),
            _ => keyed.entry.clone().into(),
        }
    }

    /// Returns the revision at which the entry was created for a claim that was granted at
    /// `revision`. Returns `None` if a different client created the entry.
    pub(super) fn created(&self, keyed: &KeyedClaim<'_>, revision: i64) -> Option<i64> {
        match *self {
            Self::First | Self::Seen(_, None) => Some(revision),
            Self::Queued(created) => Some(created),
            Self::Seen(_, Some(own)) => {
                let is_ours = own.key == keyed.entry.as_bytes() || self.is_first(keyed);
                is_ours.then_some(own.created)
            }
        }
    }

    /// Returns the value of the entry after the grant. If the claim already holds permits, the
    /// number of permits does not increase.
    pub(super) fn held(&self, lease: &Lease) -> String {
        match self {
            Self::Seen(_, Some(own)) if own.state == State::Held => {
                entry::held(&lease.clone().with_mode(lease.mode().capped_by(own.mode)))
            }
            _ => entry::held(lease),
        }
    }
}
