//! The current leader of an election, as seen by other clients.

use std::time::Duration;

use crate::contract::backend::{Fingerprint, Operation};
use crate::contract::description::Description;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::holder::{Holder, LockKind};
use crate::contract::inspection::Inspection;
use crate::locks::handle::LockHandle;

/// The leader of an [`Election`](crate::election::Election), as seen by any client.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let election = LockClient::new(MemoryBackend::new()).election("scheduler")?;
/// let term = election.campaign("10.0.0.1:7000").await?;
/// if let Some(leader) = election.leader().await? {
///     println!("{} leads, lease {}", leader.value(), leader.fingerprint());
/// }
/// # drop(term);
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leader {
    fingerprint: Fingerprint,
    value: Description,
    remaining: Option<Duration>,
}

impl Leader {
    /// Asks the store for the current leader.
    pub(super) async fn of(handle: &LockHandle) -> Result<Option<Self>, Error> {
        let seen = handle.inspect().await.and_then(|inspection| Self::among(&inspection));
        seen.map_err(|error| error.with_operation(Operation::Inspect).with_key(handle.key()))
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

    /// Returns the proclaimed value.
    pub fn value(&self) -> &Description {
        &self.value
    }

    /// Returns the fingerprint of the leader's lease. The fingerprint does not change during one
    /// leadership, and every leadership has a different fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns how long the store keeps the lease without a renewal. Returns `None` if the lease
    /// does not expire.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Returns whether both values have the same leadership and the same proclaimed value. A
    /// renewal does not count as a difference.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        (self.fingerprint, &self.value) == (other.fingerprint, &other.value)
    }
}

/// Returns whether the holder is a leader. If the store does not report the lock type, any holder
/// of a single unit counts as a leader.
fn is_candidate(holder: &Holder) -> bool {
    holder.units() == 1 && matches!(holder.kind(), None | Some(LockKind::Election))
}

fn not_an_election() -> Error {
    Error::new(
        ErrorKind::WrongType,
        "the key is in use as another type of lock; an election needs a different name",
    )
}
