//! The targets of figures.

use serde::Serialize;

use crate::measure::{Measure, Spread, show};
use crate::round::Round;

/// The target of a contestant's figure, by itself or beside others of the same round.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    contestant: &'static str,
    measure: Measure,
    beside: Beside,
    bound: Bound,
}

/// The divisor of a figure.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    One(&'static str, Measure),
    BestOf(&'static [&'static str]),
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!("≥ {}", show(bound)),
            Self::AtMost(bound) => format!("≤ {}", show(bound)),
        }
    }
}

impl Target {
    pub(crate) fn new(contestant: &'static str, measure: Measure, bound: Bound) -> Self {
        Self { contestant, measure, beside: Beside::Nothing, bound }
    }

    /// Divides by the same figure of `other`.
    #[must_use]
    pub(crate) fn beside(self, other: &'static str) -> Self {
        let measure = self.measure;
        self.beside_its(other, measure)
    }

    /// Divides by another figure of `other`.
    #[must_use]
    pub(crate) fn beside_its(mut self, other: &'static str, measure: Measure) -> Self {
        self.beside = Beside::One(other, measure);
        self
    }

    /// Divides by the best figure of `others`.
    #[must_use]
    pub(crate) fn beside_best_of(mut self, others: &'static [&'static str]) -> Self {
        self.beside = Beside::BestOf(others);
        self
    }

    /// Compares it with the figures of a contest.
    pub(crate) fn verdict(&self, contestants: &[(String, Vec<Round>)]) -> Verdict {
        let rounds_of = |contestant: &str| {
            let found = contestants.iter().find(|(name, _)| name == contestant);
            found.map_or(&[][..], |(_, rounds)| &rounds[..])
        };
        let own = rounds_of(self.contestant).iter().enumerate();
        let measured = Spread::of(own.filter_map(|(i, round)| {
            let figure = |contestant: &str, measure| rounds_of(contestant).get(i)?.figure(measure);
            let own = round.figure(self.measure)?;
            match self.beside {
                Beside::Nothing => Some(own),
                Beside::One(other, measure) => Some(own / figure(other, measure)?),
                Beside::BestOf(others) => {
                    let others = others.iter().filter_map(|other| figure(other, self.measure));
                    let best = others.reduce(|one, other| {
                        if self.measure.advantage(one, other) > 1.0 { one } else { other }
                    });
                    Some(own / best?)
                }
            }
        }));
        let reached = measured.map(|measured| self.bound.holds(measured.median));
        Verdict {
            contestant: self.contestant,
            figure: self.figure(),
            bound: self.bound.text(),
            measured,
            reached,
        }
    }

    fn figure(&self) -> String {
        let name = self.measure.heading();
        match self.beside {
            Beside::Nothing => name,
            Beside::One(other, measure) if measure == self.measure => {
                format!("{}, relative to: {other}", self.measure.name)
            }
            Beside::One(other, measure) => {
                format!("{}, relative to the {} of: {other}", self.measure.name, measure.name)
            }
            Beside::BestOf(_) => format!("{}, relative to the best peer", self.measure.name),
        }
    }
}

/// Whether a target is reached.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) contestant: &'static str,
    pub(crate) figure: String,
    pub(crate) bound: String,
    /// `None` if no round measured it.
    pub(crate) measured: Option<Spread>,
    /// Whether the median does.
    pub(crate) reached: Option<bool>,
}

impl Verdict {
    pub(crate) fn word(&self) -> &'static str {
        match self.reached {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not measured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contestants() -> Vec<(String, Vec<Round>)> {
        let rounds = |figures: [f64; 3]| {
            figures.map(|figure| Round::new().with(Measure::RATE, figure)).to_vec()
        };
        vec![
            ("floor".to_owned(), rounds([10.0, 20.0, 30.0])),
            ("slow".to_owned(), rounds([1.0, 5.0, 5.0])),
            ("ours".to_owned(), rounds([9.0, 10.0, 30.0])),
        ]
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let target = Target::new("ours", Measure::RATE, Bound::AtLeast(0.9)).beside("floor");

        let verdict = target.verdict(&contestants());

        assert_eq!(verdict.measured, Some(Spread { median: 0.9, min: 0.5, max: 1.0 }));
        assert_eq!(verdict.reached, Some(true));
    }

    #[test]
    fn the_best_of_others_is_that_of_the_round() {
        let bound = Bound::AtMost(0.5);
        let others = &["slow", "floor", "absent"];
        let target = Target::new("ours", Measure::RATE, bound).beside_best_of(others);

        let verdict = target.verdict(&contestants());

        assert_eq!(verdict.measured, Some(Spread { median: 0.9, min: 0.5, max: 1.0 }));
        assert_eq!(verdict.reached, Some(false));
    }

    #[test]
    fn an_unmeasured_target_is_neither_reached_nor_missed() {
        let target = Target::new("absent", Measure::RATE, Bound::AtLeast(1.0));

        assert_eq!(target.verdict(&contestants()).reached, None);
    }
}
