//! Who holds a key, as others may see it.

use std::fmt;
use std::time::Duration;

use crate::description::Description;
use crate::error::Error;
use crate::lease::Fingerprint;

/// A lease in force, as anybody may see it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    fingerprint: Fingerprint,
    description: Option<Description>,
    remaining: Option<Duration>,
    units: u32,
}

impl Holder {
    /// Creates the holder whose lease id has `fingerprint`.
    pub fn new(fingerprint: Fingerprint) -> Self {
        Self { fingerprint, description: None, remaining: None, units: 1 }
    }

    /// Adds who it is, in words.
    #[must_use]
    pub fn with_description(mut self, description: Option<Description>) -> Self {
        self.description = description;
        self
    }

    /// Adds how long its lease is good for, if nobody renews it.
    #[must_use]
    pub fn with_remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }

    /// Says how many units of the key it holds, unless that is 1.
    #[must_use]
    pub fn with_units(mut self, units: u32) -> Self {
        self.units = units;
        self
    }

    /// Names its lease.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Who it is, in words, if it said so.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// How long the store keeps its lease without renewal; `None` if for ever.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// How many units of the key it holds: 1 for a mutex or a reader, all of them for a writer.
    pub fn units(&self) -> u32 {
        self.units
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(description) => write!(f, "{} ({description})", self.fingerprint)?,
            None => write!(f, "{}", self.fingerprint)?,
        }
        match self.units {
            1 => {}
            u32::MAX => f.write_str(", writing")?,
            units => write!(f, ", {units} units")?,
        }
        match self.remaining {
            Some(remaining) => write!(f, ", for another {remaining:.1?} unless renewed"),
            None => f.write_str(", for ever"),
        }
    }
}

/// What the store knows about a key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inspection {
    holders: Vec<Holder>,
    last_token: Option<u64>,
    units: u64,
    members: Vec<MemberView>,
}

/// The view of a key that one member of a quorum has.
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
    /// Creates the inspection of a key that nobody holds.
    pub fn free() -> Self {
        Self { holders: Vec::new(), last_token: None, units: 0, members: Vec::new() }
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

    /// How many units are in use, by all who hold the key.
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
