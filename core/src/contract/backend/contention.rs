//! A key that others hold.

use std::time::Duration;

use crate::contract::holder::Holder;

/// A key that others hold, as far as the store tells. All of it is a hint.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Contention {
    holder: Option<Holder>,
    retry_after: Option<Duration>,
    place: Option<Duration>,
    called_by: Option<CalledBy>,
}

/// How a claim that stands in the store's queue hears that it is to be asked for again.
///
/// See [`LockBackend`](crate::backend::LockBackend) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CalledBy {
    /// By any news of the key.
    Key,
    /// By news for this very claim ([`KeyWatches::call`](crate::backend::KeyWatches::call)). Other news of the key do not concern it.
    Name,
}

impl Contention {
    /// Creates it with nothing known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the holder whose lease ends first.
    #[must_use]
    pub fn with_holder(mut self, holder: Holder) -> Self {
        self.holder = Some(holder);
        self
    }

    /// Says when a lease or a place in the queue that is in the way ends by itself, where that
    /// may be before the holder's lease does.
    #[must_use]
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// Says that the claim stands in the store's queue now, and how long it does without another attempt, though it
    /// did perhaps not ask for a [place](crate::backend::Patience::Queues) and only [waits](crate::backend::Patience::Waits).
    #[must_use]
    pub fn with_place(mut self, time: Duration) -> Self {
        self.place = Some(time);
        self
    }

    /// Says that the claim has a place in the store's queue, and how it is called up from there: until then, it is asked for again
    /// [when something ends](Self::retry_after) and in time to keep its place, and by default at no other time.
    #[must_use]
    pub fn with_called_by(mut self, by: CalledBy) -> Self {
        self.called_by = Some(by);
        self
    }

    /// The holder whose lease ends first, if the store names it.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// When there may be room if no holder renews or releases: a poll after that is too late.
    pub fn retry_after(&self) -> Option<Duration> {
        let holder = self.holder.as_ref().and_then(Holder::remaining);
        self.retry_after.into_iter().chain(holder).min()
    }

    /// How the claim is called up; `None` if it is not.
    pub fn called_by(&self) -> Option<CalledBy> {
        self.called_by
    }

    /// How long a place is kept for a claim that did not ask for one; `None` if it has none.
    pub fn place(&self) -> Option<Duration> {
        self.place
    }
}
