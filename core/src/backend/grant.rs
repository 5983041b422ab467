//! A lease in force.

use std::num::NonZeroU64;
use std::time::Duration;

/// A lease that the store has put in force.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    token: NonZeroU64,
    spare_tokens: u32,
    ttl: Option<Duration>,
    has_news: bool,
}

impl Grant {
    /// Creates the grant whose fencing token is `token`.
    pub fn new(token: NonZeroU64) -> Self {
        Self { token, spare_tokens: 0, ttl: None, has_news: true }
    }

    /// Says which TTL the store really put in force, where it is not the one that was asked for.
    ///
    /// A longer one is not believed in; a shorter one is.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Says how many of the numbers that follow the token belong to this grant too: no earlier or later grant of the key has
    /// any of them.
    ///
    /// No more than the [claim](crate::backend::Claim::spare_tokens) has a use for. They number those to whom the caller passes the lease on
    /// without asking the store; with none, it asks each time.
    #[must_use]
    pub fn with_spare_tokens(mut self, count: u32) -> Self {
        self.spare_tokens = count;
        self
    }

    /// Says that the store tells nothing of this lease before its first renewal, whatever becomes of it.
    ///
    /// A lease that is renewed at all is renewed soon then, unless it was released before. So a store may save itself the trouble
    /// for the many that are.
    #[must_use]
    pub fn without_news(mut self) -> Self {
        self.has_news = false;
        self
    }

    /// Whether the store tells what becomes of the lease from the grant on, if it tells anything.
    pub fn has_news(&self) -> bool {
        self.has_news
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
