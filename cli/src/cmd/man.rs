//! `leasehold man`

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::exit::{self, Failure};
use crate::out;

/// Prints the manual page, or writes the pages of all verbs into a folder.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// A folder for one page per verb, which is created if it is missing.
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  leasehold man | man -l -
  leasehold man ~/.local/share/man/man1";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let command = crate::args::Args::command();
    let failed = |error| Failure::new(exit::NOT_WRITTEN, format!("cannot be written: {error}"));
    match &args.folder {
        None => {
            let mut page = Vec::new();
            Man::new(command).render(&mut page).map_err(failed)?;
            out::print(&page)?;
        }
        Some(folder) => {
            fs::create_dir_all(folder).map_err(failed)?;
            clap_mangen::generate_to(command, folder).map_err(failed)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
