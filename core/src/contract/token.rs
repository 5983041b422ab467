//! The number that keeps data right when a holder is late.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;

/// The strictly growing number of a grant, to be checked by the resource that the lock protects.
///
/// Tokens of different keys have no order: comparing them gives `None`. A token is no secret and
/// no credential.
///
/// ```
/// use leasehold_core::{FencingToken, LockKey};
///
/// let key = LockKey::new("invoice:42")?;
/// assert!(FencingToken::new(&key, 7) < FencingToken::new(&key, 8));
///
/// let other = LockKey::new("invoice:43")?;
/// let (a, b) = (FencingToken::new(&key, 7), FencingToken::new(&other, 8));
/// assert!(a.partial_cmp(&b).is_none());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct FencingToken {
    key: LockKey,
    number: u64,
}

impl FencingToken {
    /// Creates the token `number` of `key`, as when a resource receives both from a holder.
    pub fn new(key: &LockKey, number: u64) -> Self {
        Self { key: key.clone(), number }
    }

    /// The key whose grants it numbers.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// The number, to send along with every write.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number for columns and drivers of SQL, which know no unsigned one.
    ///
    /// The tokens of all stores fit. A number that does not becomes the largest that does, so that no token seems older than it is.
    pub fn as_i64(&self) -> i64 {
        i64::try_from(self.number).unwrap_or(i64::MAX)
    }

    /// Makes it the token of a later holder.
    pub(crate) fn renumber(&mut self, number: u64) {
        self.number = number;
    }
}

impl PartialOrd for FencingToken {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.key == other.key).then(|| self.number.cmp(&other.number))
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.key, self.number)
    }
}

/// Prints the bare number.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// The check that a resource makes: remembers the largest token of each key and refuses smaller ones.
///
/// An equal token passes, since one holder may write more than once. A resource that lives in a
/// database makes the same check in the same statement as its write (`… WHERE fence <= $token`).
///
/// ```
/// use leasehold_core::{ErrorKind, Fence, FencingToken, LockKey};
///
/// let key = LockKey::new("invoice:42")?;
/// let mut fence = Fence::default();
/// assert!(fence.admit(&FencingToken::new(&key, 8)).is_ok());
/// let late = fence.admit(&FencingToken::new(&key, 7)).unwrap_err();
/// assert_eq!(late.kind(), ErrorKind::StaleToken);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fence {
    largest: HashMap<LockKey, u64>,
}

impl Fence {
    /// Admits `token` unless a larger one of its key was admitted before.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::StaleToken`] if a larger token was admitted before, so that the holder of this token must have lost the lock.
    pub fn admit(&mut self, token: &FencingToken) -> Result<(), Error> {
        let largest = self.largest.entry(token.key.clone()).or_insert(token.number);
        if token.number < *largest {
            let message = format!(
                "token {} is stale: the resource has admitted token {largest}",
                token.number
            );
            return Err(Error::new(ErrorKind::StaleToken, message).with_key(&token.key));
        }
        *largest = token.number;
        Ok(())
    }
}
