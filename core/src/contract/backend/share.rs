//! How much of a key a claim requests.

/// How much of a key a claim requests. All lock types differ only in this, as far as the store is
/// concerned.
///
/// A mutex requests the key exclusively. A semaphore requests units of a limit, one unit per
/// permit. A reader requests one unit of a limit that readers never reach, and a writer requests
/// all units.
///
/// A claim of units is granted only if all units that are then in use fit into the limit of that
/// claim. An exclusive claim is granted only if the key is free. Clients that use different limits
/// for a key are therefore safe: each claim respects its own limit.
///
/// ```
/// use leasehold_core::backend::Share;
///
/// let permits = Share::Units { units: 2, limit: 5 };
/// assert_eq!((permits.units(), permits.limit()), (2, 5));
/// assert!(Share::WRITER.is_exclusive() && !Share::READER.is_exclusive());
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Share {
    /// The whole key, exclusively.
    Whole,
    /// A number of units. The claim is granted only if at most `limit` units of the key are then in
    /// use, including its own.
    Units {
        /// The number of requested units.
        units: u32,
        /// The total number of units of the key.
        limit: u32,
    },
}

impl Share {
    /// One reader. The number of readers is not limited.
    pub const READER: Self = Self::Units { units: 1, limit: u32::MAX };

    /// A writer, which requests all units, so that no other claim can be granted.
    pub const WRITER: Self = Self::Units { units: u32::MAX, limit: u32::MAX };

    /// Returns the number of units, which is 1 for [`Share::Whole`].
    pub const fn units(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Units { units, .. } => units,
        }
    }

    /// Returns the total number of units of the key, which is 1 for [`Share::Whole`].
    pub const fn limit(self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Units { limit, .. } => limit,
        }
    }

    /// Returns whether this is [`Share::Whole`].
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Whole)
    }

    /// Returns whether no other claim can be granted at the same time.
    pub const fn is_exclusive(self) -> bool {
        self.units() == self.limit()
    }

    /// Returns this share with at most as many units as `other`. A renewal may return units but
    /// never acquires any.
    #[must_use]
    pub fn capped_by(self, other: Self) -> Self {
        match self {
            Self::Whole => Self::Whole,
            Self::Units { units, limit } => Self::Units { units: units.min(other.units()), limit },
        }
    }
}
