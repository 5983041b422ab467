//! The outcome of a contest.

use serde::Serialize;

use crate::measure::{Measure, Spread};
use crate::round::Round;
use crate::target::{Target, Verdict};

/// The outcome of a contest.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    pub(crate) title: String,
    pub(crate) rounds: usize,
    pub(crate) contestants: Vec<String>,
    pub(crate) figures: Vec<Figures>,
    pub(crate) targets: Vec<Verdict>,
}

/// One thing that was measured, of all contestants, in their order.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) measure: Measure,
    pub(crate) rows: Vec<Row>,
}

/// One thing that was measured of one contestant.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) rounds: Vec<Option<f64>>,
    /// `None` if it does not have this figure.
    pub(crate) spread: Option<Spread>,
    /// How many times as fast as the first contestant it was in the same round. Above 1 is better, for latency and CPU as well.
    pub(crate) advantage: Option<Spread>,
}

impl Outcome {
    pub(crate) fn new(
        scenario: String,
        title: String,
        contestants: Vec<(String, Vec<Round>)>,
        targets: &[Target],
    ) -> Self {
        let mut measures: Vec<Measure> = Vec::new();
        for measure in contestants.iter().flat_map(|(_, rounds)| rounds).flat_map(Round::measures) {
            if !measures.contains(&measure) {
                measures.push(measure);
            }
        }
        Self {
            scenario,
            title,
            rounds: contestants.iter().map(|(_, rounds)| rounds.len()).max().unwrap_or_default(),
            figures: measures.into_iter().map(|one| Figures::new(one, &contestants)).collect(),
            targets: targets.iter().map(|target| target.verdict(&contestants)).collect(),
            contestants: contestants.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

impl Figures {
    fn new(measure: Measure, contestants: &[(String, Vec<Round>)]) -> Self {
        let of = |rounds: &[Round]| -> Vec<Option<f64>> {
            rounds.iter().map(|round| round.figure(measure)).collect()
        };
        let first = of(&contestants[0].1);
        let rows = contestants.iter().map(|(_, rounds)| Row::new(measure, of(rounds), &first));
        Self { measure, rows: rows.collect() }
    }
}

impl Row {
    fn new(measure: Measure, rounds: Vec<Option<f64>>, first: &[Option<f64>]) -> Self {
        let pairs = rounds.iter().zip(first).filter_map(|(own, first)| own.zip(*first));
        let advantages = pairs.map(|(own, first)| measure.advantage(own, first));
        let advantage = Spread::of(advantages.filter(|advantage| advantage.is_finite()));
        let spread = Spread::of(rounds.iter().copied().flatten());
        Self { rounds, spread, advantage }
    }
}
