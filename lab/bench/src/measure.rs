//! The measures, and the spread of many figures of one.

use std::time::Duration;

use serde::Serialize;

/// A measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
}

/// Which figures are the better ones.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    More,
    Less,
}

impl Measure {
    pub(crate) const RATE: Self = Self::more("locks per second", "/s");
    pub(crate) const TIME: Self = Self::less("time per lock", "µs");
    pub(crate) const P50: Self = Self::less("p50", "µs");
    pub(crate) const P99: Self = Self::less("p99", "µs");
    pub(crate) const EVENNESS: Self = Self::more("slowest ÷ fastest task", "");
    pub(crate) const REQUESTS: Self = Self::less("requests per lock", "");

    pub(crate) const fn more(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::More }
    }

    pub(crate) const fn less(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, better: Better::Less }
    }

    /// Whether it counts events per second.
    pub(crate) fn is_rate(&self) -> bool {
        self.unit == "/s"
    }

    /// The name with its unit.
    pub(crate) fn heading(&self) -> String {
        match self.unit {
            "" | "/s" => self.name.to_owned(),
            unit => format!("{}, {unit}", self.name),
        }
    }

    /// How many times as fast `own` is as `other`. For a measure of which less is better, this is `other / own`, so above 1 is always better.
    pub(crate) fn advantage(&self, own: f64, other: f64) -> f64 {
        match self.better {
            Better::More => own / other,
            Better::Less => other / own,
        }
    }
}

/// The spread of the figures of several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` if there are no figures.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            0 => (figures.get(middle.checked_sub(1)?)? + figures[middle]) / 2.0,
            _ => figures[middle],
        };
        Some(Self { median, min: *figures.first()?, max: *figures.last()? })
    }
}

/// So many percent of `times` are not longer, in microseconds; `None` if there are none.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> Option<f64> {
    let last = times.len().checked_sub(1)?;
    let (_, time, _) = times.select_nth_unstable(last * percent / 100);
    Some(micros(*time))
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A number with as many digits as mean something.
pub(crate) fn show(figure: f64) -> String {
    match figure.abs() {
        size if size >= 1_000.0 => thousands(figure.round() as i64),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 0.1 => format!("{figure:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{figure:.4}"),
    }
}

fn thousands(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_even_number_of_rounds_the_median_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();

        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
    }

    #[test]
    fn no_figures_have_no_median() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(percentile(&mut [], 50), None);
    }

    #[test]
    fn percentiles_are_times_that_occurred() {
        let mut times: Vec<Duration> = (0..=100).rev().map(Duration::from_micros).collect();

        assert_eq!(percentile(&mut times, 50), Some(50.0));
        assert_eq!(percentile(&mut times, 99), Some(99.0));
    }

    #[test]
    fn half_the_time_is_twice_as_good() {
        assert_eq!(Measure::TIME.advantage(1.0, 2.0), 2.0);
        assert_eq!(Measure::RATE.advantage(1.0, 2.0), 0.5);
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [1_234_567.8, 123.4, 12.34, 0.5, 0.01234, 0.0].map(show);

        assert_eq!(shown, ["1,234,568", "123", "12.3", "0.50", "0.0123", "0"]);
    }
}
