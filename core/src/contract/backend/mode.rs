//! The mode of a lease: exclusive, or a number of units.

/// The mode of a lease: exclusive, or a number of units of the key. A store distinguishes lock
/// types only by the mode of their claims.
///
/// A mutex requests the key exclusively. A caller of a semaphore requests one unit per permit, up
/// to the semaphore's limit. A reader requests one unit, and the limit is too large for readers to
/// reach. A writer requests all units.
///
/// The store grants a claim for units only if the units of all holders, of all earlier queued
/// claims and of the claim together do not exceed the claim's limit. The store grants an exclusive
/// claim only if the key does not have holders or earlier queued claims. Clients can safely use
/// different limits for a key, because each claim respects its own limit. The [rules of
/// admission](crate::backend::rules) contain examples.
///
/// ```
/// use leasehold_core::backend::Mode;
///
/// let permits = Mode::Units { units: 2, limit: 5 };
/// assert_eq!((permits.units(), permits.limit()), (2, 5));
/// assert!(Mode::WRITER.is_exclusive() && !Mode::READER.is_exclusive());
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// The whole key.
    Exclusive,
    /// A number of units. The claim is granted only if at most `limit` units of the key are in use,
    /// including the units of this claim.
    Units {
        /// The number of requested units.
        units: u32,
        /// The total number of units of the key.
        limit: u32,
    },
}

impl Mode {
    /// The mode of a reader. The number of readers is not limited.
    pub const READER: Self = Self::Units { units: 1, limit: u32::MAX };

    /// The mode of a writer, which requests all units so that the store cannot grant any other
    /// claim.
    pub const WRITER: Self = Self::Units { units: u32::MAX, limit: u32::MAX };

    /// Returns the number of units, which is 1 for [`Mode::Exclusive`].
    pub const fn units(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Units { units, .. } => units,
        }
    }

    /// Returns the total number of units of the key, which is 1 for [`Mode::Exclusive`].
    pub const fn limit(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Units { limit, .. } => limit,
        }
    }

    /// Returns whether this is [`Mode::Exclusive`].
    pub const fn is_mutex(self) -> bool {
        matches!(self, Self::Exclusive)
    }

    /// Returns whether a lease in this mode excludes all other claims.
    pub const fn is_exclusive(self) -> bool {
        self.units() == self.limit()
    }

    /// Reduces the units of this mode to at most the units of `other`, because a renewal may
    /// return units but must not acquire additional units.
    #[must_use]
    pub fn capped_by(self, other: Self) -> Self {
        match self {
            Self::Exclusive => Self::Exclusive,
            Self::Units { units, limit } => Self::Units { units: units.min(other.units()), limit },
        }
    }
}
