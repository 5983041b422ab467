//! How much of a key a claim asks for.

/// How much of a key a claim asks for. To a store, the kinds of lock differ in nothing else.
///
/// A mutex asks for the whole key. A semaphore's permits are units of a limit; a reader is one unit of
/// a limit that no number of readers reaches, and a writer all of them.
///
/// Two claims never hold a key at once unless both ask for units, and all the units held then fit into the
/// limit of each claim at the moment it is granted. So clients that name different limits do no
/// harm: each is as careful as its own limit says.
///
/// See [`Machine`](crate::memory::Machine) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Share {
    /// The key, alone.
    Whole,
    /// So many `units` that with those of all others no more than `limit` are held.
    Units {
        /// How many.
        units: u32,
        /// The total number of units of the key.
        limit: u32,
    },
}

impl Share {
    /// One reader, of as many as there may be.
    pub const READER: Self = Self::Units { units: 1, limit: u32::MAX };

    /// A writer: all units, so that none is left for another claim.
    pub const WRITER: Self = Self::Units { units: u32::MAX, limit: u32::MAX };

    /// How many units it takes: 1 if it is the whole key.
    pub const fn units(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Units { units, .. } => units,
        }
    }

    /// How many units there are: 1 if it is the whole key.
    pub const fn limit(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Units { limit, .. } => limit,
        }
    }

    /// Whether it is the whole key.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Whole)
    }

    /// Whether it leaves nothing to others.
    pub const fn is_exclusive(self) -> bool {
        self.units() == self.limit()
    }

    /// The same, with no more units than `other`: a renewal may give units back and never takes any.
    #[must_use]
    pub fn capped_by(self, other: Self) -> Self {
        match self {
            Self::Whole => Self::Whole,
            Self::Units { units, limit } => Self::Units { units: units.min(other.units()), limit },
        }
    }
}
