//! The stored form of a key, which contains its state and the data for conditional writes.
//!
//! | field | contents |
//! | --- | --- |
//! | `layout` | the version of this format |
//! | `write` | a random number, so that no two documents are equal and a client recognizes its own write |
//! | `token` | the last token |
//! | `timers` | for each lease and queue entry, the write that set its end and its duration in microseconds |
//! | `asked` | the timer of a revocation request |
//! | `released` | the last released leases |
//! | `entry` | the holders and the queue, as [`Document`] describes them |

use std::collections::{HashMap, VecDeque};

use leasehold_core::{Error, ErrorKind};
use leasehold_entry::Document;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The version of the format. Documents with a different version are not read.
const LAYOUT: u32 = 1;

/// The largest token that a document may contain. Larger tokens could overflow.
const LARGEST_TOKEN: u64 = i64::MAX.unsigned_abs();

/// The number of released leases in a document. A client whose reply to a release was lost finds
/// its lease among them, unless as many leases were released in the meantime.
const MOST_RELEASED: usize = 8;

/// The write that has set the end of a lease or of a queue entry.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Timer {
    /// The number of the write. Each renewal has a different number.
    pub(crate) write: u64,
    /// The time from the write to the end, in microseconds.
    pub(crate) lasts: i64,
}

/// The leases that were released last.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Released(VecDeque<Uuid>);

/// The contents of a document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// The number of the write, if the document exists.
    pub(crate) write: Option<u64>,
    pub(crate) document: Document,
    pub(crate) timers: HashMap<Uuid, Timer>,
    pub(crate) asked: Option<Timer>,
    pub(crate) released: Released,
    pub(crate) is_unreadable: bool,
    unknown: Map<String, Value>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Envelope {
    layout: u32,
    write: u64,
    token: u64,
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    timers: HashMap<Uuid, Timer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Timer>,
    #[serde(default)]
    released: Released,
    entry: Value,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

impl Released {
    pub(crate) fn add(&mut self, tag: Uuid) {
        self.remove(&tag);
        self.0.push_back(tag);
        let surplus = self.0.len().saturating_sub(MOST_RELEASED);
        self.0.drain(..surplus);
    }

    pub(crate) fn remove(&mut self, tag: &Uuid) {
        self.0.retain(|released| released != tag);
    }

    pub(crate) fn contains(&self, tag: &Uuid) -> bool {
        self.0.contains(tag)
    }

    /// Returns whether a lease that was added after `earlier` would be in the list.
    pub(crate) fn contains_all_after(&self, earlier: &Self) -> bool {
        match earlier.0.back() {
            Some(last) => self.contains(last),
            None => self.0.len() < MOST_RELEASED,
        }
    }
}

impl Stored {
    /// Parses a document.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`] if the document has a different version or is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let envelope: Envelope = serde_json::from_str(text).map_err(|error| {
            unreadable("the document of the key is not valid").with_source(error)
        })?;
        if envelope.layout != LAYOUT {
            return Err(unreadable("another version of Leasehold wrote the document of the key"));
        }
        if envelope.token > LARGEST_TOKEN {
            return Err(unreadable("the last token of the key is too large"));
        }
        let document = Document::parse(&envelope.entry.to_string(), envelope.token)?;
        Ok(Self {
            write: Some(envelope.write),
            document,
            timers: envelope.timers,
            asked: envelope.asked,
            released: envelope.released,
            is_unreadable: false,
            unknown: envelope.unknown,
        })
    }

    /// Returns the contents that replace a document that this version cannot read.
    pub(crate) fn unreadable() -> Self {
        Self { is_unreadable: true, ..Self::default() }
    }

    /// Returns a number that no other write has, even if a copy of this process is running.
    pub(crate) fn unique_number() -> u64 {
        let (high, low) = Uuid::new_v4().as_u64_pair();
        high ^ low
    }

    /// Returns the text of the document with this number.
    pub(crate) fn to_text(&self, write: u64) -> String {
        let entry = serde_json::from_str(&self.document.to_text()).expect("it is JSON");
        let envelope = Envelope {
            layout: LAYOUT,
            write,
            token: self.document.entry.last_token,
            timers: self.timers.clone(),
            asked: self.asked,
            released: self.released.clone(),
            entry,
            unknown: self.unknown.clone(),
        };
        serde_json::to_string(&envelope).expect("all keys are strings")
    }
}

fn unreadable(why: &str) -> Error {
    let message = format!("{why}; force the release of the key to replace the document");
    Error::new(ErrorKind::WrongType, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let mut stored = Stored::default();
        stored.document.entry.last_token = 9;
        stored.timers.insert(Uuid::from_u128(1), Timer { write: u64::MAX, lasts: 8_000_000 });
        stored.released.add(Uuid::from_u128(2));

        let text = stored.to_text(7);

        let read = Stored::parse(&text).unwrap();
        assert_eq!((read.write, read.document.entry.last_token), (Some(7), 9));
        assert_eq!((read.timers, read.released), (stored.timers, stored.released));
    }

    #[test]
    fn fields_that_this_version_does_not_know_are_kept() {
        let text = Stored::default().to_text(7).replacen('{', r#"{"region":"eu","#, 1);

        let written = Stored::parse(&text).unwrap().to_text(8);

        assert!(written.contains(r#""region":"eu""#), "{written}");
    }

    #[test]
    fn a_document_of_another_version_and_an_invalid_document_are_refused() {
        let other = Stored::default().to_text(7).replacen("\"layout\":1", "\"layout\":2", 1);
        let large = Stored::default().to_text(7).replacen(
            "\"token\":0",
            "\"token\":18446744073709551615",
            1,
        );
        for (text, expected) in
            [(&*other, "another version"), ("{}", "not valid"), (&large, "too large")]
        {
            let error = Stored::parse(text).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::WrongType);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn only_the_last_released_leases_are_kept() {
        let mut released = Released::default();
        for number in 0..20 {
            released.add(Uuid::from_u128(number));
            released.add(Uuid::from_u128(number));
        }

        assert_eq!(released.0.len(), MOST_RELEASED);
        assert!(
            released.contains(&Uuid::from_u128(12)) && !released.contains(&Uuid::from_u128(11))
        );
    }
}
