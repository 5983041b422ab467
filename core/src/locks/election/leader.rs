//! The leader, as others may see it.

use std::time::Duration;

use crate::contract::backend::{Fingerprint, Operation};
use crate::contract::description::Description;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::{Holder, LockKind};
use crate::contract::inspection::Inspection;
use crate::locks::face::Face;

/// The leader of an [`Election`](crate::election::Election), as any client sees it.
///
/// See [`Election`](super::Election) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leader {
    fingerprint: Fingerprint,
    value: Description,
    remaining: Option<Duration>,
}

impl Leader {
    /// Asks the store.
    pub(super) async fn of(face: &Face) -> Result<Option<Self>, Error> {
        let seen = face.inspect().await.and_then(|inspection| Self::among(&inspection));
        seen.map_err(|error| error.with_operation(Operation::Inspect).with_key(face.key()))
    }

    fn among(inspection: &Inspection) -> Result<Option<Self>, Error> {
        match inspection.holders() {
            [] => Ok(None),
            [holder] if is_candidate(holder) => Self::from_holder(holder).map(Some),
            _ => Err(not_an_election()),
        }
    }

    fn from_holder(holder: &Holder) -> Result<Self, Error> {
        Ok(Self {
            fingerprint: holder.fingerprint(),
            value: holder.description().cloned().ok_or_else(not_an_election)?,
            remaining: holder.remaining(),
        })
    }

    /// The proclaimed value.
    pub fn value(&self) -> &Description {
        &self.value
    }

    /// Names its lease: the same for as long as it leads without a break, and never that of another.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// How long the store keeps its lease without renewal; `None` if for ever.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Whether it is the same leader with the same value, though its lease may have been renewed.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        (self.fingerprint, &self.value) == (other.fingerprint, &other.value)
    }
}

/// Whether it holds the only permit, as far as the store tells kinds apart.
fn is_candidate(holder: &Holder) -> bool {
    holder.units() == 1 && matches!(holder.kind(), None | Some(LockKind::Election))
}

fn not_an_election() -> Error {
    Error::new(
        ErrorKind::WrongType,
        "it is in use as another type of lock; an election needs a different name",
    )
}
