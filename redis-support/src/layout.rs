//! Where things lie in the server.

use leasehold_core::{Error, ErrorKind, LockKey};

use crate::slot;

/// The names of the server's keys, all of which begin with one prefix.
///
/// ```
/// use leasehold_core::LockKey;
/// use leasehold_redis_support::Layout;
///
/// let layout = Layout::default();
/// assert_eq!(layout.lock(&LockKey::new("invoice:42")?), "lock:invoice:42");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Layout {
    prefix: String,
}

impl Layout {
    /// The prefix of those who choose none.
    pub const DEFAULT_PREFIX: &str = "lock:";

    /// The longest prefix, in bytes.
    const MAX_PREFIX: usize = 128;

    /// Creates the layout under `prefix`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if it is empty, longer than 128 bytes, or has other characters than
    /// keys have: braces would move locks to other hash slots, and globs would widen access rules.
    pub fn new(prefix: impl Into<String>) -> Result<Self, Error> {
        let prefix = prefix.into();
        let plain = LockKey::new(&prefix).is_ok_and(|key| key.as_str() == prefix);
        if !plain || prefix.len() > Self::MAX_PREFIX {
            let message = format!(
                "prefix: 1 to {} characters of A-Z a-z 0-9 . _ - : / @ + = , are possible",
                Self::MAX_PREFIX
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { prefix })
    }

    /// The key of a lock.
    pub fn lock(&self, key: &LockKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The key of the counter that numbers the grants of `key`, and of others in its hash slot.
    ///
    /// A counter per slot, and not per key: they may stay for ever without becoming many.
    pub fn fence(&self, key: &LockKey) -> String {
        let tag = slot::tag(slot::of(self.lock(key).as_bytes()));
        format!("{}~fence:{{{tag}}}", self.prefix)
    }

    /// The [encoded name](LockKey::as_str) of the lock that lies under `key`, if one can.
    pub fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        str::from_utf8(key).ok()?.strip_prefix(&self.prefix)
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self { prefix: Self::DEFAULT_PREFIX.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LockKey {
        LockKey::new(name).unwrap()
    }

    #[test]
    fn all_keys_of_a_lock_are_in_one_slot_and_under_the_prefix() {
        let layout = Layout::new("app:lock/").unwrap();
        for name in
            (0..1_000).map(|n| format!("invoice:{n}")).chain(["a{b}c".into(), "~fence".into()])
        {
            let (lock, fence) = (layout.lock(&key(&name)), layout.fence(&key(&name)));

            assert_eq!(slot::of(lock.as_bytes()), slot::of(fence.as_bytes()), "{lock} {fence}");
            assert!(lock.starts_with("app:lock/") && fence.starts_with("app:lock/~"));
        }
    }

    #[test]
    fn no_lock_lies_where_a_fence_does() {
        let layout = Layout::default();

        assert_eq!(layout.lock(&key("~fence:{@@@@}")), "lock:%7Efence:%7B@@@@%7D");
    }

    #[test]
    fn keys_lead_back_to_names() {
        let layout = Layout::default();

        assert_eq!(layout.name(b"lock:a/b"), Some("a/b"));
        assert_eq!(layout.name(b"other:a/b"), None);
        assert_eq!(layout.name(b"lock:\xff"), None);
    }

    #[test]
    fn prefixes_that_move_slots_or_widen_rules_are_refused() {
        for prefix in ["", "{app}:", "app*", "a b", "app\n", &"x".repeat(129)] {
            assert_eq!(Layout::new(prefix).unwrap_err().kind(), ErrorKind::Invalid, "{prefix:?}");
        }
    }
}
