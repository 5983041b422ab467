//! Names of locks, as command lines give them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use leasehold::{Error, LockKey};

/// A name as it was given, and the key that it stands for.
///
/// Stores see the [encoded](LockKey) form, and users only the name: encoded once more, it would name another lock.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    name: OsString,
    key: LockKey,
}

impl Key {
    pub(crate) fn new(name: &OsStr) -> Result<Self, Error> {
        Ok(Self { name: name.to_owned(), key: LockKey::new(name.as_bytes())? })
    }

    /// The name, byte by byte.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(crate) fn as_lock_key(&self) -> &LockKey {
        &self.key
    }

    /// The name for a human: bytes that a terminal might act upon are escaped.
    pub(crate) fn escaped(&self) -> String {
        escape(self.name.as_bytes())
    }
}

/// Escapes what is no text, and what a terminal might act upon.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() {
                shown.extend(char.escape_default());
            } else {
                shown.push(char);
            }
        }
        shown.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_without_control_characters_stays_as_it_is() {
        assert_eq!(escape("a b%/ü".as_bytes()), "a b%/ü");
        assert_eq!(escape(b"a\x1b[2J\n\xffz"), r"a\u{1b}[2J\n\xffz");
    }
}
