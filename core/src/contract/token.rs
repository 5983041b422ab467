//! Fencing tokens, and the check that a protected resource performs.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;

/// A number that increases with every grant of a key. The resource that the lock protects can check
/// the token to reject late writes.
///
/// Tokens of different keys cannot be compared: `partial_cmp` returns `None`. A token does not need
/// to be kept secret, and does not authorize anything.
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
    /// Creates a token for `key` with the number `number`, for example in a resource that receives
    /// both from a holder.
    pub fn new(key: &LockKey, number: u64) -> Self {
        Self { key: key.clone(), number }
    }

    /// Returns the key for which the token was granted.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns the number of the token. Send the number of the token with every write.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number as a signed integer, for SQL columns and drivers that do not support
    /// unsigned integers.
    ///
    /// The tokens of all built-in stores fit into an `i64`. A larger number becomes `i64::MAX`, so
    /// that no token appears older than it is.
    pub fn as_i64(&self) -> i64 {
        i64::try_from(self.number).unwrap_or(i64::MAX)
    }

    /// Replaces the number with the token of a later holder.
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

/// Prints only the number.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// Remembers the largest token of each key and rejects smaller tokens.
///
/// A resource uses a `Fence` to reject late writes. An equal token is admitted, because a holder
/// may write more than once. If the data is in a database, perform the check in the statement that
/// writes the data (`… WHERE fence <= $token`).
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
    /// Admits `token` unless a larger token of its key has already been admitted.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::StaleToken`] if a larger token has already been admitted. This error
    /// means that the holder of `token` has lost the lock.
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
