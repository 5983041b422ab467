//! A picture: a bar per contestant, as long as the median, with a line from the least to the most.

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measure::{Spread, show};
use crate::outcome::Outcome;

const WIDTH: u32 = 900;
const ROW: u32 = 34;
const HEAD: u32 = 60;
const FOOT: u32 = 20;

/// Room for the names, which are drawn to the left of the bars, and for the figures to their right.
const BARS: Range<i32> = 270..800;

const BAR: RGBColor = RGBColor(76, 114, 176);
const FIRST: RGBColor = RGBColor(140, 140, 140);

/// Above this, short bars would be no bars.
const WIDEST_LINEAR: f64 = 50.0;

/// Draws the first measure, into a file in `folder` that is named after the scenario.
pub(super) fn draw(outcome: &Outcome, folder: &Path) {
    let Some(figures) = outcome.figures.first() else { return };
    let rows = outcome.contestants.iter().zip(&figures.rows);
    let rows = rows.enumerate().filter_map(|(i, (name, row))| {
        let color = if i == 0 { FIRST } else { BAR };
        Some(Bar { name, spread: row.spread?, color })
    });
    let rows: Vec<Bar<'_>> = rows.collect();
    let Some(scale) = Scale::of(&rows) else { return };

    let height = HEAD + FOOT + ROW * u32::try_from(rows.len()).expect("there are few contestants");
    let path = folder.join(format!("{}.svg", outcome.scenario));
    let area = SVGBackend::new(&path, (WIDTH, height)).into_drawing_area();
    let how = if scale.logarithmic { ", logarithmic" } else { "" };
    let title = format!("{}: {}{how}", outcome.title, figures.measure.heading());
    paint(&area, &title, &rows, &scale).expect("the plot can be written");
}

struct Bar<'a> {
    name: &'a str,
    spread: Spread,
    color: RGBColor,
}

/// Where a figure lies.
struct Scale {
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// `None` if there is nothing to be seen.
    fn of(rows: &[Bar<'_>]) -> Option<Self> {
        let most = rows.iter().map(|bar| bar.spread.max).fold(0.0, f64::max);
        let least = rows.iter().map(|bar| bar.spread.min).fold(f64::INFINITY, f64::min);
        if most <= 0.0 {
            return None;
        }
        let logarithmic = least > 0.0 && most / least > WIDEST_LINEAR;
        let from = if logarithmic { least / 2.0 } else { 0.0 };
        Some(Self { from, to: most, logarithmic })
    }

    fn place(&self, figure: f64) -> i32 {
        let share = if self.logarithmic {
            (figure / self.from).ln() / (self.to / self.from).ln()
        } else {
            figure / self.to
        };
        BARS.start + (share * f64::from(BARS.end - BARS.start)).round() as i32
    }
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn paint<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    title: &str,
    rows: &[Bar<'_>],
    scale: &Scale,
) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let font = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
    area.draw(&Text::new(title.to_owned(), (16, 20), font(18)))?;
    for (i, bar) in (0..).zip(rows) {
        let middle = (HEAD + ROW / 2) as i32 + i * ROW as i32;
        let (top, bottom) = (middle - 9, middle + 9);
        let Spread { median, min, max } = bar.spread;
        let label = font(14).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(bar.name.to_owned(), (BARS.start - 8, middle), label))?;
        let corners = [(BARS.start, top), (scale.place(median), bottom)];
        area.draw(&Rectangle::new(corners, bar.color.filled()))?;
        let ends = vec![(scale.place(min), middle), (scale.place(max), middle)];
        area.draw(&PathElement::new(ends, BLACK.stroke_width(2)))?;
        let figure = font(14).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(show(median), (scale.place(max) + 8, middle), figure))?;
    }
    area.present()
}
