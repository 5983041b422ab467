//! How a quorum is made.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Quorum;
use super::members::Members;
use crate::clock::{Clock, SystemClock};
use crate::contract::backend::{Feature, Fencing, LockBackend};
use crate::contract::error::{Error, ErrorKind};

/// Makes a [`Quorum`] with options of its own.
///
/// See [`Quorum`](crate::quorum::Quorum) for an example.
pub struct QuorumBuilder<B> {
    members: Vec<(String, B)>,
    max_ttl: Duration,
    member_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl<B: LockBackend> Quorum<B> {
    /// Begins a quorum of these members, each with the name by which all clients know it.
    pub fn builder<N: Into<String>>(members: impl IntoIterator<Item = (N, B)>) -> QuorumBuilder<B> {
        QuorumBuilder::new(members.into_iter().map(|(name, store)| (name.into(), store)))
    }
}

impl<B: LockBackend> QuorumBuilder<B> {
    /// How long a member that lost its data is kept out, at least. Long enough for the default TTL and a lock delay, short enough that one
    /// restart is over before the next.
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(120);

    /// Twice a round trip around the world.
    pub const DEFAULT_MEMBER_TIMEOUT: Duration = Duration::from_millis(250);

    /// More members cost more requests and make a majority no safer.
    const MAX_MEMBERS: usize = 9;

    fn new(members: impl Iterator<Item = (String, B)>) -> Self {
        Self {
            members: members.collect(),
            max_ttl: Self::DEFAULT_MAX_TTL,
            member_timeout: Self::DEFAULT_MEMBER_TIMEOUT,
            clock: Arc::new(SystemClock),
        }
    }

    /// The longest TTL of a lease, and how long a member that lost its data is kept out. All clients of a quorum must agree on it.
    /// Default: [`QuorumBuilder::DEFAULT_MAX_TTL`].
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// How long a call waits for a member, at most. Where that is longer, a twelfth of the lease's TTL counts instead, but at least
    /// 5 ms. Default: [`QuorumBuilder::DEFAULT_MEMBER_TIMEOUT`].
    #[must_use]
    pub fn member_timeout(mut self, limit: Duration) -> Self {
        self.member_timeout = limit;
        self
    }

    /// The clock that limits are counted on. Default: [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Creates the quorum. It does no I/O: the first lock finds out whether the members agree.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] unless there are 3, 5, 7 or 9 members with different names,
    /// [`ErrorKind::Unsupported`] if one of them has no [`Feature::Membership`] or no fencing tokens.
    pub fn build(self) -> Result<Quorum<B>, Error> {
        self.check_members()?;
        let Self { members, max_ttl, member_timeout, clock } = self;
        let members = Members::new(members, max_ttl, member_timeout, clock);
        Ok(Quorum {
            members: Arc::new(members),
            claims: Default::default(),
            contended: Default::default(),
            late: Default::default(),
            learnt: Default::default(),
            looking: Default::default(),
        })
    }

    fn check_members(&self) -> Result<(), Error> {
        let count = self.members.len();
        if !(3..=Self::MAX_MEMBERS).contains(&count) || count.is_multiple_of(2) {
            let message = format!(
                "{count} members: a quorum has 3, 5, 7 or 9, since an even number survives no more failures than one less"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let names: BTreeSet<&str> = self.members.iter().map(|(name, _)| name.as_str()).collect();
        if names.len() < count || names.contains("") {
            let message = "each member needs a name of its own";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        for (name, store) in &self.members {
            let store = store.capabilities();
            if !store.supports(Feature::Membership) || store.fencing() < Fencing::BestEffort {
                let message = format!(
                    "member {name} needs fencing tokens and \"{}\"",
                    Feature::Membership.name()
                );
                return Err(Error::new(ErrorKind::Unsupported, message).with_backend(store.name()));
            }
        }
        Ok(())
    }
}

impl<B> fmt::Debug for QuorumBuilder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumBuilder")
            .field("members", &self.members.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("max_ttl", &self.max_ttl)
            .field("member_timeout", &self.member_timeout)
            .finish_non_exhaustive()
    }
}
