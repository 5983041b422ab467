//! The network's treatment of every message.

use std::time::Duration;

use fastrand::Rng;

/// How the network treats every message, incidents apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// The longest delay of most messages, in microseconds.
    delay: u64,
    /// The longest delay of the others, in microseconds.
    long_delay: u64,
    /// Messages in a hundred with a long delay.
    slow: u8,
    /// Requests in a hundred that are lost.
    lost: u8,
    /// Replies and notifications in a hundred that are lost.
    unheard: u8,
    /// Requests in a hundred that arrive twice.
    repeated: u8,
    /// Requests in a hundred that are refused before they leave.
    refused: u8,
}

/// The fate of one request.
pub(crate) struct Fate {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    pub(crate) again: Option<Duration>,
    pub(crate) is_refused: bool,
    pub(crate) is_lost: bool,
    pub(crate) is_unheard: bool,
}

impl Conditions {
    pub(crate) const CALM: Self = Self {
        delay: 2_000,
        long_delay: 2_000,
        slow: 0,
        lost: 0,
        unheard: 0,
        repeated: 0,
        refused: 0,
    };

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..4) {
            0 => Self::CALM,
            1 => Self {
                delay: 80_000,
                long_delay: 1_200_000,
                slow: 5,
                lost: 3,
                unheard: 3,
                repeated: 3,
                refused: 2,
            },
            2 => Self {
                delay: 300_000,
                long_delay: 1_200_000,
                slow: 20,
                lost: 10,
                unheard: 10,
                repeated: 20,
                refused: 5,
            },
            _ => Self {
                delay: 20_000,
                long_delay: 600_000,
                slow: 2,
                lost: 2,
                unheard: 30,
                repeated: 10,
                refused: 30,
            },
        }
    }

    /// Returns whether no message is lost, repeated or delayed for long.
    pub(crate) fn is_calm(&self) -> bool {
        self.long_delay == Self::CALM.long_delay
    }

    pub(crate) fn fate(&self, rng: &mut Rng) -> Fate {
        let mut happens = |percent: u8| rng.u8(..100) < percent;
        let (is_refused, is_lost) = (happens(self.refused), happens(self.lost));
        let (is_unheard, repeats) = (happens(self.unheard), happens(self.repeated));
        Fate {
            there: self.delay(rng),
            back: self.delay(rng),
            again: repeats.then(|| self.delay(rng)),
            is_refused,
            is_lost,
            is_unheard,
        }
    }

    /// Returns the delay of a notification, or `None` if the notification is lost.
    pub(crate) fn notification(&self, rng: &mut Rng) -> Option<Duration> {
        (rng.u8(..100) >= self.unheard).then(|| self.delay(rng))
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        let longest = if rng.u8(..100) < self.slow { self.long_delay } else { self.delay };
        Duration::from_micros(rng.u64(..longest))
    }
}
