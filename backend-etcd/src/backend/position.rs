//! The position of a claim in the queue before its grant.

use etcd_client::{Compare, CompareOp};
use leasehold_core::backend::Lease;

use super::acquire::Asked;
use crate::entry::{self, BETWEEN_HELD_AND_QUEUED, Entry, State};
use crate::queue::Queue;

/// Where a claim stands before it is granted.
pub(super) enum Position<'a> {
    /// The queue was empty, as far as is known.
    First,
    /// It was in line since that revision, and those before it may have gone.
    InLine(i64),
    /// It was seen in line, or not, and there was room for it.
    Seen(&'a Queue, Option<&'a Entry>),
}

impl<'a> Position<'a> {
    pub(super) fn of(
        asked: &Asked<'_>,
        seen: Option<&'a Queue>,
        queues_since: Option<i64>,
    ) -> Self {
        match (seen, queues_since) {
            (Some(queue), _) => Self::Seen(queue, queue.entry(&asked.tag)),
            // For units, it takes a look.
            (None, Some(created)) if asked.claim.share().is_whole() => Self::InLine(created),
            (None, _) => Self::First,
        }
    }

    /// The conditions of its grant.
    pub(super) fn is_unchanged(&self, asked: &Asked<'_>) -> Vec<Compare> {
        let Asked { range, entry, .. } = asked;
        match *self {
            Self::First => vec![range.is_empty()],
            Self::InLine(created) => vec![
                Compare::create_revision(entry.as_str(), CompareOp::Equal, created),
                range.has_come_since(created),
                range.has_values_above(BETWEEN_HELD_AND_QUEUED),
            ],
            // Each holder that was there counts, also after it has left.
            Self::Seen(queue, None) if queue.is_held_in_units() => {
                vec![range.has_no_arrival_since(queue.revision)]
            }
            // That includes that it has no entry still.
            Self::Seen(queue, None) => vec![range.is_as_at(queue.revision)],
            Self::Seen(queue, Some(own)) => vec![
                range.is_as_at(queue.revision),
                Compare::create_revision(own.key.as_slice(), CompareOp::Equal, own.created),
            ],
        }
    }

    /// Whether it finds the lock free, as far as is known, or has found it so.
    pub(super) fn is_first(&self, asked: &Asked<'_>) -> bool {
        match self {
            Self::First => true,
            Self::InLine(_) => false,
            Self::Seen(queue, None) => queue.is_empty(),
            Self::Seen(_, Some(own)) => own.key == asked.first.as_bytes(),
        }
    }

    /// Whether it has no entry yet.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::First | Self::Seen(_, None))
    }

    /// Whether the lock had no holder until then.
    pub(super) fn is_free(&self) -> bool {
        match self {
            Self::First | Self::InLine(_) => true,
            Self::Seen(queue, _) => !queue.is_held(),
        }
    }

    /// Where its entry lies or will: with another client's, perhaps, that asked before us.
    pub(super) fn key(&self, asked: &Asked<'_>) -> Vec<u8> {
        match self {
            _ if self.is_first(asked) => asked.first.clone().into(),
            Self::Seen(_, Some(own)) => own.key.clone(),
            _ => asked.entry.clone().into(),
        }
    }

    /// The creation of the entry of a claim that was granted at `revision`, if it lies with us.
    pub(super) fn created(&self, asked: &Asked<'_>, revision: i64) -> Option<i64> {
        match *self {
            Self::First | Self::Seen(_, None) => Some(revision),
            Self::InLine(created) => Some(created),
            Self::Seen(_, Some(own)) => {
                let is_ours = own.key == asked.entry.as_bytes() || self.is_first(asked);
                is_ours.then_some(own.created)
            }
        }
    }

    /// The value of its entry once it is granted. One that holds already takes no more units.
    pub(super) fn held(&self, lease: &Lease) -> String {
        match self {
            Self::Seen(_, Some(own)) if own.state == State::Held => {
                entry::held(&lease.clone().with_share(lease.share().capped_by(own.share)))
            }
            _ => entry::held(lease),
        }
    }
}
