//! The nodes of locks in ZooKeeper. Each lock has a node below the prefix, and each holder and
//! waiter has a node below the lock's node.
//!
//! A lock's node is a container node, which ZooKeeper's leader removes when the node is empty.
//! Slashes in the name of a lock are encoded, so that locks never share child nodes.

use std::sync::Arc;

use leasehold_core::backend::{Fingerprint, Lease};
use leasehold_core::{Error, ErrorKind, LockKey};
use uuid::Uuid;

/// The parent node of all locks.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    prefix: Arc<str>,
}

/// The child of a lock's node that exists while a revocation request to all holders applies. The
/// child's name sorts after all holders and waiters, because some programs sort all children.
pub(crate) const REVOCATION: &str = "revoke";

impl Layout {
    const MAX_PREFIX: usize = 128;

    pub(crate) fn new(prefix: impl Into<String>) -> Result<Self, Error> {
        let prefix = prefix.into();
        let prefix = prefix.strip_suffix('/').unwrap_or(&prefix);
        let plain = LockKey::new(prefix).is_ok_and(|key| key.as_str() == prefix);
        let is_absolute = prefix
            .strip_prefix('/')
            .is_some_and(|path| path.split('/').all(|segment| !matches!(segment, "" | "." | "..")));
        // This path is reserved for ZooKeeper's own nodes.
        let is_reserved = prefix == "/zookeeper" || prefix.starts_with("/zookeeper/");
        if !plain || !is_absolute || is_reserved || prefix.len() > Self::MAX_PREFIX {
            let message = format!(
                "a prefix must be the path of a node, such as /app/lock, must be at most {} characters long, and may contain only A-Z a-z 0-9 . _ - : / @ + = ,",
                Self::MAX_PREFIX
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { prefix: prefix.into() })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the path of a lock's node.
    pub(crate) fn lock(&self, key: &LockKey) -> String {
        format!("{}/{}", self.prefix, segment(key))
    }

    /// Returns the path of the node of a holder or waiter of `key`.
    pub(crate) fn node(&self, key: &LockKey, name: &str) -> String {
        format!("{}/{name}", self.lock(key))
    }

    /// Returns the path of the node that exists while a revocation request for only this lease
    /// applies.
    pub(crate) fn revocation_of(&self, key: &LockKey, lease: Fingerprint) -> String {
        format!("{}-{lease}", self.revocation(key))
    }

    /// Returns the path of the node that exists while a revocation request to all holders of `key`
    /// applies.
    pub(crate) fn revocation(&self, key: &LockKey) -> String {
        self.node(key, REVOCATION)
    }
}

/// Returns the lock whose node has this name.
pub(crate) fn lock_of(segment: &str) -> Option<LockKey> {
    let name = match segment {
        "%2E" => ".".to_owned(),
        "%2E%2E" => "..".to_owned(),
        _ => segment.replace("%2F", "/"),
    };
    LockKey::from_encoded(&name).ok().filter(|key| self::segment(key) == segment)
}

/// Returns the name of a lock's node. An encoded lock name never contains `%2F` or `%2E`, so these
/// codes are unambiguous.
fn segment(key: &LockKey) -> String {
    match key.as_str() {
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        name => name.replace('/', "%2F"),
    }
}

impl Default for Layout {
    /// Creates a layout with the prefix `/lock`.
    fn default() -> Self {
        Self { prefix: "/lock".into() }
    }
}

/// Returns the tag of a lease, which is visible in ZooKeeper. The tag is derived from the lease ID
/// and does not reveal it.
///
/// The tag has the position and the format of Curator's protection ID, which is a UUID.
pub(crate) fn tag(lease: &Lease) -> String {
    /// A random namespace for tags of this backend.
    const NAMESPACE: Uuid = Uuid::from_u128(0x2f6a_90b1_7c1e_4d0a_a35e_5a83_0b64_90d2);

    Uuid::new_v5(&NAMESPACE, lease.id().secret().as_bytes()).hyphenated().to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_lock_has_one_node_below_the_prefix() {
        let layout = Layout::new("/app/lock/").unwrap();
        let mut nodes = Vec::new();
        for name in
            ["job", "job/1", "job%2F1", ".", "..", "...", "%2E", "/", "a b", "zookeeper", "\u{0}"]
        {
            let key = LockKey::new(name).unwrap();
            let node = layout.lock(&key);

            let segment = node.strip_prefix("/app/lock/").unwrap();
            assert!(!segment.contains('/') && !matches!(segment, "" | "." | ".."), "{node}");
            assert_eq!(lock_of(segment), Some(key));
            nodes.push(node);
        }

        let count = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), count);
    }

    #[test]
    fn nodes_of_other_programs_are_no_locks() {
        for segment in ["", "a b", "%2f", "%2E%2E%2E", "a%2E", "job%2"] {
            assert_eq!(lock_of(segment), None, "{segment}");
        }
    }

    #[test]
    fn a_tag_is_of_one_lease_and_does_not_tell_its_id() {
        let lease = || Lease::new(&LockKey::new("job").unwrap(), Duration::from_secs(10));
        let (one, other) = (lease(), lease());

        assert_eq!(tag(&one), tag(&one));
        assert_ne!(tag(&one), tag(&other));
        assert!(!tag(&one).contains(&one.id().secret()[..8]));
    }

    #[test]
    fn prefixes_that_cannot_be_are_refused() {
        for prefix in ["", "/", "lock", "/a b", "/a//b", "/./a", "/a/..", "/zookeeper/x", "/é"] {
            assert_eq!(Layout::new(prefix).unwrap_err().kind(), ErrorKind::Invalid, "{prefix}");
        }
        assert_eq!(
            Layout::new(format!("/{}", "x".repeat(128))).unwrap_err().kind(),
            ErrorKind::Invalid
        );
    }
}
