//! The keys and arguments of scripts, encoded as text.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::time::Duration;

use leasehold_core::backend::{Fingerprint, Lease};
use leasehold_core::{Description, LockKey};

use crate::layout::{Layout, Place, Places};
use crate::script::Script;

/// A script, and the positions of its keys and arguments.
#[derive(Clone)]
pub(crate) struct Shape {
    pub(crate) script: Script,
    pub(crate) keys: Range<usize>,
    /// The number of required keys, which come first.
    pub(crate) essential: usize,
    pub(crate) args: Range<usize>,
}

/// The keys and the arguments of one or more calls.
#[derive(Default)]
pub(crate) struct Words {
    text: String,
    /// The position where each word ends.
    ends: Vec<usize>,
    /// The keys of the last call.
    keys: Range<usize>,
}

impl Words {
    /// The number of arguments and of bytes that is sufficient for most calls.
    const ARGS: (usize, usize) = (8, 256);

    /// Creates the words of a call that starts with keys of a lock.
    pub(crate) fn of(of: &Places<'_>, keys: &[Place<'_>]) -> Self {
        let (args, bytes) = Self::ARGS;
        let text = String::with_capacity(keys.len() * of.len() + bytes);
        let ends = Vec::with_capacity(keys.len() + args);
        Self { text, ends, keys: 0..0 }.keys(of, keys)
    }

    /// Reserves space for this number of words and bytes.
    pub(crate) fn with_capacity(words: usize, bytes: usize) -> Self {
        let (text, ends) = (String::with_capacity(bytes), Vec::with_capacity(words));
        Self { text, ends, keys: 0..0 }
    }

    /// Starts a call.
    pub(crate) fn begin(&mut self) {
        self.keys = self.ends.len()..self.ends.len();
    }

    /// Returns the shape of the last call. All keys of the call are required.
    pub(crate) fn shape(&self, script: Script) -> Shape {
        let (keys, args) = (self.keys.clone(), self.keys.end..self.ends.len());
        Shape { script, essential: keys.len(), keys, args }
    }

    pub(crate) fn keys(mut self, of: &Places<'_>, keys: &[Place<'_>]) -> Self {
        keys.iter().for_each(|key| self.push_key(of, *key));
        self
    }

    /// Adds a key that no lock uses.
    pub(crate) fn key(mut self, name: &str) -> Self {
        self.push(name);
        self.end_keys();
        self
    }

    pub(crate) fn word(mut self, word: &str) -> Self {
        self.push(word);
        self
    }

    pub(crate) fn number(mut self, number: impl fmt::Display) -> Self {
        self.push_number(number);
        self
    }

    /// Adds a time in the format of the server.
    pub(crate) fn millis(self, time: Duration) -> Self {
        self.number(millis(time))
    }

    /// Adds the ID of a lease.
    pub(crate) fn id(mut self, lease: &Lease) -> Self {
        lease.id().write_secret(&mut self.text);
        self.word("")
    }

    /// Adds the fingerprint of the selected lease, or an empty word to select all leases.
    pub(crate) fn meant(self, only: Option<Fingerprint>) -> Self {
        self.word(&only.map(|lease| lease.to_string()).unwrap_or_default())
    }

    /// Adds the value of a lock's key.
    pub(crate) fn value(mut self, lease: &Lease) -> Self {
        self.push_value(lease);
        self
    }

    pub(crate) fn push_key(&mut self, of: &Places<'_>, key: Place<'_>) {
        self.push_name(of, key);
        self.end_keys();
    }

    fn push_name(&mut self, of: &Places<'_>, key: Place<'_>) {
        of.write(key, &mut self.text);
        self.push("");
    }

    /// Marks all words of this call so far as keys.
    pub(crate) fn end_keys(&mut self) {
        self.keys.end = self.ends.len();
    }

    /// Adds the name of a lock.
    pub(crate) fn push_lock(&mut self, layout: &Layout, key: &LockKey) {
        layout.write_lock(key, &mut self.text);
        self.push("");
    }

    /// Adds the name of a key that a hash slot's locks share, up to the slot's tag.
    pub(crate) fn push_up_to_tag(&mut self, layout: &Layout, key: Place<'_>) {
        layout.write_up_to_tag(key, &mut self.text);
        self.push("");
    }

    /// Adds the remaining characters of such a name, starting with the tag of a lock's slot.
    pub(crate) fn push_tag(&mut self, layout: &Layout, key: &LockKey) {
        layout.write_tag(key, &mut self.text);
        self.push("");
    }

    pub(crate) fn push(&mut self, word: &str) {
        self.text.push_str(word);
        self.ends.push(self.text.len());
    }

    pub(crate) fn push_number(&mut self, number: impl fmt::Display) {
        write!(self.text, "{number}").expect("writing to a string succeeds");
        self.push("");
    }

    pub(crate) fn push_value(&mut self, lease: &Lease) {
        lease.id().write_secret(&mut self.text);
        if let Some(description) = lease.description() {
            self.text.push(' ');
            self.text.push_str(description.as_str());
        }
        self.push("");
    }

    /// Adds the description of a lease's holder, or an empty word if there is no description.
    pub(crate) fn description(self, lease: &Lease) -> Self {
        self.word(lease.description().map(Description::as_str).unwrap_or_default())
    }

    /// Returns the position where a word starts.
    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Returns the words in `range`.
    pub(crate) fn in_range(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = &str> {
        let mut start = self.start(range.start);
        self.ends[range].iter().map(move |end| {
            let word = &self.text[start..*end];
            start = *end;
            word
        })
    }

    /// Returns the size of the words in `range`, in bytes.
    pub(crate) fn bytes_of(&self, range: Range<usize>) -> usize {
        self.start(range.end) - self.start(range.start)
    }

    /// Returns the size of all words, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// Converts a time to the server's unit, whole milliseconds, rounded up.
pub(crate) fn millis(time: Duration) -> u128 {
    time.as_nanos().div_ceil(1_000_000)
}

impl Shape {
    pub(crate) fn with_essential(self, essential: usize) -> Self {
        Self { essential, ..self }
    }
}
