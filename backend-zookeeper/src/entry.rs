//! Defines entries, which are the ZooKeeper nodes of holders and waiters, and the meaning of their
//! data.

use std::str;
use std::time::Duration;

use leasehold_core::backend::{Fingerprint, Lease, Waiter};
use leasehold_core::{Description, Holder};
use zookeeper_client::Stat;

use crate::name::{Name, State};

/// The first word in the data of a holder.
const HELD: &str = "held";

/// The first word in the data of a waiter.
const QUEUED: &str = "queued";

/// The character before a node number in the data of a claim that holds the lock only if its node
/// has this number. The character and the number take the place of the token, see
/// [`State::HeldAs`].
const IF_NUMBERED: char = '@';

/// The data with which Curator asks a holder to finish.
pub(crate) const REVOKE: &[u8] = b"__REVOKE__";

/// The number of bits by which a zxid is shifted to obtain a token. Each grant has this range of
/// numbers for hand-offs. Even after centuries of elections, tokens stay below 2^53, the largest
/// integer that JSON parsers read exactly.
pub(crate) const SHIFT: u32 = 8;

/// A holder of a lock or a waiter for it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) data: Vec<u8>,
    pub(crate) stat: Stat,
    text: Option<Text>,
}

/// Returns the token of the grant with this zxid.
pub(crate) fn token(zxid: i64) -> u64 {
    u64::try_from(zxid).unwrap_or_default() << SHIFT
}

/// Returns the data of a new node in this state. If the node holds the lock, the creation of the
/// node is the grant.
pub(crate) fn data(state: State, lease: &Lease) -> Vec<u8> {
    write(state, lease, 0)
}

impl Entry {
    pub(crate) fn new(name: Name, data: Vec<u8>, stat: Stat) -> Self {
        let text = str::from_utf8(&data).ok().and_then(Text::read);
        Self { name, data, stat, text }
    }

    /// Returns whether the entry was granted the lock. The first entry in the queue may also be a
    /// waiter or an unfinished claim.
    pub(crate) fn is_granted(&self) -> bool {
        let state = self.text.as_ref().map(|text| text.state.of(self.name.number));
        state.is_none_or(|state| state == State::Held)
    }

    /// Returns whether Curator's `Revoker` has asked the holder to finish.
    pub(crate) fn is_asked_by_curator(&self) -> bool {
        self.data == REVOKE
    }

    /// Returns whether the data was written after the node was created.
    pub(crate) fn is_touched(&self) -> bool {
        self.stat.version > 0
    }

    /// Returns whether a foreign program created the node.
    pub(crate) fn is_foreign(&self) -> bool {
        self.text.is_none()
    }

    /// Returns the token of the grant.
    pub(crate) fn token(&self) -> u64 {
        match &self.text {
            Some(text) if text.token > 0 => text.token,
            _ => token(self.stat.czxid),
        }
    }

    /// Returns the data of the node for this lease.
    pub(crate) fn renewed(&self, lease: &Lease) -> Vec<u8> {
        match &self.text {
            Some(text) => write(text.state, lease, text.token),
            None => write(State::Held, lease, self.token()),
        }
    }

    /// Returns the data for a moved node. The data contains the token, because the node's creation
    /// is no longer the grant.
    pub(crate) fn moved(&self, lease: &Lease) -> Vec<u8> {
        write(State::Held, lease, self.token())
    }

    /// Returns the maximum time for which the entry remains without renewal.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        self.text.as_ref().map(|text| text.ttl)
    }

    pub(crate) fn holder(&self) -> Holder {
        Holder::new(self.fingerprint())
            .with_description(self.description())
            .with_mode(self.name.mode)
            .with_remaining(self.ttl())
            .with_token(Some(self.token()))
    }

    pub(crate) fn waiter(&self) -> Waiter {
        Waiter::new(self.fingerprint(), self.name.mode).with_description(self.description())
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let text = self.text.as_ref().map(|text| text.fingerprint);
        text.unwrap_or_else(|| Fingerprint::of(self.name.text.as_bytes()))
    }

    /// Curator stores the address of the machine in the data.
    fn description(&self) -> Option<Description> {
        match &self.text {
            Some(text) => text.description.clone(),
            None => str::from_utf8(&self.data).ok().and_then(|text| Description::new(text).ok()),
        }
    }
}

fn write(state: State, lease: &Lease, token: u64) -> Vec<u8> {
    let (fingerprint, ttl) = (lease.id().fingerprint(), lease.ttl().as_millis());
    let (state, token) = match state {
        State::Held => (HELD, token.to_string()),
        State::Queued => (QUEUED, token.to_string()),
        State::HeldAs(number) => (HELD, format!("{IF_NUMBERED}{number}")),
    };
    let text = match lease.description() {
        Some(description) => format!("{state} {fingerprint} {ttl} {token} {description}"),
        None => format!("{state} {fingerprint} {ttl} {token}"),
    };
    text.into_bytes()
}

/// The parsed data of a node.
#[derive(Clone, Debug)]
struct Text {
    state: State,
    fingerprint: Fingerprint,
    ttl: Duration,
    token: u64,
    description: Option<Description>,
}

impl Text {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, ' ');
        let state = match parts.next()? {
            HELD => State::Held,
            QUEUED => State::Queued,
            _ => return None,
        };
        let fingerprint = parts.next()?.parse().ok()?;
        let ttl = Duration::from_millis(parts.next()?.parse().ok()?);
        let token = parts.next()?;
        let (state, token) = match token.strip_prefix(IF_NUMBERED) {
            Some(number) => (State::HeldAs(number.parse().ok()?), 0),
            None => (state, token.parse().ok()?),
        };
        let description = parts.next().and_then(|text| Description::new(text).ok());
        Some(Self { state, fingerprint, ttl, token, description })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;

    use super::*;

    #[test]
    fn data_say_what_was_written() {
        let lease = Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(10))
            .with_description(Some(Description::new("a host/1 x").unwrap()));
        let read = |data: Vec<u8>| Text::read(&String::from_utf8(data).unwrap()).unwrap();

        let text = read(data(State::Queued, &lease));
        assert_eq!((text.state, text.token, text.ttl), (State::Queued, 0, lease.ttl()));
        assert_eq!(text.fingerprint, lease.id().fingerprint());
        assert_eq!(text.description.as_ref(), lease.description());
        for state in [State::Held, State::HeldAs(7)] {
            assert_eq!(read(data(state, &lease)).state, state);
        }
        assert_eq!(read(write(State::Held, &lease, 42)).token, 42);
    }

    #[test]
    fn data_of_other_programs_are_foreign() {
        for data in [
            "",
            "10.0.0.1",
            "__REVOKE__",
            "held",
            "held x",
            "held 00000000 x 0",
            "held 00000000 1 @",
        ] {
            assert!(Text::read(data).is_none(), "{data}");
        }
    }
}
