//! The builder for a quorum.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Fencing, LockBackend};
use leasehold_core::clock::{Clock, SystemClock};
use leasehold_core::{Error, ErrorKind};

use super::Quorum;
use super::members::Members;

/// Creates a [`Quorum`] with custom options.
///
/// See [`Quorum`] for an example that builds a quorum of three members.
pub struct QuorumBuilder<B> {
    members: Vec<(String, B)>,
    max_ttl: Duration,
    member_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl<B: LockBackend> Quorum<B> {
    /// Creates a builder for a quorum with these members. All clients must use the same name for
    /// each member.
    pub fn builder<N: Into<String>>(members: impl IntoIterator<Item = (N, B)>) -> QuorumBuilder<B> {
        QuorumBuilder::new(members.into_iter().map(|(name, store)| (name.into(), store)))
    }
}

impl<B: LockBackend> QuorumBuilder<B> {
    /// The default for [`max_ttl`](Self::max_ttl), which is 120 s.
    ///
    /// A member that has lost its data cannot vote on lock requests until the longest TTL has
    /// passed. The default is long enough for the default TTL plus a lock delay, and short enough
    /// that a restarted member can vote again before the next member restarts.
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(120);

    /// The default for [`member_timeout`](Self::member_timeout): 250 ms, which is about twice the
    /// network round-trip time between distant continents.
    pub const DEFAULT_MEMBER_TIMEOUT: Duration = Duration::from_millis(250);

    /// The largest number of members. More members would require more requests without making a
    /// majority safer.
    const MAX_MEMBERS: usize = 9;

    fn new(members: impl Iterator<Item = (String, B)>) -> Self {
        Self {
            members: members.collect(),
            max_ttl: Self::DEFAULT_MAX_TTL,
            member_timeout: Self::DEFAULT_MEMBER_TIMEOUT,
            clock: Arc::new(SystemClock),
        }
    }

    /// Sets the longest TTL of a lease. A member that has lost its data cannot vote on lock
    /// requests until the longest TTL has passed.
    ///
    /// All clients of a quorum must use the same value. The default is
    /// [`QuorumBuilder::DEFAULT_MAX_TTL`].
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// Sets how long a call waits for each member.
    ///
    /// If one twelfth of the lease's TTL is shorter, the call waits for one twelfth of the TTL
    /// instead, but at least 5 ms. The default is [`QuorumBuilder::DEFAULT_MEMBER_TIMEOUT`].
    #[must_use]
    pub fn member_timeout(mut self, limit: Duration) -> Self {
        self.member_timeout = limit;
        self
    }

    /// Sets the clock for timeouts. The default is [`SystemClock`].
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Creates the quorum without any I/O. When the client acquires its first lock, it checks
    /// whether all members have the same quorum configuration.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] unless there are 3, 5, 7 or 9 members with distinct names.
    /// Returns [`ErrorKind::Unsupported`] if a member's store does not support quorums or fencing
    /// tokens.
    pub fn build(self) -> Result<Quorum<B>, Error> {
        self.check_members()?;
        let Self { members, max_ttl, member_timeout, clock } = self;
        let members = Members::new(members, max_ttl, member_timeout, clock);
        Ok(Quorum {
            members: Arc::new(members),
            claims: Default::default(),
            contended: Default::default(),
            late: Default::default(),
            largest_token: Default::default(),
            running_check: Default::default(),
        })
    }

    fn check_members(&self) -> Result<(), Error> {
        let count = self.members.len();
        if !(3..=Self::MAX_MEMBERS).contains(&count) || count.is_multiple_of(2) {
            let message = format!(
                "a quorum must have 3, 5, 7 or 9 members, not {count}; an even number tolerates no more failures than the odd number below it"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let names: BTreeSet<&str> = self.members.iter().map(|(name, _)| name.as_str()).collect();
        if names.len() < count || names.contains("") {
            let message =
                "each member of a quorum must have a unique name, which must not be empty";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        for (name, store) in &self.members {
            let capabilities = store.capabilities();
            if store.member().is_none() || capabilities.fencing() < Fencing::BestEffort {
                let message =
                    format!("the store of member {name} must support quorums and fencing tokens");
                let error = Error::new(ErrorKind::Unsupported, message);
                return Err(error.with_backend(capabilities.name()));
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
