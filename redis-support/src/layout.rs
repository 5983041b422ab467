//! Where things lie in the server.

use leasehold_core::{Error, ErrorKind, LockKey};

use uuid::Uuid;

use crate::slot::{self, Tag};

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
    spread: Spread,
}

/// Where the keys that locks share lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Spread {
    /// One key for all locks, since one server has them all.
    Together,
    /// One key for each hash slot, in that slot.
    BySlot,
}

impl Layout {
    /// The default prefix.
    pub const DEFAULT_PREFIX: &str = "lock:";

    const OFFERS: &str = "offers";
    const HELD: &str = "held";
    const NEWS: &str = "news";
    const QUEUE: &str = "queue";
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
                "prefix must have 1 to {} characters of A-Z a-z 0-9 . _ - : / @ + = ,",
                Self::MAX_PREFIX
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { prefix, spread: Spread::Together })
    }

    /// The same for the servers of a cluster: the locks of each hash slot share keys of their own.
    #[must_use]
    pub(crate) fn by_slot(self) -> Self {
        Self { spread: Spread::BySlot, ..self }
    }

    /// The key of a lock.
    pub fn lock(&self, key: &LockKey) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The pattern of the server's keys in which something of a lock whose encoded name begins with `prefix` may lie, and of some others.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        format!("{}*{prefix}*", self.prefix)
    }

    /// The encoded name of the lock that is held or queued for, as this key of the server shows.
    pub(crate) fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        let name = str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let Some(part) = name.strip_prefix('~') else {
            return Some(name);
        };
        let (part, tagged) = part.split_once(":{")?;
        let (_tag, name) = tagged.split_once('}')?;
        matches!(part, Self::HELD | Self::QUEUE).then_some(name)
    }

    /// The keys of a member of a quorum: its record of the membership, and the floor of its tokens.
    pub(crate) fn member(&self) -> Member {
        Member {
            record: format!("{}~member", self.prefix),
            floor: format!("{}~floor", self.prefix),
        }
    }

    /// A key that nothing is ever stored under.
    pub(crate) fn nothing(&self) -> String {
        format!("{}~ping", self.prefix)
    }

    /// A channel on which a backend learns of keys that the server keeps for its waiters, on any of its connections.
    pub(crate) fn channel(&self) -> String {
        format!("{}~{}:{}", self.prefix, Self::OFFERS, Uuid::new_v4().simple())
    }

    /// The keys of the server in which something of `key` may lie.
    pub(crate) fn places<'a>(&'a self, key: &'a LockKey) -> Places<'a> {
        let (prefix, key) = (self.prefix.as_str(), key.as_str());
        Places { prefix, spread: self.spread, tag: slot::tag(slot::of_parts([prefix, key])), key }
    }

    /// Whether the locks of each hash slot share keys of their own.
    pub(crate) fn is_by_slot(&self) -> bool {
        self.spread == Spread::BySlot
    }

    /// The hash slot of `key`.
    pub(crate) fn slot(&self, key: &LockKey) -> u16 {
        slot::of_parts([&self.prefix, key.as_str()])
    }

    /// The keys that all locks share, where they do.
    pub(crate) fn shared(&self) -> Places<'_> {
        Places { prefix: &self.prefix, spread: Spread::Together, tag: slot::tag(0), key: "" }
    }

    /// Adds the key of a lock to `text`.
    pub(crate) fn write_lock(&self, key: &LockKey, text: &mut String) {
        text.push_str(&self.prefix);
        text.push_str(key.as_str());
    }

    /// Adds the name of the key that the locks of a hash slot share to `text`, up to the tag of the slot.
    pub(crate) fn write_up_to_tag(&self, place: Place<'_>, text: &mut String) {
        [&self.prefix, "~", place.part(), ":{"].into_iter().for_each(|part| text.push_str(part));
    }

    /// Adds the rest of that name to `text`, for the slot of `key`.
    pub(crate) fn write_tag(&self, key: &LockKey, text: &mut String) {
        text.push_str(slot::tag(self.slot(key)).as_str());
        text.push('}');
    }

    /// The callers of the lock with this [encoded name](LockKey::as_str) that a change of `key` by
    /// another client concerns, if any.
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

/// The keys of a server that is a member of a quorum. There is one such server, so they need no hash slot of any lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Member {
    pub(crate) record: String,
    pub(crate) floor: String,
}

/// The callers that a change of one of the server's keys concerns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Concerns<'a> {
    /// The caller of the claim with this id.
    Claim(&'a str),
    /// Holders of units of a lock.
    Holders,
    /// All: it is a mutex that was changed.
    Lock,
    /// Waiters for a lock, and its observers.
    Waiters,
}

/// The keys of the server in which something of a lock may lie, all in one hash slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    prefix: &'a str,
    spread: Spread,
    tag: Tag,
    key: &'a str,
}

/// One of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place<'a> {
    Lock,
    /// One counter for many locks, and not one per lock: it may stay for ever.
    Fence,
    /// The locks that have a queue, units or a request to revoke them.
    Crowd,
    Held,
    Units,
    Queue,
    Places,
    News,
    /// News that are for the claim with this id alone.
    NewsFor(&'a str),
    Revoke,
}

impl Place<'_> {
    /// The part of its name that tells it from other places.
    fn part(self) -> &'static str {
        match self {
            Self::Lock => "",
            Self::Fence => "fence",
            Self::Crowd => "crowd",
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
    /// How long most names of places are, at most.
    pub(crate) fn len(&self) -> usize {
        self.prefix.len() + "~places:{tag!}".len() + self.key.len()
    }

    /// Adds the name of a place to `text`.
    pub(crate) fn write(&self, place: Place<'_>, text: &mut String) {
        let is_shared = matches!(place, Place::Fence | Place::Crowd);
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
        Place::Crowd,
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
        for place in [Place::Fence, Place::Crowd] {
            let mut parts = String::new();
            layout.write_up_to_tag(place, &mut parts);
            layout.write_tag(&key, &mut parts);
            assert_eq!(parts, name(layout.places(&key), place));
        }
    }

    #[test]
    fn locks_on_one_server_share_a_fence_and_a_crowd() {
        let layout = Layout::default();
        let key = key("a");
        let of = layout.places(&key);

        assert_eq!(name(of, Place::Fence), "lock:~fence");
        assert_eq!(name(of, Place::Crowd), "lock:~crowd");
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
        let Member { record, floor } = layout.member();
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
