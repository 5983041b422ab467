//! Tables for the page on performance, each between marks with the name of its scenario.

use std::fmt::Write;

use crate::measure::{Spread, show};
use crate::outcome::Outcome;

/// The outcome of a contest as text to paste. The first contestant is the baseline.
pub(super) fn tables(outcome: &Outcome) -> String {
    let mut text = format!("<!-- bench: {} -->\n\n", outcome.scenario);
    figures(&mut text, outcome).expect("text grows");
    targets(&mut text, outcome).expect("text grows");
    text + "<!-- end -->\n"
}

fn figures(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    write!(text, "| {} rounds |", outcome.rounds)?;
    for (i, figures) in outcome.figures.iter().enumerate() {
        write!(text, " {} |", figures.measure.heading())?;
        if i == 0 {
            write!(text, " times as fast as the baseline |")?;
        }
    }
    writeln!(text, "\n| --- |{}", " --- |".repeat(outcome.figures.len() + 1))?;
    for (i, name) in outcome.contestants.iter().enumerate() {
        write!(text, "| {name} |")?;
        for (n, figures) in outcome.figures.iter().enumerate() {
            let row = &figures.rows[i];
            write!(text, " {} |", range(row.spread))?;
            if n == 0 {
                write!(text, " {} |", range(row.advantage))?;
            }
        }
        writeln!(text)?;
    }
    writeln!(text)
}

fn targets(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    if outcome.targets.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "| contestant | target | bound | measured | reached |\n| --- | --- | --- | --- | --- |"
    )?;
    for verdict in &outcome.targets {
        let (contestant, figure, bound) = (verdict.contestant, &verdict.figure, &verdict.bound);
        let (measured, word) = (range(verdict.measured), verdict.word());
        writeln!(text, "| {contestant} | {figure} | {bound} | {measured} | {word} |")?;
    }
    writeln!(text)
}

fn range(spread: Option<Spread>) -> String {
    let Some(Spread { median, min, max }) = spread else {
        return "–".to_owned();
    };
    format!("{} ({} to {})", show(median), show(min), show(max))
}
