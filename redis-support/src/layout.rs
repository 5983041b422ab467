//! The keys on the server.

use leasehold_core::{Error, ErrorKind, LockKey};

use uuid::Uuid;

use crate::slot::{self, Tag};

/// The names of all keys on the server, which start with a common prefix.
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
    spread: Spread,
}

/// The distribution of the keys that all locks share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Spread {
    /// One key for all locks, because all locks are on one server.
    Together,
    /// One key per hash slot, in that slot.
    BySlot,
}

impl Layout {
    /// The default prefix.
    pub const DEFAULT_PREFIX: &str = "lock:";

    const RESERVATIONS: &str = "reservations";
    const HELD: &str = "held";
    const NEWS: &str = "news";
    const QUEUE: &str = "queue";
    const REVOKE: &str = "revoke";

    /// The maximum length of a prefix in bytes.
    const MAX_PREFIX: usize = 128;

    /// Creates a layout with this `prefix`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the prefix is empty, is longer than 128 bytes, or contains
    /// characters that keys cannot contain. Braces would change the hash slot of a lock, and
    /// wildcards would extend the scope of access rules.
    pub fn new(prefix: impl Into<String>) -> Result<Self, Error> {
        let prefix = prefix.into();
        let plain = LockKey::new(&prefix).is_ok_and(|key| key.as_str() == prefix);
        if !plain || prefix.len() > Self::MAX_PREFIX {
            let message = format!(
                "prefix must be 1 to {} characters long and may contain only A-Z a-z 0-9 . _ - : / @ + = ,",
                Self::MAX_PREFIX
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { prefix, spread: Spread::Together })
    }

    /// Returns the layout for the servers of a cluster. The locks of each hash slot share separate
    /// keys.
    #[must_use]
    pub(crate) fn by_slot(self) -> Self {
        Self { spread: Spread::BySlot, ..self }
    }

    /// Returns the key of a lock.
    pub fn lock(&self, key: &LockKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Returns the length of the key of a lock, in bytes.
    pub(crate) fn lock_len(&self, key: &LockKey) -> usize {
        self.prefix.len() + key.as_str().len()
    }

    /// Returns a pattern for all keys of locks whose encoded names start with `prefix`. The pattern
    /// also matches a few unrelated keys.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        format!("{}*{prefix}*", self.prefix)
    }

    /// Returns the encoded name of the lock if `key` indicates that the lock has a holder or a
    /// queue.
    pub(crate) fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let name = str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let Some(part) = name.strip_prefix('~') else {
            return Some(name);
        };
        let (part, tagged) = part.split_once(":{")?;
        let (_tag, name) = tagged.split_once('}')?;
        matches!(part, Self::HELD | Self::QUEUE).then_some(name)
    }

    /// Returns the two keys of a quorum member: the membership record and the minimum token.
    pub(crate) fn member(&self) -> MemberKeys {
        MemberKeys {
            record: format!("{}~member", self.prefix),
            floor: format!("{}~floor", self.prefix),
        }
    }

    /// Returns a key that never exists.
    pub(crate) fn nothing(&self) -> String {
        format!("{}~ping", self.prefix)
    }

    /// Returns a channel on which a backend is notified of keys that are reserved for its waiters.
    /// Any connection of the backend may listen to the channel.
    pub(crate) fn channel(&self) -> String {
        format!("{}~{}:{}", self.prefix, Self::RESERVATIONS, Uuid::new_v4().simple())
    }

    /// Returns the keys that may contain data of the lock `key`.
    pub(crate) fn places<'a>(&'a self, key: &'a LockKey) -> Places<'a> {
        let (prefix, key) = (self.prefix.as_str(), key.as_str());
        Places { prefix, spread: self.spread, tag: slot::tag(slot::of_parts([prefix, key])), key }
    }

    /// Returns whether the locks of each hash slot share separate keys.
    pub(crate) fn is_by_slot(&self) -> bool {
        self.spread == Spread::BySlot
    }

    /// Returns the hash slot of `key`.
    pub(crate) fn slot(&self, key: &LockKey) -> u16 {
        slot::of_parts([&self.prefix, key.as_str()])
    }

    /// Returns the keys that all locks share, on a single server.
    pub(crate) fn shared(&self) -> Places<'_> {
        Places { prefix: &self.prefix, spread: Spread::Together, tag: slot::tag(0), key: "" }
    }

    /// Appends the key of a lock to `text`.
    pub(crate) fn write_lock(&self, key: &LockKey, text: &mut String) {
        text.push_str(&self.prefix);
        text.push_str(key.as_str());
    }

    /// Appends the name of a key that the locks of a hash slot share to `text`, up to the slot's
    /// tag.
    pub(crate) fn write_up_to_tag(&self, place: Place<'_>, text: &mut String) {
        [&self.prefix, "~", place.part(), ":{"].into_iter().for_each(|part| text.push_str(part));
    }

    /// Appends the remaining characters of such a name to `text`, starting with the tag of `key`'s
    /// slot.
    pub(crate) fn write_tag(&self, key: &LockKey, text: &mut String) {
        text.push_str(slot::tag(self.slot(key)).as_str());
        text.push('}');
    }

    /// Returns the [encoded name](LockKey::as_str) of the lock and the callers to notify if a
    /// different client has changed `key`.
    pub(crate) fn news<'a>(&self, key: &'a [u8]) -> Option<(&'a str, Concerns<'a>)> {
        let name = str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let Some(part) = name.strip_prefix('~') else {
            return Some((name, Concerns::Lock));
        };
        let (part, tagged) = part.split_once(":{")?;
        let (_tag, name) = tagged.split_once('}')?;
        match part {
            Self::NEWS => Some(match name.split_once('#') {
                Some((name, claim)) => (name, Concerns::Claim(claim)),
                None => (name, Concerns::Waiters),
            }),
            Self::REVOKE => Some((name, Concerns::Holders)),
            _ => None,
        }
    }
}

/// The keys of a server that is a member of a quorum. A member is a single server, so these keys do
/// not need to be in a lock's hash slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct MemberKeys {
    pub(crate) record: String,
    pub(crate) floor: String,
}

/// The callers to notify when a key changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Concerns<'a> {
    /// The caller of the claim with this ID.
    Claim(&'a str),
    /// Holders of a lock's permits.
    Holders,
    /// All callers, because the key of a mutex has changed.
    Lock,
    /// Waiters for a lock, and its observers.
    Waiters,
}

/// The keys that may contain data of a lock, which are all in one hash slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    prefix: &'a str,
    spread: Spread,
    tag: Tag,
    key: &'a str,
}

/// One of the keys of a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place<'a> {
    Lock,
    /// The token counter. Many locks share a counter, so the counter may exist forever.
    Fence,
    /// The locks that have a queue, permits or a revocation request.
    Contended,
    Held,
    Units,
    Queue,
    Places,
    News,
    /// A key that notifies the claim with this ID individually.
    NewsFor(&'a str),
    Revoke,
}

impl Place<'_> {
    /// Returns the part of the name that distinguishes this key from the lock's remaining keys.
    fn part(self) -> &'static str {
        match self {
            Self::Lock => "",
            Self::Fence => "fence",
            Self::Contended => "crowd",
            Self::Held => Layout::HELD,
            Self::Units => "units",
            Self::Queue => Layout::QUEUE,
            Self::Places => "places",
            Self::News | Self::NewsFor(_) => Layout::NEWS,
            Self::Revoke => Layout::REVOKE,
        }
    }
}

impl Places<'_> {
    /// Returns an upper bound for the length of most names.
    pub(crate) fn len(&self) -> usize {
        self.prefix.len() + "~places:{tag!}".len() + self.key.len()
    }

    /// Appends the name of a key to `text`.
    pub(crate) fn write(&self, place: Place<'_>, text: &mut String) {
        let is_shared = matches!(place, Place::Fence | Place::Contended);
        text.push_str(self.prefix);
        if place != Place::Lock {
            text.push('~');
            text.push_str(place.part());
        }
        if is_shared && self.spread == Spread::Together {
            return;
        }
        if place != Place::Lock {
            [":{", self.tag.as_str(), "}"].into_iter().for_each(|part| text.push_str(part));
        }
        if !is_shared {
            text.push_str(self.key);
        }
        if let Place::NewsFor(id) = place {
            text.push('#');
            text.push_str(id);
        }
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self { prefix: Self::DEFAULT_PREFIX.to_owned(), spread: Spread::Together }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LockKey {
        LockKey::new(name).unwrap()
    }

    const OTHERS: [Place<'_>; 9] = [
        Place::Fence,
        Place::Contended,
        Place::Held,
        Place::Units,
        Place::Queue,
        Place::Places,
        Place::News,
        Place::NewsFor("id"),
        Place::Revoke,
    ];

    fn name(of: Places<'_>, place: Place<'_>) -> String {
        let mut name = String::new();
        of.write(place, &mut name);
        name
    }

    #[test]
    fn all_keys_of_a_lock_are_in_one_slot_and_under_the_prefix() {
        let layout = Layout::new("app:lock/").unwrap().by_slot();
        for lock in
            (0..1_000).map(|n| format!("invoice:{n}")).chain(["a{b}c".into(), "~fence".into()])
        {
            let key = key(&lock);
            let of = layout.places(&key);
            let slot = slot::of(layout.lock(&key).as_bytes());

            assert_eq!(name(of, Place::Lock), layout.lock(&key));
            for other in OTHERS.map(|place| name(of, place)) {
                assert_eq!(slot, slot::of(other.as_bytes()), "{other}");
                assert!(other.starts_with("app:lock/~"), "{other}");
            }
        }
    }

    #[test]
    fn the_shared_names_of_a_slot_come_in_two_parts() {
        let layout = Layout::new("app:lock/").unwrap().by_slot();
        let key = key("invoice:42");
        for place in [Place::Fence, Place::Contended] {
            let mut parts = String::new();
            layout.write_up_to_tag(place, &mut parts);
            layout.write_tag(&key, &mut parts);
            assert_eq!(parts, name(layout.places(&key), place));
        }
    }

    #[test]
    fn locks_on_one_server_share_a_fence_and_a_set_of_contended_locks() {
        let layout = Layout::default();
        let key = key("a");
        let of = layout.places(&key);

        assert_eq!(name(of, Place::Fence), "lock:~fence");
        assert_eq!(name(of, Place::Contended), "lock:~crowd");
    }

    #[test]
    fn no_lock_lies_where_a_fence_does() {
        let layout = Layout::default();

        assert_eq!(layout.lock(&key("~fence:{@@@@}")), "lock:%7Efence:%7B@@@@%7D");
    }

    #[test]
    fn keys_lead_back_to_names() {
        let layout = Layout::default();
        let key = key("a/b{}");
        let of = layout.places(&key);
        for place in [Place::Lock].into_iter().chain(OTHERS) {
            let concerns = match place {
                Place::Lock => Some(Concerns::Lock),
                Place::News => Some(Concerns::Waiters),
                Place::NewsFor(id) => Some(Concerns::Claim(id)),
                Place::Revoke => Some(Concerns::Holders),
                _ => None,
            };
            let expected = concerns.map(|concerns| (key.as_str(), concerns));
            assert_eq!(layout.news(name(of, place).as_bytes()), expected, "{place:?}");
        }
        let MemberKeys { record, floor } = layout.member();
        for name in ["other:a/b", &record, &floor] {
            assert_eq!(layout.news(name.as_bytes()), None, "{name}");
        }
        assert_eq!(layout.news(b"lock:\xff"), None);
    }

    #[test]
    fn keys_in_use_are_named_by_holders_and_queues() {
        let layout = Layout::default();
        let key = key("a/b{}");
        let of = layout.places(&key);
        for place in [Place::Lock].into_iter().chain(OTHERS) {
            let is_use = matches!(place, Place::Lock | Place::Held | Place::Queue);
            let named = layout.name(name(of, place).as_bytes()).map(ToOwned::to_owned);
            assert_eq!(named.as_deref(), is_use.then_some(key.as_str()), "{place:?}");
        }
        assert_eq!(layout.name(b"other:a"), None);
    }

    #[test]
    fn prefixes_that_move_slots_or_widen_rules_are_refused() {
        for prefix in ["", "{app}:", "app*", "a b", "app\n", &"x".repeat(129)] {
            assert_eq!(Layout::new(prefix).unwrap_err().kind(), ErrorKind::Invalid, "{prefix:?}");
        }
    }
}
