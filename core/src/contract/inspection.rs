//! The state of a key in the store.

use std::fmt;

use crate::contract::backend::{Fingerprint, Mode};
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::holder::{Holder, LockKind, label, permits};

/// The state of a key in the store: its holders, its queue and its last token.
///
/// See [`Admin::inspect`](crate::admin::Admin::inspect) for an example that prints the holders and
/// the queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inspection {
    holders: Vec<Holder>,
    last_token: Option<u64>,
    units: u64,
    queue: Vec<Waiter>,
    waiting: Option<u64>,
    members: Vec<MemberView>,
}

/// A claim in the store's queue.
///
/// See [`Admin::inspect`](crate::admin::Admin::inspect) for an example that prints the queue of a
/// key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiter {
    fingerprint: Fingerprint,
    description: Option<Description>,
    kind: LockKind,
    units: u32,
}

impl Waiter {
    /// Creates a waiter that requests `mode`. `fingerprint` identifies the lease that the waiter
    /// requests.
    pub fn new(fingerprint: Fingerprint, mode: Mode) -> Self {
        let (kind, units) = (LockKind::of(mode), mode.units());
        Self { fingerprint, description: None, kind, units }
    }

    /// Sets the description of the waiter.
    #[must_use]
    pub fn with_description(mut self, description: Option<Description>) -> Self {
        self.description = description;
        self
    }

    /// Returns the fingerprint of the claim. When the waiter's claim is granted, the lease has the
    /// same fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the description of the waiter, if the store records it.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// Returns the type of the lock that the waiter requests.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Returns the number of units that the waiter requests, which is 1 if the waiter requests the
    /// key exclusively.
    pub fn units(&self) -> u32 {
        self.units
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = Vec::from_iter(permits(Some(self.kind), self.units));
        f.write_str(&label(self.description.as_ref(), self.fingerprint, facts))
    }
}

/// The state of a key on one member of a quorum.
///
/// ```
/// use leasehold_core::backend::{Inspection, MemberView};
///
/// let view = MemberView::new("eu-1", true, Ok(&Inspection::free()));
/// assert!(view.inspection().is_ok_and(|inspection| !inspection.is_held()));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberView {
    name: String,
    has_vote: bool,
    view: Result<Inspection, String>,
}

impl MemberView {
    /// Creates the view of a key on the quorum member `name`. If the member did not respond, `view`
    /// contains the error.
    pub fn new(name: impl Into<String>, has_vote: bool, view: Result<&Inspection, &Error>) -> Self {
        Self { name: name.into(), has_vote, view: view.cloned().map_err(ToString::to_string) }
    }

    /// Returns the name of the member. All clients of a quorum use the same member names.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the member can vote on lock requests. A member that lost its data cannot
    /// vote until the longest TTL has passed.
    pub fn has_vote(&self) -> bool {
        self.has_vote
    }

    /// Returns the state of the key on this member.
    ///
    /// # Errors
    ///
    /// Returns the error message if the member did not respond.
    pub fn inspection(&self) -> Result<&Inspection, &str> {
        self.view.as_ref().map_err(String::as_str)
    }
}

impl Inspection {
    /// Creates the inspection result for a free key.
    pub fn free() -> Self {
        Self {
            holders: Vec::new(),
            last_token: None,
            units: 0,
            queue: Vec::new(),
            waiting: None,
            members: Vec::new(),
        }
    }

    /// Adds an active lease, and adds its units to the units in use.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.units += u64::from(holder.units());
        self.holders.push(holder);
        self
    }

    /// Sets how many units of the key are in use. Call this method if the list of holders is
    /// incomplete.
    #[must_use]
    pub fn with_units(mut self, units: u64) -> Self {
        self.units = units;
        self
    }

    /// Sets a number that is at least as large as every token granted for the key so far.
    #[must_use]
    pub fn with_last_token(mut self, number: Option<u64>) -> Self {
        self.last_token = number;
        self
    }

    /// Sets the number of queued claims, and the first claims in the queue, in order.
    #[must_use]
    pub fn with_queue(mut self, waiting: u64, first: Vec<Waiter>) -> Self {
        (self.waiting, self.queue) = (Some(waiting), first);
        self
    }

    /// Adds the view of a member, if the store is a quorum.
    #[must_use]
    pub fn with_member(mut self, view: MemberView) -> Self {
        self.members.push(view);
        self
    }

    /// Returns whether any lease is currently held on the key.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Returns the leases that are currently held, sorted by expiry time. A store may truncate a
    /// long list.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// Returns the type of the lock, if the key is held and the store reports the type.
    ///
    /// All holders of a key have the same type, as long as all clients use the key with the same
    /// lock type.
    pub fn kind(&self) -> Option<LockKind> {
        self.holders.first().and_then(Holder::kind)
    }

    /// Returns the number of queued claims, or `None` if the store has no queue.
    ///
    /// A process with many waiting callers has only one or a few claims in the queue. The queue
    /// does not contain claims of callers that poll or make a single attempt. The number may
    /// include claims of crashed waiters that the store has not removed yet.
    pub fn waiting(&self) -> Option<u64> {
        self.waiting
    }

    /// Returns the claims in the store's queue, in order. A store may truncate a long queue.
    pub fn queue(&self) -> &[Waiter] {
        &self.queue
    }

    /// Returns the number of units that all holders use together.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns an upper bound for all tokens granted for the key so far, if the store records one.
    ///
    /// If a mutex with this key is held, the upper bound is the holder's token. If several keys
    /// share a token counter, the upper bound may be slightly larger than the holder's token.
    pub fn last_token(&self) -> Option<u64> {
        self.last_token
    }

    /// Returns the view of each member if the store is a quorum, and an empty list for other
    /// stores.
    pub fn members(&self) -> &[MemberView] {
        &self.members
    }
}
