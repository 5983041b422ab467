//! Reads and writes the JSON form of an entry.

use std::collections::HashMap;

use leasehold_core::backend::entry::{Entry, QueueEntry, Tokens};
use leasehold_core::backend::{Claim, Patience};
use leasehold_core::{Error, ErrorKind};
use serde_json::Error as JsonError;
use uuid::Uuid;

use crate::stored::{StoredEntry, StoredHolder, StoredWaiter, Unknown};
use crate::tag::Tag;

/// The state of a key, with the fields that this version does not know.
///
/// See the example of [the crate](crate).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The state of the key.
    pub entry: Entry<Tag, i64>,
    sockets: HashMap<Uuid, u32>,
    unknown: Unknown,
    of_holders: HashMap<Uuid, Unknown>,
    of_waiters: HashMap<Uuid, Unknown>,
}

impl Document {
    /// The version of the format. Documents with a different version are not read.
    pub const VERSION: u32 = 1;

    /// The maximum number of queue entries that a store should keep. Later claims poll. With this
    /// limit, a document has about 14 kB.
    pub const MAX_QUEUE: usize = 128;

    /// Parses a document. `last_token` is the last token of the key, which the document does not
    /// contain.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`] if the document has a different version or is not valid.
    /// Leave such a document as it is, unless an operator forces the release of the key.
    pub fn parse(text: &str, last_token: u64) -> Result<Self, Error> {
        let stored: StoredEntry = serde_json::from_str(text).map_err(invalid)?;
        if stored.version != Self::VERSION {
            let message = format!(
                "another version of Leasehold wrote the state of the key (format {}, but this version requires {}); use that version, or force the release of the key",
                stored.version,
                Self::VERSION,
            );
            return Err(Error::new(ErrorKind::WrongType, message));
        }
        Self::of(stored, last_token).ok_or_else(unreadable)
    }

    fn of(stored: StoredEntry, last_token: u64) -> Option<Self> {
        let holders = stored.holders.iter().map(StoredHolder::holding).collect::<Option<_>>()?;
        let queue = stored.queue.iter().map(StoredWaiter::queue_entry).collect::<Option<_>>()?;
        let entry = Entry { holders, queue, asked_until: stored.asked_until, last_token };
        let sockets = stored.queue.iter();
        let sockets = sockets.filter_map(|waiter| Some((waiter.tag, waiter.socket?))).collect();
        let of_holders = stored.holders.into_iter().map(|holder| (holder.tag, holder.unknown));
        let of_waiters = stored.queue.into_iter().map(|waiter| (waiter.tag, waiter.unknown));
        let is_known = |(_, unknown): &(Uuid, Unknown)| !unknown.is_empty();
        Some(Self {
            entry,
            sockets,
            unknown: stored.unknown,
            of_holders: of_holders.filter(is_known).collect(),
            of_waiters: of_waiters.filter(is_known).collect(),
        })
    }

    /// Returns the JSON form. Unknown fields of leases and claims that are gone are omitted.
    pub fn to_text(&self) -> String {
        let Entry { holders, queue, asked_until, last_token: _ } = &self.entry;
        let holder = |holding| StoredHolder::of(holding, self.of_holders.get(&holding.name.id));
        let waiter = |waiter: &QueueEntry<Tag, i64>| {
            let id = &waiter.name.id;
            StoredWaiter::of(waiter, self.socket(id), self.of_waiters.get(id))
        };
        let stored = StoredEntry {
            version: Self::VERSION,
            holders: holders.iter().map(holder).collect(),
            queue: queue.iter().map(waiter).collect(),
            asked_until: *asked_until,
            unknown: self.unknown.clone(),
        };
        serde_json::to_string(&stored).expect("all keys are strings")
    }

    /// Returns the claim as a store can grant or queue it. Spare tokens are not ahead of the time,
    /// whose token is [`Tokens::at_least`], so that tokens remain in order even if commits are
    /// lost. If the queue has [`MAX_QUEUE`](Self::MAX_QUEUE) entries, the claim is not queued, and
    /// its caller polls.
    ///
    /// See the example of [the crate](crate).
    #[must_use]
    pub fn limited(&self, name: &Tag, claim: &Claim, tokens: Tokens) -> Claim {
        let Entry { queue, last_token, .. } = &self.entry;
        let free = tokens.at_least.saturating_sub(last_token.max(&tokens.above) + 1);
        let spare = claim.spare_tokens().min(u32::try_from(free).unwrap_or(u32::MAX));
        let is_full =
            queue.len() >= Self::MAX_QUEUE && !queue.iter().any(|waiter| waiter.name == *name);
        let patience = if is_full { Patience::Leaves } else { claim.patience() };
        claim.clone().with_spare_tokens(spare).with_patience(patience)
    }

    /// Returns the number of the socket that wakes the process of a queue entry.
    pub fn socket(&self, tag: &Uuid) -> Option<u32> {
        self.sockets.get(tag).copied()
    }

    /// Sets the number of the socket that wakes the process of a queue entry.
    pub fn set_socket(&mut self, tag: Uuid, socket: u32) {
        self.sockets.insert(tag, socket);
    }

    /// Returns whether the document has fields that this version does not know. Such a document
    /// must not be replaced by a shorter form while a lease or a claim is in force.
    pub fn has_unknown_fields(&self) -> bool {
        let Entry { holders, queue, .. } = &self.entry;
        !self.unknown.is_empty()
            || holders.iter().any(|holding| self.of_holders.contains_key(&holding.name.id))
            || queue.iter().any(|waiter| self.of_waiters.contains_key(&waiter.name.id))
    }
}

impl From<Entry<Tag, i64>> for Document {
    fn from(entry: Entry<Tag, i64>) -> Self {
        Self { entry, ..Self::default() }
    }
}

fn invalid(error: JsonError) -> Error {
    unreadable().with_source(error)
}

fn unreadable() -> Error {
    let message =
        "the stored state of the key is not valid; force the release of the key to replace it";
    Error::new(ErrorKind::WrongType, message)
}
