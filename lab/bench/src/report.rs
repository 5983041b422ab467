//! Reports outcomes: as text, as tables for the guide, as data and as plots.

mod markdown;
mod plot;
mod text;

use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use crate::args::Args;
use crate::outcome::Outcome;

/// The outcomes so far. Written after each scenario, so that a later failure takes nothing with it.
pub(crate) struct Report {
    all: All,
    markdown: bool,
    json: Option<PathBuf>,
    svg: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct All {
    /// Without meaning: it was only tried whether all works.
    quick: bool,
    workers: usize,
    cores: usize,
    outcomes: Vec<Outcome>,
}

impl Report {
    pub(crate) fn new(args: &Args) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        Self {
            all: All { quick: args.quick, workers: args.workers, cores, outcomes: Vec::new() },
            markdown: args.markdown,
            json: args.json.clone(),
            svg: args.svg.clone(),
        }
    }

    /// Prints it, and writes the outcomes so far.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        if self.markdown {
            println!("{}", markdown::tables(&outcome));
        } else {
            println!("{}", text::tables(&outcome));
        }
        if let Some(folder) = &self.svg {
            fs::create_dir_all(folder).expect("the folder for plots can be made");
            plot::draw(&outcome, folder);
        }
        self.all.outcomes.push(outcome);
        if let Some(file) = &self.json {
            let json = serde_json::to_string_pretty(&self.all).expect("figures are plain data");
            fs::write(file, json + "\n").expect("the file for figures can be written");
        }
    }
}
