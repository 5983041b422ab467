//! The types that can be used as lock names, and the validation of names.

use std::borrow::Cow;
use std::sync::Arc;

use super::LockKey;
use crate::contract::error::{Error, ErrorKind};

impl LockKey {
    /// Validates and encodes `name`, which need not be UTF-8.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the name is empty or longer than [`LockKey::MAX_LEN`]
    /// bytes.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, Error> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a key must not be empty"));
        }
        check_len(name.len())?;
        Ok(Self::of(encode(name)))
    }

    /// Parses an encoded name, as it appears in a store.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if `text` is not the [encoded name](Self::as_str) of any key.
    pub fn from_encoded(text: &str) -> Result<Self, Error> {
        let foreign = || Error::new(ErrorKind::Invalid, "the text is not an encoded key");
        let key = Self::new(decode(text).ok_or_else(foreign)?)?;
        if key.as_str() == text { Ok(key) } else { Err(foreign()) }
    }

    /// Encodes a prefix of lock names. The prefix may be empty.
    pub(crate) fn encoded_prefix(prefix: &[u8]) -> Result<String, Error> {
        check_len(prefix.len())?;
        Ok(encode(prefix))
    }

    /// Returns the key of segment `index` of this key: `<key>/<index>`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the name of the segment is too long.
    pub(crate) fn segment(&self, index: u32) -> Result<Self, Error> {
        let key = format!("{self}/{index}");
        // Each percent sign in the encoded key starts a group of three bytes that encodes one byte.
        let escapes = key.bytes().filter(|byte| *byte == b'%').count();
        check_len(key.len() - 2 * escapes)?;
        Ok(Self::of(key))
    }
}

impl TryFrom<&str> for LockKey {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

/// A value that can be used as the name of a lock.
///
/// All methods with a key parameter accept any of these types:
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::borrow::Cow;
/// use std::sync::Arc;
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::{LockClient, LockKey};
///
/// let client = LockClient::new(MemoryBackend::new());
/// let id = 42;
/// client.mutex(format!("invoice:{id}"))?;
/// client.mutex(Arc::<str>::from("invoice:42"))?;
/// client.mutex(Cow::Borrowed("invoice:42"))?;
/// client.mutex(b"invoice:42")?;
/// client.mutex(vec![0xff, 0x00])?;
///
/// let key = LockKey::new("invoice:42")?; // checked and encoded once
/// client.mutex(&key)?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the name of a lock",
    label = "expected a string, bytes or a `LockKey`",
    note = "to use a number as the name of a lock, format it, for example with `format!(\"invoice:{{id}}\")`"
)]
pub trait IntoKey {
    /// Validates and encodes the name.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the name is empty or longer than [`LockKey::MAX_LEN`]
    /// bytes.
    fn into_key(self) -> Result<LockKey, Error>;
}

impl IntoKey for LockKey {
    fn into_key(self) -> Result<LockKey, Error> {
        Ok(self)
    }
}

impl IntoKey for &LockKey {
    fn into_key(self) -> Result<LockKey, Error> {
        Ok(self.clone())
    }
}

macro_rules! names {
    ($($name:ty: $bytes:ident),* $(,)?) => {$(
        impl IntoKey for $name {
            fn into_key(self) -> Result<LockKey, Error> {
                LockKey::new(self.$bytes())
            }
        }
    )*};
}

names! {
    &str: as_bytes,
    String: as_bytes,
    &String: as_bytes,
    Box<str>: as_bytes,
    Arc<str>: as_bytes,
    &Arc<str>: as_bytes,
    Cow<'_, str>: as_bytes,
    &Cow<'_, str>: as_bytes,
    &[u8]: as_ref,
    Vec<u8>: as_slice,
    &Vec<u8>: as_slice,
}

impl<const N: usize> IntoKey for [u8; N] {
    fn into_key(self) -> Result<LockKey, Error> {
        LockKey::new(self)
    }
}

impl<const N: usize> IntoKey for &[u8; N] {
    fn into_key(self) -> Result<LockKey, Error> {
        LockKey::new(self)
    }
}

fn check_len(len: usize) -> Result<(), Error> {
    let max = LockKey::MAX_LEN;
    if len > max {
        let message = format!("a key must be at most {max} bytes long, not {len}");
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

fn encode(name: &[u8]) -> String {
    use std::fmt::Write;

    let mut encoded = String::with_capacity(name.len());
    for &byte in name {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String never fails");
        }
    }
    encoded
}

fn decode(encoded: &str) -> Option<Vec<u8>> {
    let mut bytes = encoded.bytes();
    let mut name = Vec::with_capacity(encoded.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        name.push(u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    Some(name)
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'.' | b'_' | b'-' | b':' | b'/' | b'@' | b'+' | b'=' | b',')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_1_to_512_bytes_are_taken() {
        assert_eq!(LockKey::new("").unwrap_err().kind(), ErrorKind::Invalid);
        assert!(LockKey::new("x").is_ok());
        assert!(LockKey::new([b'x'; 512]).is_ok());
        assert_eq!(LockKey::new([b'x'; 513]).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn hostile_bytes_are_encoded() {
        let key = LockKey::new(b"a{b}\0\r\n*?[]%~ \xff").unwrap();

        assert_eq!(key.as_str(), "a%7Bb%7D%00%0D%0A%2A%3F%5B%5D%25%7E%20%FF");
    }

    #[test]
    fn segments_are_named_after_the_key_and_no_longer_than_a_key_may_be() {
        let key = LockKey::new("50%").unwrap();
        assert_eq!(key.segment(7).unwrap(), LockKey::new("50%/7").unwrap());

        let key = LockKey::new([b'%'; 509]).unwrap();
        assert_eq!(
            key.segment(99).unwrap(),
            LockKey::new([&[b'%'; 509], "/99".as_bytes()].concat()).unwrap()
        );
        assert_eq!(key.segment(100).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn texts_that_no_key_has_are_refused() {
        for text in ["", "a b", "%", "%4", "%zz", "%41", "%7b", "~fence", "%+1"] {
            let error = LockKey::from_encoded(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn all_forms_of_a_name_are_one_key() {
        let key = LockKey::new("a b").unwrap();

        for form in [
            "a b".into_key(),
            "a b".to_owned().into_key(),
            (&"a b".to_owned()).into_key(),
            Box::<str>::from("a b").into_key(),
            Arc::<str>::from("a b").into_key(),
            (&Arc::<str>::from("a b")).into_key(),
            Cow::Borrowed("a b").into_key(),
            (&Cow::Borrowed("a b")).into_key(),
            b"a b".as_slice().into_key(),
            b"a b".to_vec().into_key(),
            (&b"a b".to_vec()).into_key(),
            (*b"a b").into_key(),
            b"a b".into_key(),
            key.clone().into_key(),
            (&key).into_key(),
        ] {
            assert_eq!(form.unwrap(), key);
        }
    }

    proptest! {
        #[test]
        fn no_two_names_share_a_key(name in prop::collection::vec(any::<u8>(), 1..64)) {
            let key = LockKey::new(&name).unwrap();
            let read = LockKey::from_encoded(key.as_str()).unwrap();

            prop_assert_eq!(read.as_str(), key.as_str());
            prop_assert_eq!(decode(key.as_str()).unwrap(), name);
            prop_assert!(key.as_str().bytes().all(|byte| is_plain(byte) || byte == b'%'));
        }
    }
}
