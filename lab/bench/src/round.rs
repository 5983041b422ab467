//! The figures of one turn.

use crate::measure::Measure;

/// The figures of one turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round(Vec<(Measure, f64)>);

impl Round {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn with(mut self, measure: Measure, figure: impl Into<Option<f64>>) -> Self {
        self.0.extend(figure.into().map(|figure| (measure, figure)));
        self
    }

    pub(crate) fn figure(&self, measure: Measure) -> Option<f64> {
        self.0.iter().find(|(of, _)| *of == measure).map(|(_, figure)| *figure)
    }

    /// Returns whether the turn was too short for a first lock, as on a machine that stalls.
    pub(crate) fn is_void(&self) -> bool {
        let is_done = |(measure, figure): &(Measure, f64)| !measure.is_rate() || *figure > 0.0;
        self.0.is_empty() || !self.0.iter().all(is_done)
    }

    pub(crate) fn measures(&self) -> impl Iterator<Item = Measure> {
        self.0.iter().map(|(measure, _)| *measure)
    }
}
