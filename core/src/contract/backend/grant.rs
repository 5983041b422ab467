//! A lease in force.

use std::num::NonZeroU64;
use std::time::Duration;

/// A lease that the store has put in force.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    token: NonZeroU64,
    spare_tokens: u32,
    ttl: Option<Duration>,
    elapsed: Duration,
    has_news: bool,
}

impl Grant {
    /// How many tokens each microsecond has where tokens follow a clock that counts from 1970: a process passes a lease on more than
    /// once in a microsecond. All stores whose tokens may be compared, as those of a quorum's members are, count alike.
    pub const TOKENS_PER_MICROSECOND: u64 = 2;

    /// Creates the grant whose fencing token is `token`.
    pub fn new(token: NonZeroU64) -> Self {
        Self { token, spare_tokens: 0, ttl: None, elapsed: Duration::ZERO, has_news: true }
    }

    /// Says which TTL the store really put in force, where it is not the one that was asked for.
    ///
    /// A longer one is not believed in; a shorter one is. A holder that [keeps](crate::backend::Tenure::Kept) its lease then asks for the
    /// whole TTL within 10 ms.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Says for how long the lease may have been in force when the attempt began, as in a store that grants to a waiter before the waiter asks
    /// again. The deadline counts from so long before the attempt, so this must not be less than it was.
    #[must_use]
    pub fn with_elapsed(mut self, time: Duration) -> Self {
        self.elapsed = time;
        self
    }

    /// Says how many of the numbers that follow the token belong to this grant too: no earlier or later grant of the key has
    /// any of them.
    ///
    /// At most as many as the [claim](crate::backend::Claim::spare_tokens) has a use for. The caller numbers the holders to which it
    /// passes the lease on without asking the store; with no spare tokens, it asks each time.
    #[must_use]
    pub fn with_spare_tokens(mut self, count: u32) -> Self {
        self.spare_tokens = count;
        self
    }

    /// Says that the store sends no news of this lease before its first renewal, even if another client ends it.
    ///
    /// A lease that is to be renewed at all is renewed soon after, unless its holder released it before. So a store may save the
    /// cost of news for the many leases that end early.
    #[must_use]
    pub fn without_news(mut self) -> Self {
        self.has_news = false;
        self
    }

    /// Whether the store reports events on the lease from the grant on, if it reports any.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// For how long the lease may have been in force when the attempt began. Nothing, for a store that grants when it is asked.
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// How many of the numbers that follow the token belong to this grant too.
    pub fn spare_tokens(&self) -> u32 {
        self.spare_tokens
    }

    /// The fencing token: larger than that of every earlier grant of the key.
    pub fn token(&self) -> u64 {
        self.token.get()
    }

    /// The TTL that the store put in force, where it is not the one that was asked for.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }
}
