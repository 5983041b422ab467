//! The schedule of faults, which the seed alone decides.

use std::time::Duration;

use fastrand::Rng;

use crate::fault::{Fault, Part};

/// Long enough for all clients to be at work.
const CALM: Duration = Duration::from_secs(3);

/// The time between the end of a fault and the start of the next, in tenths of a second.
const PAUSE: (u32, u32) = (20, 40);

/// One in five times, two parts of the system are disturbed at once.
const DOUBLES: u32 = 5;

/// Faults that begin together.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The time before them, counted from the end of those before.
    pub pause: Duration,
    /// The faults, each of another part, and how long each is in force.
    pub faults: Vec<(&'static Fault, Duration)>,
    /// The number by which a fault of a client picks one.
    pub pick: usize,
}

/// Draws faults for ever: each kind comes once before any comes again.
#[derive(Debug)]
pub struct Schedule {
    random: Rng,
    kinds: Vec<&'static Fault>,
    deck: Vec<&'static Fault>,
    is_first: bool,
}

impl Schedule {
    /// The schedule of a seed.
    pub fn new(seed: u64, kinds: Vec<&'static Fault>) -> Self {
        Self { random: Rng::with_seed(seed), kinds, deck: Vec::new(), is_first: true }
    }

    fn draw(&mut self, beside: Option<Part>) -> Option<&'static Fault> {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.kinds);
            self.random.shuffle(&mut self.deck);
        }
        let place = self
            .deck
            .iter()
            .rposition(|fault| beside.is_none_or(|part| fault.part.is_beside(part)))?;
        Some(self.deck.remove(place))
    }

    fn time(&mut self, (from, to): (u32, u32)) -> Duration {
        Duration::from_millis(u64::from(self.random.u32(from * 100..=to * 100)))
    }
}

impl Iterator for Schedule {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        let first = self.draw(None)?;
        let second =
            (self.random.u32(..DOUBLES) == 0).then(|| self.draw(Some(first.part))).flatten();
        let pause = self.time(PAUSE) + if self.is_first { CALM } else { Duration::ZERO };
        self.is_first = false;
        let faults = [Some(first), second].into_iter().flatten();
        let faults = faults.map(|fault| (fault, self.time(fault.lasts))).collect();
        Some(Slot { pause, faults, pick: self.random.usize(..) })
    }
}
