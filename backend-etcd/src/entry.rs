//! One who holds or queues for a lock: a key in etcd, and what its value says.

use std::str;

use etcd_client::KeyValue;
use leasehold_core::{Description, Fingerprint, Holder, Lease, Share};

/// What the values of those who hold begin with: before those who [queue](QUEUED), so that etcd can compare.
pub(crate) const HELD: &str = "held ";

/// What the values of those who queue begin with.
const QUEUED: &str = "queued ";

/// What lies between the values of those who hold and those who queue. What other programs write, if anything, is
/// rather taken for one who holds.
pub(crate) const BETWEEN_HELD_AND_QUEUED: &str = "i";

/// What comes after all values of those who hold.
pub(crate) const AFTER_HELD: &str = "held!";

/// One who holds or queues for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) state: State,
    pub(crate) share: Share,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) description: Option<Description>,
    /// etcd's lease, with which the key ends; 0 if it has none.
    pub(crate) lease: i64,
    pub(crate) created: i64,
    pub(crate) modified: i64,
}

/// Whether one holds a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Held,
    Queued,
    /// Of another program that follows the recipe: it holds once nobody is before it.
    Foreign,
}

impl Entry {
    pub(crate) fn read(kv: &KeyValue) -> Self {
        let foreign = || Text {
            state: State::Foreign,
            share: Share::Whole,
            fingerprint: Fingerprint::of(kv.key()),
            description: None,
        };
        let text = str::from_utf8(kv.value()).ok().and_then(Text::read).unwrap_or_else(foreign);
        Self {
            key: kv.key().to_vec(),
            value: kv.value().to_vec(),
            state: text.state,
            share: text.share,
            fingerprint: text.fingerprint,
            description: text.description,
            lease: kv.lease(),
            created: kv.create_revision(),
            modified: kv.mod_revision(),
        }
    }

    pub(crate) fn holder(&self) -> Holder {
        Holder::new(self.fingerprint)
            .with_description(self.description.clone())
            .with_units(self.share.units())
    }
}

/// The value of one who holds the lock as `lease` says.
pub(crate) fn held(lease: &Lease) -> String {
    value(HELD, lease)
}

/// The value of one who queues for it.
pub(crate) fn queued(lease: &Lease) -> String {
    value(QUEUED, lease)
}

fn value(state: &str, lease: &Lease) -> String {
    let fingerprint = lease.id().fingerprint();
    let share = match lease.share() {
        Share::Whole => "whole".to_owned(),
        Share::Units { units, limit } => format!("{units}/{limit}"),
    };
    match lease.description() {
        Some(description) => format!("{state}{fingerprint} {share} {description}"),
        None => format!("{state}{fingerprint} {share}"),
    }
}

/// What a value says.
struct Text {
    state: State,
    share: Share,
    fingerprint: Fingerprint,
    description: Option<Description>,
}

impl Text {
    fn read(value: &str) -> Option<Self> {
        let (state, rest) = match value.strip_prefix(HELD) {
            Some(rest) => (State::Held, rest),
            None => (State::Queued, value.strip_prefix(QUEUED)?),
        };
        let (fingerprint, rest) = rest.split_once(' ')?;
        let (share, description) = match rest.split_once(' ') {
            Some((share, description)) => (share, Description::new(description).ok()),
            None => (rest, None),
        };
        let share = match share.split_once('/') {
            Some((units, limit)) => {
                Share::Units { units: units.parse().ok()?, limit: limit.parse().ok()? }
            }
            None if share == "whole" => Share::Whole,
            None => return None,
        };
        Some(Self { state, share, fingerprint: fingerprint.parse().ok()?, description })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::LockKey;

    use super::*;

    #[test]
    fn values_say_what_was_written() {
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(10))
            .with_share(Share::Units { units: 2, limit: 3 })
            .with_description(Some(Description::new("a host/1 x").unwrap()));

        let text = Text::read(&queued(&lease)).unwrap();

        assert_eq!(text.state, State::Queued);
        assert_eq!(text.share, lease.share());
        assert_eq!(text.fingerprint, lease.id().fingerprint());
        assert_eq!(text.description.as_ref(), lease.description());
        assert_eq!(Text::read(&held(&lease)).unwrap().state, State::Held);
    }

    #[test]
    fn etcd_can_tell_who_holds_by_order() {
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(10));

        let (held, queued) = (held(&lease), queued(&lease));
        assert!(HELD <= held.as_str() && held.as_str() < AFTER_HELD);
        assert!(AFTER_HELD < BETWEEN_HELD_AND_QUEUED && BETWEEN_HELD_AND_QUEUED < queued.as_str());
    }

    #[test]
    fn what_others_write_is_foreign() {
        for value in ["", "held", "held x", "held 0000000x whole", "queued 00000000 1of2"] {
            assert!(Text::read(value).is_none(), "{value}");
        }
    }
}
