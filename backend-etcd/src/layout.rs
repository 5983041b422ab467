//! Where locks lie in etcd: as in the recipe of its own `concurrency` package.
//!
//! All who hold or queue for a lock have a key under `<prefix><name>/`, and the order in which those keys were created is
//! the queue. What else belongs to the lock lies under `<prefix>~`, which no name begins with.

use leasehold_core::{Error, ErrorKind, Lease, LockKey};
use uuid::Uuid;

/// What all keys begin with.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: String,
}

/// The keys of all who hold or queue for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) start: String,
    pub(crate) end: String,
}

impl Layout {
    const MAX_PREFIX: usize = 128;

    pub(crate) fn new(prefix: impl Into<String>) -> Result<Self, Error> {
        let prefix = prefix.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/@+=,".contains(&byte);
        if prefix.is_empty() || prefix.len() > Self::MAX_PREFIX || !prefix.bytes().all(plain) {
            let message = format!(
                "a prefix must have 1 to {} of the characters A-Z a-z 0-9 . _ - : / @ + = ,",
                Self::MAX_PREFIX
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { prefix })
    }

    /// The keys of all who hold or queue for `key`, and those of locks whose names go on after a slash.
    pub(crate) fn range(&self, key: &LockKey) -> Range {
        let lock = format!("{}{key}", self.prefix);
        // The byte after the slash.
        Range { start: format!("{lock}/"), end: format!("{lock}0") }
    }

    /// The one key of a lease.
    pub(crate) fn entry(&self, lease: &Lease) -> String {
        format!("{}{}/{}", self.prefix, lease.key(), entry_name(lease))
    }

    /// What marks that the entry of `lease` must not come any more.
    pub(crate) fn mark(&self, lease: &Lease) -> String {
        format!("{}~gone/{}/{}", self.prefix, lease.key(), entry_name(lease))
    }

    /// What lies there while the holders of `key` are asked to finish.
    pub(crate) fn revocation(&self, key: &LockKey) -> String {
        format!("{}~revoke/{key}", self.prefix)
    }
}

impl Default for Layout {
    /// `lock/`
    fn default() -> Self {
        Self { prefix: "lock/".to_owned() }
    }
}

/// The last part of a lease's key: what etcd knows of the lease's id.
///
/// Only who knows the id finds the name, and the name does not tell the id. So the name is what etcd compares: it
/// is there, or the lease is not in force.
pub(crate) fn entry_name(lease: &Lease) -> String {
    /// Drawn once, for the names that are made here.
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
        let layout = Layout::default();
        let range = layout.range(&LockKey::new("job").unwrap());
        let within = |key: &str| range.start.as_str() <= key && key < range.end.as_str();

        assert!(within(&layout.entry(&lease("job"))));
        for other in ["job1", "jo", "job-x", "job."] {
            assert!(!within(&layout.entry(&lease(other))), "{other}");
        }
        assert!(!within(&layout.revocation(&LockKey::new("job").unwrap())));
    }

    #[test]
    fn an_entry_names_one_lease_without_telling_its_id() {
        let (one, other) = (lease("job"), lease("job"));
        let layout = Layout::default();

        assert_eq!(layout.entry(&one), layout.entry(&one));
        assert_ne!(layout.entry(&one), layout.entry(&other));
        assert!(!layout.entry(&one).contains(&one.id().secret()[..8]));
    }

    #[test]
    fn prefixes_that_cannot_be_are_refused() {
        for prefix in ["", "a b", "~x", "é", &"x".repeat(129)] {
            assert_eq!(Layout::new(prefix).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
