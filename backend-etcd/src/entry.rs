//! Defines entries, which are the etcd keys of holders and waiters, and the meaning of their
//! values.

use std::str;

use etcd_client::{Compare, CompareOp, KeyValue};
use leasehold_core::backend::{Fingerprint, Lease, Mode, Waiter};
use leasehold_core::{Description, Holder};

use crate::layout::tag;

/// The prefix of holders' values. This prefix sorts before the prefix of [waiters](QUEUED), so that
/// etcd can compare the values.
pub(crate) const HELD: &str = "held ";

/// The prefix of waiters' values.
const QUEUED: &str = "queued ";

/// A value that sorts between the values of holders and the values of waiters. Most values that
/// foreign programs write sort like holders.
pub(crate) const BETWEEN_HELD_AND_QUEUED: &str = "i";

/// The number of bits by which a revision is shifted to obtain a token. Each grant owns the numbers
/// up to the next revision, for holders in the same process that receive the lease through a
/// hand-off. The tokens of the first 10^11 revisions are below 2^53, the largest integer that JSON
/// parsers read exactly.
const SHIFT: u32 = 16;

/// The number of additional tokens of a grant.
pub(crate) const SPARE_TOKENS: u32 = (1 << SHIFT) - 1;

/// Returns the token of the grant at this revision.
pub(crate) fn token(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default() << SHIFT
}

/// Returns the revision of the grant that owns this token.
pub(crate) fn granted_at(token: u64) -> i64 {
    i64::try_from(token >> SHIFT).expect("the upper bits are zero")
}

/// Returns the condition that `key` is the entry of this exact lease and holds the lock.
pub(crate) fn is_held(key: &str, lease: &Lease) -> [Compare; 2] {
    begins_with(key, HELD, lease)
}

/// Returns the condition that `key` is the entry of this exact lease and is queued.
pub(crate) fn is_queued(key: &str, lease: &Lease) -> [Compare; 2] {
    begins_with(key, QUEUED, lease)
}

fn begins_with(key: &str, state: &str, lease: &Lease) -> [Compare; 2] {
    let start = format!("{state}{}", tag(lease));
    // The text is followed by a space, and the exclamation mark is the character after the space.
    [
        Compare::value(key, CompareOp::Greater, format!("{start} ")),
        Compare::value(key, CompareOp::Less, format!("{start}!")),
    ]
}

/// Returns the value of an earlier revocation request, extended by one holder. The value contains
/// the holders' fingerprints, separated by spaces. A request with an empty value applies to all
/// holders.
pub(crate) fn asking_too(earlier: Option<&[u8]>, lease: Fingerprint) -> String {
    match earlier.map(String::from_utf8_lossy) {
        Some(all) if all.is_empty() => String::new(),
        Some(others) => format!("{others} {lease}"),
        None => lease.to_string(),
    }
}

/// Returns whether a revocation request with this value applies to the holder of `lease`.
pub(crate) fn asks(value: &[u8], lease: &Lease) -> bool {
    let fingerprint = lease.id().fingerprint().to_string();
    value.is_empty() || value.split(|&byte| byte == b' ').any(|it| it == fingerprint.as_bytes())
}

/// A holder of a lock, or a waiter for it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    /// The [tag of the lease](crate::layout::tag), or an empty string for foreign programs.
    pub(crate) tag: String,
    pub(crate) value: Vec<u8>,
    pub(crate) state: State,
    pub(crate) mode: Mode,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) description: Option<Description>,
    /// The etcd lease that the key is attached to, or 0 if the key is not attached to one.
    pub(crate) lease: i64,
    pub(crate) created: i64,
    pub(crate) modified: i64,
    /// The revision of the grant, if the entry holds the lock.
    pub(crate) granted: i64,
}

/// Whether an entry holds the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Held,
    Queued,
    /// The entry of a foreign program that follows etcd's lock recipe. The first entry in the queue
    /// holds the lock.
    Foreign,
}

impl Entry {
    pub(crate) fn read(kv: &KeyValue) -> Self {
        let foreign = || Text {
            state: State::Foreign,
            tag: String::new(),
            mode: Mode::Exclusive,
            granted: None,
            fingerprint: Fingerprint::of(kv.key()),
            description: None,
        };
        let text = str::from_utf8(kv.value()).ok().and_then(Text::read).unwrap_or_else(foreign);
        Self {
            key: kv.key().to_vec(),
            tag: text.tag,
            value: kv.value().to_vec(),
            state: text.state,
            mode: text.mode,
            fingerprint: text.fingerprint,
            description: text.description,
            lease: kv.lease(),
            created: kv.create_revision(),
            modified: kv.mod_revision(),
            granted: text.granted.unwrap_or(kv.mod_revision()),
        }
    }

    /// Returns whether a foreign program created the entry.
    pub(crate) fn is_foreign(&self) -> bool {
        self.tag.is_empty()
    }

    pub(crate) fn holder(&self) -> Holder {
        Holder::new(self.fingerprint)
            .with_description(self.description.clone())
            .with_mode(self.mode)
            .with_token(Some(token(self.granted)))
    }

    /// Returns the new value for a holder that still holds the lock. The value contains the
    /// revision of the grant, because the key's last change is newer.
    pub(crate) fn held_still(&self, mode: Mode, description: Option<&Description>) -> String {
        let mode = format!("{}@{}", words(mode), self.granted);
        value(HELD, &self.tag, self.fingerprint, &mode, description)
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(self.fingerprint, self.mode).with_description(self.description.clone())
    }
}

/// Returns the value for a holder of this lease.
pub(crate) fn held(lease: &Lease) -> String {
    value_of(HELD, lease)
}

/// Returns the value for a waiter.
pub(crate) fn queued(lease: &Lease) -> String {
    value_of(QUEUED, lease)
}

fn value_of(state: &str, lease: &Lease) -> String {
    let (mode, fingerprint) = (words(lease.mode()), lease.id().fingerprint());
    value(state, &tag(lease), fingerprint, &mode, lease.description())
}

fn value(
    state: &str,
    tag: &str,
    fingerprint: Fingerprint,
    mode: &str,
    description: Option<&Description>,
) -> String {
    match description {
        Some(description) => format!("{state}{tag} {fingerprint} {mode} {description}"),
        None => format!("{state}{tag} {fingerprint} {mode}"),
    }
}

fn words(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "whole".to_owned(),
        Mode::Units { units, limit } => format!("{units}/{limit}"),
    }
}

/// The parsed content of a value.
struct Text {
    state: State,
    tag: String,
    mode: Mode,
    /// The revision of the grant, if the value has been rewritten since the grant.
    granted: Option<i64>,
    fingerprint: Fingerprint,
    description: Option<Description>,
}

impl Text {
    fn read(value: &str) -> Option<Self> {
        let (state, rest) = match value.strip_prefix(HELD) {
            Some(rest) => (State::Held, rest),
            None => (State::Queued, value.strip_prefix(QUEUED)?),
        };
        let (tag, rest) = rest.split_once(' ')?;
        let (fingerprint, rest) = rest.split_once(' ')?;
        let (mode, description) = match rest.split_once(' ') {
            Some((mode, description)) => (mode, Description::new(description).ok()),
            None => (rest, None),
        };
        let (mode, granted) = match mode.split_once('@') {
            Some((mode, granted)) => (mode, Some(granted.parse().ok()?)),
            None => (mode, None),
        };
        let mode = match mode.split_once('/') {
            Some((units, limit)) => {
                Mode::Units { units: units.parse().ok()?, limit: limit.parse().ok()? }
            }
            None if mode == "whole" => Mode::Exclusive,
            None => return None,
        };
        let fingerprint = fingerprint.parse().ok()?;
        Some(Self { state, tag: tag.to_owned(), mode, granted, fingerprint, description })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::LockKey;

    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(10))
            .with_mode(Mode::Units { units: 2, limit: 3 })
            .with_description(Some(Description::new("a host/1 x").unwrap()));

        let text = Text::read(&queued(&lease)).unwrap();

        assert_eq!(text.state, State::Queued);
        assert_eq!(text.tag, tag(&lease));
        assert_eq!(text.mode, lease.mode());
        assert_eq!(text.fingerprint, lease.id().fingerprint());
        assert_eq!(text.description.as_ref(), lease.description());
        assert_eq!(Text::read(&held(&lease)).unwrap().state, State::Held);
    }

    #[test]
    fn each_number_of_a_grant_tells_its_revision() {
        for revision in [1, 7, i64::from(u32::MAX)] {
            let first = token(revision);
            let last = first + u64::from(SPARE_TOKENS);

            assert_eq!([first, last].map(granted_at), [revision; 2]);
            assert_eq!(last + 1, token(revision + 1));
        }
    }

    #[test]
    fn etcd_can_tell_holders_by_order() {
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(10));

        let (held, queued) = (held(&lease), queued(&lease));
        assert!(
            held.as_str() < BETWEEN_HELD_AND_QUEUED && BETWEEN_HELD_AND_QUEUED < queued.as_str()
        );
    }

    #[test]
    fn an_entry_of_another_program_is_foreign() {
        for value in [
            "",
            "held",
            "held x",
            "held t 0000000x whole",
            "queued t 00000000 1of2",
            "held t 00000000 whole@x",
        ] {
            assert!(Text::read(value).is_none(), "{value}");
        }
    }
}
