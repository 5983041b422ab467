//! The names of the nodes of holders and waiters. A name contains everything that determines the
//! node's position in the queue.
//!
//! | name | used for |
//! | --- | --- |
//! | `_c_<tag>-lock-NNNNNNNNNN` | a mutex, as in Curator's `InterProcessMutex` |
//! | `_c_<tag>-__READ__NNNNNNNNNN`, `_c_<tag>-__WRIT__NNNNNNNNNN` | a reader or a writer, as in Curator's `InterProcessReadWriteLock` |
//! | `_c_<tag>-unit-<state>-<units>-<limit>-NNNNNNNNNN` | permits of a semaphore; the state is `h`, `q` or a number, see [`State`] |
//!
//! The server assigns the number. The tag in a name identifies a [lease](crate::layout::tag), or is
//! Curator's optional protection ID.

use leasehold_core::backend::Mode;

/// The number of digits that the server appends.
const DIGITS: usize = 10;

/// The length of a tag.
const TAG: usize = 36;

const LOCK: &str = "lock-";
const READ: &str = "__READ__";
const WRITE: &str = "__WRIT__";
const UNIT: &str = "unit-";

/// The largest number of a claim that is not rejected. The server's numbers soon become negative,
/// and negative numbers sort first.
pub(crate) const LAST_NUMBER: u32 = (1 << 31) - (1 << 20);

/// Whether an entry holds the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Held,
    Queued,
    /// If its node has this number, the entry holds the lock. Otherwise, the entry waits.
    ///
    /// A claim reads the queue before its node is created. If the node gets the number that was
    /// next at that time, no node was created in the meantime. Creating the node has then granted
    /// the claim, and a second write is not necessary.
    HeldAs(u32),
}

impl State {
    /// Returns whether a node with this number holds the lock or waits.
    pub(crate) fn of(self, number: u32) -> Self {
        match self {
            Self::HeldAs(next) if next == number => Self::Held,
            Self::HeldAs(_) => Self::Queued,
            state => state,
        }
    }
}

/// The name of a holder's or waiter's node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: String,
    /// The tag, or an empty string if the name does not contain a tag.
    pub(crate) tag: String,
    pub(crate) mode: Mode,
    /// The state, or `None` if only the order of the nodes determines it.
    pub(crate) state: Option<State>,
    pub(crate) number: u32,
}

impl Name {
    /// Parses the name of a node. Returns `None` if the node is not a queue entry.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (head, digits) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)?;
        let number = number.parse().ok()?;
        let (tag, kind) = protection(head);
        let (mode, state) = match kind {
            LOCK => (Mode::Exclusive, None),
            READ => (Mode::READER, None),
            WRITE => (Mode::WRITER, None),
            _ => units(kind.strip_prefix(UNIT)?)?,
        };
        let state = state.map(|state| state.of(number));
        Some(Self { text: text.to_owned(), tag: tag.to_owned(), mode, state, number })
    }

    /// Returns the name for a lease with this tag, without the number that the server appends.
    pub(crate) fn head(tag: &str, mode: Mode, state: State) -> String {
        match mode {
            Mode::Exclusive => format!("_c_{tag}-{LOCK}"),
            Mode::WRITER => format!("_c_{tag}-{WRITE}"),
            Mode::READER => format!("_c_{tag}-{READ}"),
            Mode::Units { units, limit } => {
                let state = match state {
                    State::Held => "h".to_owned(),
                    State::Queued => "q".to_owned(),
                    State::HeldAs(number) => number.to_string(),
                };
                format!("_c_{tag}-{UNIT}{state}-{units}-{limit}-")
            }
        }
    }

    /// Returns the name of a claim that sorts after all existing claims.
    pub(crate) fn last(tag: &str, mode: Mode) -> Self {
        let text = format!("{}{}", Self::head(tag, mode, State::Queued), u32::MAX);
        Self::read(&text).expect("it has as many digits")
    }

    /// Returns the name with the same number and a different state or number of permits.
    pub(crate) fn changed(&self, mode: Mode, state: State) -> Self {
        if mode == self.mode && self.state.is_none_or(|current| current == state) {
            return self.clone();
        }
        let text = format!("{}{:0DIGITS$}", Self::head(&self.tag, mode, state), self.number);
        Self::read(&text).expect("a name that was read and written again is a name")
    }

    /// Returns the sort key. The text is necessary because one Curator client can create two nodes
    /// with the same number.
    pub(crate) fn order(&self) -> (u32, &str) {
        (self.number, &self.text)
    }

    pub(crate) fn is_reader(&self) -> bool {
        self.mode == Mode::READER
    }
}

/// Splits off the tag at the position of Curator's protection ID, if the name contains one.
fn protection(head: &str) -> (&str, &str) {
    let protected = head.strip_prefix("_c_").and_then(|rest| rest.split_at_checked(TAG));
    match protected {
        Some((tag, rest)) if rest.starts_with('-') => (tag, &rest[1..]),
        _ => ("", head),
    }
}

fn units(text: &str) -> Option<(Mode, Option<State>)> {
    let mut parts = text.strip_suffix('-')?.split('-');
    let state = match parts.next()? {
        "h" => State::Held,
        "q" => State::Queued,
        number => State::HeldAs(number.parse().ok()?),
    };
    let (units, limit) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some((Mode::Units { units, limit }, Some(state)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "6ba7b810-9dad-51d1-80b4-00c04fd430c8";

    #[test]
    fn names_say_what_was_written() {
        let modes =
            [Mode::Exclusive, Mode::READER, Mode::WRITER, Mode::Units { units: 2, limit: 3 }];
        for mode in modes {
            for state in [State::Held, State::Queued, State::HeldAs(12), State::HeldAs(11)] {
                let text = format!("{}0000000012", Name::head(TAG, mode, state));
                let name = Name::read(&text).unwrap();

                assert_eq!((name.tag.as_str(), name.mode, name.number), (TAG, mode, 12));
                assert!(name.state.is_none_or(|read| read == state.of(12)));
                assert_eq!(name.changed(mode, state.of(12)), name);
            }
        }
    }

    #[test]
    fn curators_names_are_understood() {
        let protected = Name::read(&format!("_c_{TAG}-lock-0000000007")).unwrap();
        assert_eq!((protected.tag.as_str(), protected.mode), (TAG, Mode::Exclusive));

        for (text, mode) in [
            ("lock-0000000007", Mode::Exclusive),
            ("__READ__0000000007", Mode::READER),
            ("__WRIT__0000000007", Mode::WRITER),
        ] {
            let name = Name::read(text).unwrap();
            assert_eq!((name.tag.as_str(), name.mode, name.number), ("", mode, 7), "{text}");
        }
    }

    #[test]
    fn other_nodes_have_no_place_in_the_order() {
        for text in [
            "",
            "revoke",
            "revoke-12345678",
            "lock-",
            "lock-00000012",
            "lock--2147483648",
            "lease-0000000001",
            "_c_lock-0000000001x",
            "unit-h-1-0000000001",
            "unit-x-1-2-0000000001",
            "unit-h-1-2-3-0000000001",
            "é00000000",
        ] {
            assert_eq!(Name::read(text), None, "{text}");
        }
    }
}
