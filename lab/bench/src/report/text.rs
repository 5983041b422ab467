//! For a terminal.

use std::fmt::Write;

use crate::measure::{Spread, show};
use crate::outcome::{Figures, Outcome};

/// The outcome of a contest. The first contestant is the baseline.
pub(super) fn tables(outcome: &Outcome) -> String {
    let mut text = format!("{}: {}, {} rounds\n", outcome.scenario, outcome.title, outcome.rounds);
    for figures in &outcome.figures {
        table(&mut text, outcome, figures);
    }
    for verdict in &outcome.targets {
        let measured = verdict.measured.map_or_else(|| "–".to_owned(), range);
        let (contestant, figure, bound) = (verdict.contestant, &verdict.figure, &verdict.bound);
        writeln!(text, "  target: {contestant}: {figure}: {bound}: {measured}: {}", verdict.word())
            .expect("text grows");
    }
    text
}

fn table(text: &mut String, outcome: &Outcome, figures: &Figures) {
    let heading = figures.measure.heading();
    let mut line = |cells: [&str; 6]| {
        let [name, median, min, max, advantage, range] = cells;
        let line =
            format!("  {name:<40} {median:>11} {min:>11} {max:>11} {advantage:>13}  {range}");
        writeln!(text, "{}", line.trim_end()).expect("text grows");
    };
    line([&heading, "median", "min", "max", "times as fast", ""]);
    for (name, row) in outcome.contestants.iter().zip(&figures.rows) {
        let Some(spread) = row.spread else { continue };
        let [median, min, max] = [spread.median, spread.min, spread.max].map(show);
        let advantage = row.advantage.map(|advantage| show(advantage.median));
        let spread = row.advantage.map(|one| format!("({} to {})", show(one.min), show(one.max)));
        let [advantage, spread] = [advantage, spread].map(Option::unwrap_or_default);
        line([name, &median, &min, &max, &advantage, &spread]);
    }
}

fn range(spread: Spread) -> String {
    format!("{} ({} to {})", show(spread.median), show(spread.min), show(spread.max))
}
