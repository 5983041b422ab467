//! Names of locks, as command lines give them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use leasehold::{Error, LockKey};

/// A name as it was given, and the key that it stands for.
///
/// Stores contain the [encoded](LockKey) form. Users see only the name, because the encoded form, used as a name, would be another lock.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    name: OsString,
    key: LockKey,
}

impl Key {
    pub(crate) fn new(name: &OsStr) -> Result<Self, Error> {
        Ok(Self { name: name.to_owned(), key: LockKey::new(name.as_bytes())? })
    }

    /// The name of a key in a store.
    pub(crate) fn of(key: LockKey) -> Self {
        let mut bytes = Vec::new();
        let mut rest = key.as_str();
        // A percent sign always begins the code of a byte.
        while let Some((plain, coded)) = rest.split_once('%') {
            bytes.extend_from_slice(plain.as_bytes());
            let code = coded.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
            bytes.extend(code);
            rest = coded.get(2..).unwrap_or_default();
        }
        bytes.extend_from_slice(rest.as_bytes());
        Self { name: OsString::from_vec(bytes), key }
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

    /// The name for a message, in quotation marks.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.escaped())
    }
}

/// Escapes bytes that are not text, and characters that a terminal might act upon.
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
    fn name_of_a_stored_key_is_the_one_that_was_given() {
        for name in [&b"plain"[..], b"a b%/{\xff}\n%25"] {
            let key = Key::new(OsStr::from_bytes(name)).unwrap();
            assert_eq!(Key::of(key.as_lock_key().clone()).name().as_bytes(), name);
        }
    }

    #[test]
    fn only_text_without_control_characters_stays_as_it_is() {
        assert_eq!(escape("a b%/ü".as_bytes()), "a b%/ü");
        assert_eq!(escape(b"a\x1b[2J\n\xffz"), r"a\u{1b}[2J\n\xffz");
    }
}
