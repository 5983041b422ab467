//! The store's time-bound grant of one claim.

use std::fmt::{self, Write as _};
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::{Builder, Uuid};

use crate::contract::backend::Share;
use crate::contract::description::Description;
use crate::contract::key::LockKey;

/// The identity of one grant, by which the store tells it from every other: a random id, drawn per acquisition.
///
/// It is a bearer secret, since a process that knows it can renew and release the lease. `Debug` and
/// `Display` show only its [`Fingerprint`]; [`LeaseId::secret`] is for backends.
///
/// See [`Machine`](crate::memory::Machine) for an example.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct LeaseId {
    random: Uuid,
    count: u64,
}

impl LeaseId {
    /// Draws a new id: 122 random bits from the operating system, and a count.
    ///
    /// Nothing is drawn ahead, because a copy of the process would draw the same ids: a process cannot notice a snapshot of its
    /// machine. The count makes the ids of one process differ even if the operating system returns the same bits twice.
    ///
    /// # Panics
    ///
    /// Panics if the operating system returns no random bytes.
    #[expect(clippy::new_without_default, reason = "two defaults would not be equal")]
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);

        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system returns random bytes");
        let random = Builder::from_random_bytes(bytes).into_uuid();
        Self { random, count: COUNT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The id as text without blanks, for the store alone.
    pub fn secret(&self) -> String {
        let mut text = String::with_capacity(2 * size_of::<Self>() + 1);
        self.write_secret(&mut text);
        text
    }

    /// Adds [`secret`](Self::secret) to `text`.
    pub fn write_secret(&self, text: &mut String) {
        text.push_str(self.random.simple().encode_lower(&mut Uuid::encode_buffer()));
        write!(text, "-{:x}", self.count).expect("writing to a string succeeds");
    }

    /// Reads the text of [`secret`](Self::secret); `None` if the text is no id.
    pub(crate) fn from_secret(text: &str) -> Option<Self> {
        let (random, count) = text.split_once('-')?;
        let random = Uuid::try_parse(random).ok()?;
        Some(Self { random, count: u64::from_str_radix(count, 16).ok()? })
    }

    /// A number that hardly two ids share: those of one process differ in the lower half, others nearly always in the upper one.
    pub(super) fn number(&self) -> u64 {
        let (random, _) = self.random.as_u64_pair();
        (random << 32) ^ self.count
    }

    /// The part of it that logs and people may see.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.secret().as_bytes())
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({})", self.fingerprint())
    }
}

/// Eight hexadecimal digits that name a lease without giving it away.
///
/// See [`Machine`](crate::memory::Machine) for an example.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Fingerprint(u32);

impl Fingerprint {
    /// The fingerprint of a lease id as the store holds it, which may be another client's.
    ///
    /// A 64-bit FNV-1a folded to 32 bits: the same everywhere and for ever, and too short to find
    /// an id of 122 bits by.
    pub fn of(secret: &[u8]) -> Self {
        let hash = secret.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let folded = (hash >> 32) ^ (hash & u64::from(u32::MAX));
        Self(u32::try_from(folded).expect("the upper half was masked out"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Reads the text that `Display` writes.
impl FromStr for Fingerprint {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        u32::from_str_radix(text, 16).map(Self)
    }
}

/// Whether the holder of a lease goes on renewing it.
///
/// See [`Machine`](crate::memory::Machine) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tenure {
    /// The lease ends after its TTL by the store's own clock unless it is renewed, even if its holder lives on.
    Fixed,
    /// Its holder renews it for as long as it wants it, like all leases of this tenure and TTL of the same client, and
    /// releases it then.
    ///
    /// So a store may let them share one time to live. A lease without renewals may then stay in force while others
    /// are renewed; but not if its release failed, or if the reply to its grant was lost.
    Kept,
}

/// One grant, in the form in which a backend renews or releases it: the key, the id, and the stored fields.
///
/// See [`Machine`](crate::memory::Machine) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    key: LockKey,
    id: LeaseId,
    ttl: Duration,
    tenure: Tenure,
    share: Share,
    description: Option<Description>,
    floor: u64,
}

impl Lease {
    /// Creates the lease that a grant of the whole `key` with a new id would give.
    pub fn new(key: &LockKey, ttl: Duration) -> Self {
        Self {
            key: key.clone(),
            id: LeaseId::new(),
            ttl,
            tenure: Tenure::Fixed,
            share: Share::Whole,
            description: None,
            floor: 0,
        }
    }

    /// Says whether its holder goes on renewing it.
    #[must_use]
    pub fn with_tenure(mut self, tenure: Tenure) -> Self {
        self.tenure = tenure;
        self
    }

    /// Says how much of the key it is.
    #[must_use]
    pub fn with_share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Describes the holder, for operators and for waiters.
    #[must_use]
    pub fn with_description(mut self, description: Option<Description>) -> Self {
        self.description = description;
        self
    }

    /// The same lease with another TTL, to be put in force by a renewal.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Says which number all later tokens of the key exceed, once a renewal has put the lease in force with it.
    ///
    /// For a store with [`Feature::Membership`](crate::backend::Feature::Membership), and a lease that was granted under its charter; others may ignore it.
    /// It is no part of a claim.
    #[must_use]
    pub fn with_floor(mut self, floor: u64) -> Self {
        self.floor = floor;
        self
    }

    /// The key that it is a lease of.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The id that the store compares.
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// How long the store shall keep it without renewal; a backend rounds up to its granularity.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether its holder goes on renewing it.
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// How much of the key it is.
    pub fn share(&self) -> Share {
        self.share
    }

    /// The description of its holder.
    pub fn description(&self) -> Option<&Description> {
        self.description.as_ref()
    }

    /// The number that all later tokens of the key exceed once a renewal has succeeded; 0 if that is for the store to say.
    pub fn floor(&self) -> u64 {
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_uniform() {
        let ids: Vec<LeaseId> = (0..100_000).map(|_| LeaseId::new()).collect();

        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        // UUID version and variant fix six bits; those two bytes are left out.
        for position in (0..16).filter(|position| ![6, 8].contains(position)) {
            let mut counts = [0_f64; 256];
            for id in &ids {
                counts[usize::from(id.random.as_bytes()[position])] += 1.0;
            }
            let expected = 100_000.0 / 256.0;
            let chi_square: f64 =
                counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
            // 255 degrees of freedom: above 400 once in 10^8 draws, by chance.
            assert!(chi_square < 400.0, "byte {position}: chi-square {chi_square}");
        }
    }

    #[test]
    fn debug_shows_a_fingerprint_and_not_the_id() {
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(1));
        let secret = lease.id().secret();

        let shown = format!("{lease:?}");

        assert!(!shown.contains(&secret[..8]), "{shown}");
        assert!(shown.contains(&lease.id().fingerprint().to_string()));
    }
}
