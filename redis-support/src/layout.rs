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

    const NEWS: &str = "news";
    const REVOKE: &str = "revoke";

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

    /// The keys of the server in which something of `key` may lie.
    pub(crate) fn places<'a>(&'a self, key: &'a LockKey) -> Places<'a> {
        let lock = self.lock(key);
        let tag = slot::tag(slot::of(lock.as_bytes()));
        Places { prefix: &self.prefix, tag, key: key.as_str(), lock }
    }

    /// What it means for the lock with this [encoded name](LockKey::as_str) that `key` was changed by
    /// others, if it means anything.
    pub(crate) fn news<'a>(&self, key: &'a [u8]) -> Option<(&'a str, Concerns)> {
        let name = str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let Some(part) = name.strip_prefix('~') else {
            return Some((name, Concerns::Lock));
        };
        let (part, tagged) = part.split_once(":{")?;
        let (_tag, name) = tagged.split_once('}')?;
        match part {
            // Also those that are only for one who waits.
            Self::NEWS => Some((name.split('#').next()?, Concerns::Waiters)),
            Self::REVOKE => Some((name, Concerns::Holders)),
            _ => None,
        }
    }
}

/// Whom a change of one of the server's keys concerns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Concerns {
    /// Those who hold a lock in units.
    Holders,
    /// All: it is a mutex that was changed.
    Lock,
    /// Those who wait for a lock, or observe it.
    Waiters,
}

/// The keys of the server in which something of a lock may lie, all in one hash slot.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    prefix: &'a str,
    tag: &'static str,
    key: &'a str,
    lock: String,
}

impl Places<'_> {
    pub(crate) fn lock(&self) -> String {
        self.lock.clone()
    }

    /// One counter per slot, and not per key: they may stay for ever without becoming many.
    pub(crate) fn fence(&self) -> String {
        self.join(&["~fence:{", self.tag, "}"])
    }

    pub(crate) fn held(&self) -> String {
        self.part("held")
    }

    pub(crate) fn units(&self) -> String {
        self.part("units")
    }

    pub(crate) fn queue(&self) -> String {
        self.part("queue")
    }

    pub(crate) fn places(&self) -> String {
        self.part("places")
    }

    pub(crate) fn news(&self) -> String {
        self.part(Layout::NEWS)
    }

    /// Of the news that are for one claim alone.
    pub(crate) fn news_for(&self, id: &str) -> String {
        self.join(&["~", Layout::NEWS, ":{", self.tag, "}", self.key, "#", id])
    }

    pub(crate) fn revoke(&self) -> String {
        self.part(Layout::REVOKE)
    }

    fn part(&self, part: &str) -> String {
        self.join(&["~", part, ":{", self.tag, "}", self.key])
    }

    /// Every request has several of them: this is what they take least time to write with.
    fn join(&self, parts: &[&str]) -> String {
        let mut key = String::with_capacity(
            self.prefix.len() + parts.iter().map(|part| part.len()).sum::<usize>(),
        );
        key.push_str(self.prefix);
        parts.iter().for_each(|part| key.push_str(part));
        key
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
            let key = key(&name);
            let of = layout.places(&key);
            let others = [of.fence(), of.held(), of.units(), of.queue(), of.places(), of.news()];

            assert_eq!(of.lock(), layout.lock(&key));
            for other in others.into_iter().chain([of.revoke(), of.news_for("id")]) {
                assert_eq!(slot::of(of.lock().as_bytes()), slot::of(other.as_bytes()), "{other}");
                assert!(other.starts_with("app:lock/~"), "{other}");
            }
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
        let name = key("a/b{}");
        let of = layout.places(&name);
        let news =
            |key: &str| layout.news(key.as_bytes()).map(|(name, news)| (name.to_owned(), news));
        let concerns = |news| Some((key("a/b{}").as_str().to_owned(), news));

        assert_eq!(news(&of.lock()), concerns(Concerns::Lock));
        assert_eq!(news(&of.news()), concerns(Concerns::Waiters));
        assert_eq!(news(&of.news_for("id")), concerns(Concerns::Waiters));
        assert_eq!(news(&of.revoke()), concerns(Concerns::Holders));
        for other in [of.fence(), of.held(), of.units(), of.queue(), of.places()] {
            assert_eq!(news(&other), None, "{other}");
        }
        assert_eq!(news("other:a/b"), None);
        assert_eq!(layout.news(b"lock:\xff"), None);
    }

    #[test]
    fn prefixes_that_move_slots_or_widen_rules_are_refused() {
        for prefix in ["", "{app}:", "app*", "a b", "app\n", &"x".repeat(129)] {
            assert_eq!(Layout::new(prefix).unwrap_err().kind(), ErrorKind::Invalid, "{prefix:?}");
        }
    }
}
