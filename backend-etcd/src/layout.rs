//! The etcd keys that locks use. The keys follow the recipe of etcd's `concurrency` package.
//!
//! Each holder and each waiter has a key under `<prefix><name>/`. The order of the keys' creation
//! is the order of the queue. All other keys that Leasehold needs are under `<prefix>~`, because no
//! lock name starts with `~`.

use leasehold_core::backend::Lease;
use leasehold_core::{Error, ErrorKind, LockKey};
use uuid::Uuid;

/// The prefix of all keys.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: String,
}

/// The range of keys that contains all holders and waiters of one lock.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) start: String,
    pub(crate) end: String,
}

impl Layout {
    const MAX_PREFIX: usize = 128;

    pub(crate) fn new(prefix: impl Into<String>) -> Result<Self, Error> {
        let prefix = prefix.into();
        let plain = LockKey::new(&prefix).is_ok_and(|key| key.as_str() == prefix);
        if !plain || prefix.len() > Self::MAX_PREFIX {
            let message = format!(
                "a prefix must be 1 to {} characters long and may contain only A-Z a-z 0-9 . _ - : / @ + = ,",
                Self::MAX_PREFIX
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { prefix })
    }

    /// Returns the range with all holders and waiters of `key`. The range also contains locks whose
    /// names continue after a slash.
    pub(crate) fn range(&self, key: &LockKey) -> Range {
        let lock = format!("{}{key}", self.prefix);
        // The zero is the byte after the slash.
        Range { start: format!("{lock}/"), end: format!("{lock}0") }
    }

    /// Returns the range with all holders and waiters of locks whose encoded names start with
    /// `prefix`. The range starts after the key `after`, if it is given.
    pub(crate) fn names(&self, prefix: &str, after: Option<&str>) -> Range {
        let start = match after {
            Some(after) => format!("{after}\0"),
            None => format!("{}{prefix}", self.prefix),
        };
        // The tilde sorts after all characters of names. All further keys of Leasehold start with a
        // tilde.
        Range { start, end: format!("{}{prefix}~", self.prefix) }
    }

    /// Returns the lock for which an entry was created.
    pub(crate) fn lock_of(&self, entry: &str) -> Option<LockKey> {
        let (name, _slot) = entry.strip_prefix(&self.prefix)?.rsplit_once('/')?;
        LockKey::from_encoded(name).ok()
    }

    /// Returns the key of an entry in one of a client's slots.
    pub(crate) fn entry(&self, key: &LockKey, client: &str, slot: usize) -> String {
        format!("{}{key}/{client}-{slot:x}", self.prefix)
    }

    /// Returns the key of a lease that finds `key` free. All clients use the same key, so a free
    /// lock leaves at most one deleted key in etcd's index.
    pub(crate) fn first(&self, key: &LockKey) -> String {
        format!("{}{key}/first", self.prefix)
    }

    /// Returns the key of the mark that prevents late requests from creating the entry of `lease`.
    pub(crate) fn mark(&self, lease: &Lease) -> String {
        format!("{}~gone/{}/{}", self.prefix, lease.key(), tag(lease))
    }

    /// Returns a key that never exists.
    pub(crate) fn unused(&self) -> String {
        format!("{}~none", self.prefix)
    }

    /// Returns the key that exists while a revocation request for `key` applies.
    pub(crate) fn revocation(&self, key: &LockKey) -> String {
        format!("{}~revoke/{key}", self.prefix)
    }
}

impl Default for Layout {
    /// Creates a layout with the prefix `lock/`.
    fn default() -> Self {
        Self { prefix: "lock/".to_owned() }
    }
}

/// Returns the tag of a lease, which etcd uses to compare leases. The tag is derived from the lease
/// ID and does not reveal it.
pub(crate) fn tag(lease: &Lease) -> String {
    /// A random namespace for tags of this backend.
    const NAMESPACE: Uuid = Uuid::from_u128(0x6d0e_77c5_2d51_4e0f_9ce1_0c8e_54b1_f5a3);

    Uuid::new_v5(&NAMESPACE, lease.id().secret().as_bytes()).simple().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lease(name: &str) -> Lease {
        Lease::new(&LockKey::new(name).unwrap(), Duration::from_secs(10))
    }

    #[test]
    fn all_of_a_lock_lies_in_its_range_and_nothing_of_its_neighbours() {
        let (layout, key) = (Layout::default(), LockKey::new("job").unwrap());
        let range = layout.range(&key);
        let within = |key: &str| range.start.as_str() <= key && key < range.end.as_str();

        assert!(within(&layout.entry(&key, "0123", 10)));
        assert!(within(&layout.first(&key)));
        for other in ["job1", "jo", "job-x", "job."] {
            assert!(!within(&layout.entry(&LockKey::new(other).unwrap(), "0123", 0)), "{other}");
        }
        assert!(!within(&layout.unused()));
        assert!(!within(&layout.revocation(&key)));
        assert!(!within(&layout.mark(&lease("job"))));
    }

    #[test]
    fn a_tag_is_of_one_lease_and_does_not_tell_its_id() {
        let (one, other) = (lease("job"), lease("job"));

        assert_eq!(tag(&one), tag(&one));
        assert_ne!(tag(&one), tag(&other));
        assert!(!tag(&one).contains(&one.id().secret()[..8]));
    }

    #[test]
    fn prefixes_that_cannot_be_are_refused() {
        for prefix in ["", "a b", "~x", "é", &"x".repeat(129)] {
            assert_eq!(Layout::new(prefix).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
