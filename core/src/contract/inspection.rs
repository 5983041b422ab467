//! A look at a key, as the store has it.

use std::fmt;

use crate::contract::backend::{Fingerprint, Share};
use crate::contract::description::Description;
use crate::contract::error::Error;
use crate::contract::holder::{Holder, LockKind};

/// The state of a key in the store: its holders, its queue and its last token.
///
/// See [`Admin::inspect`](crate::admin::Admin::inspect) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inspection {
    holders: Vec<Holder>,
    last_token: Option<u64>,
    units: u64,
    queue: Vec<Waiter>,
    waiting: Option<u64>,
    members: Vec<MemberView>,
}

/// A claim that stands in the store's queue for a key.
///
/// See [`Admin::inspect`](crate::admin::Admin::inspect) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiter {
    fingerprint: Fingerprint,
    description: Option<Description>,
    kind: LockKind,
    units: u32,
}

impl Waiter {
    /// Creates the waiter whose lease would have the id with `fingerprint`, and that asks for this share of the key.
    pub fn new(fingerprint: Fingerprint, share: Share) -> Self {
        let (kind, units) = (LockKind::of(share), share.units());
        Self { fingerprint, description: None, kind, units }
    }

    /// Adds the description of its lease to be.
    #[must_use]
    pub fn with_description(mut self, description: Option<Description>) -> Self {
        self.description = description;
        self
    }

    /// Names its claim, and the lease that this is to become.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The description of its lease to be, if the store was told.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// The kind of lock that it waits for.
    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// How many units of the key it wants: 1 if it is the whole key.
    pub fn units(&self) -> u32 {
        self.units
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fingerprint)?;
        if let Some(description) = &self.description {
            write!(f, " ({description})")?;
        }
        match self.kind {
            LockKind::Reader => f.write_str(", to read"),
            LockKind::Writer => f.write_str(", to write"),
            LockKind::Mutex | LockKind::Election | LockKind::Permits if self.units == 1 => Ok(()),
            LockKind::Mutex | LockKind::Election | LockKind::Permits => {
                write!(f, ", {} units", self.units)
            }
        }
    }
}

/// The view of a key that one member of a quorum has.
///
/// See [`Quorum`](crate::quorum::Quorum) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberView {
    name: String,
    has_vote: bool,
    view: Result<Inspection, String>,
}

impl MemberView {
    /// Creates the view of the member `name`, or tells why there is none.
    pub fn new(name: impl Into<String>, has_vote: bool, view: Result<&Inspection, &Error>) -> Self {
        Self { name: name.into(), has_vote, view: view.cloned().map_err(ToString::to_string) }
    }

    /// The name by which all clients know the member.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the member has a vote: one that has lost its data waits until it has one again.
    pub fn has_vote(&self) -> bool {
        self.has_vote
    }

    /// The key as the member has it.
    ///
    /// # Errors
    ///
    /// Why the member did not tell, in words.
    pub fn inspection(&self) -> Result<&Inspection, &str> {
        self.view.as_ref().map_err(String::as_str)
    }
}

impl Inspection {
    /// Creates the inspection of a free key.
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

    /// Adds a lease in force, and its units to those in use.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.units += u64::from(holder.units());
        self.holders.push(holder);
        self
    }

    /// Says how many units are in use, where not all holders are listed.
    #[must_use]
    pub fn with_units(mut self, units: u64) -> Self {
        self.units = units;
        self
    }

    /// Adds a token that no earlier grant of the key exceeds.
    #[must_use]
    pub fn with_last_token(mut self, number: Option<u64>) -> Self {
        self.last_token = number;
        self
    }

    /// Adds the store's queue: how many claims stand in it, and the first of them, in their order.
    #[must_use]
    pub fn with_queue(mut self, waiting: u64, first: Vec<Waiter>) -> Self {
        (self.waiting, self.queue) = (Some(waiting), first);
        self
    }

    /// Adds the view of a member, where the store is a quorum of several.
    #[must_use]
    pub fn with_member(mut self, view: MemberView) -> Self {
        self.members.push(view);
        self
    }

    /// Whether any lease is in force.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// The leases in force, those that end first before the others. A store may leave out the rest of a long list.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// The kind of lock that holds the key, if any does and the store knows.
    ///
    /// All holders of readers' locks and permits are of one kind, if the clients agree on the kind of the key.
    pub fn kind(&self) -> Option<LockKind> {
        self.holders.first().and_then(Holder::kind)
    }

    /// How many claims stand in the store's queue; `None` where the store has none.
    ///
    /// A process with many callers for a key has one or a few claims there. Callers that poll, and calls that make one attempt, have none.
    /// A store may count places whose claims have died and that it has not cleared yet.
    pub fn waiting(&self) -> Option<u64> {
        self.waiting
    }

    /// The claims in the store's queue, in order. A store may leave out the rest of a long one.
    pub fn queue(&self) -> &[Waiter] {
        &self.queue
    }

    /// How many units all holders use together.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// A number that the token of no grant so far exceeds, where the store keeps one.
    ///
    /// While the key is held by a mutex, it is the holder's token, or close above it where several
    /// keys share a counter.
    pub fn last_token(&self) -> Option<u64> {
        self.last_token
    }

    /// The view of each member, where the store is a quorum of several; else none.
    pub fn members(&self) -> &[MemberView] {
        &self.members
    }
}
