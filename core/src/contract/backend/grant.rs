//! A granted lease.

use std::num::NonZeroU64;
use std::time::Duration;

/// A lease that the store has granted, with its fencing token.
///
/// ```
/// use std::num::NonZeroU64;
/// use leasehold_core::backend::Grant;
///
/// let grant = Grant::new(NonZeroU64::MIN).with_spare_tokens(7);
/// assert_eq!((grant.token(), grant.spare_tokens()), (1, 7));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    token: NonZeroU64,
    spare_tokens: u32,
    ttl: Option<Duration>,
    has_news: bool,
}

impl Grant {
    /// The number of tokens per microsecond, for stores that derive their tokens from the time
    /// since 1970.
    ///
    /// One token per microsecond would not be enough, because a process can hand off a lease more
    /// than once per microsecond. If the tokens of several stores are compared with each other, as
    /// in a quorum, all of these stores must derive their tokens from the time with the same number
    /// of tokens per microsecond.
    pub const TOKENS_PER_MICROSECOND: u64 = 2;

    /// Creates a grant with the fencing token `token`.
    pub fn new(token: NonZeroU64) -> Self {
        Self { token, spare_tokens: 0, ttl: None, has_news: true }
    }

    /// Sets the lease's actual TTL in the store, if it differs from the requested TTL.
    ///
    /// The client honors a shorter TTL and ignores a longer one. The client requests the full TTL
    /// again in the first renewal of the lease.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets how many spare tokens the store has reserved for this grant. The spare tokens are the
    /// numbers that follow the grant's token.
    ///
    /// No earlier or later grant of the key may use any of these numbers. `count` must not exceed
    /// the claim's [number of spare tokens](crate::backend::Claim::spare_tokens). When the client
    /// hands off the lease within its process, it gives the next holder a spare token and does not
    /// contact the store. Without spare tokens, the client contacts the store for each holder.
    #[must_use]
    pub fn with_spare_tokens(mut self, count: u32) -> Self {
        self.spare_tokens = count;
        self
    }

    /// Declares that the store does not send notifications for this lease before its first renewal,
    /// even if another client ends the lease.
    ///
    /// The client renews a lease soon after the grant, unless the holder releases it first. A store
    /// may therefore avoid the cost of notifications for the many leases that are released early.
    #[must_use]
    pub fn without_news(mut self) -> Self {
        self.has_news = false;
        self
    }

    /// Returns `false` if the store does not send notifications for this lease until the lease has
    /// been renewed for the first time.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// Returns how many spare tokens the store has reserved for this grant. The spare tokens are
    /// the numbers that follow the grant's token.
    pub fn spare_tokens(&self) -> u32 {
        self.spare_tokens
    }

    /// Returns the fencing token, which is larger than the token of every earlier grant of the key.
    pub fn token(&self) -> u64 {
        self.token.get()
    }

    /// Returns the lease's actual TTL in the store, or `None` if the store applied the requested
    /// TTL.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }
}
