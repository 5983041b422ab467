//! `leasehold man`

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::exit::{self, Failure};
use crate::help::Help;
use crate::out;

/// Prints the manual page, or writes the pages of all subcommands into a directory.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Directory for one page per subcommand. It is created if it does not exist.
    #[arg(value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

pub(crate) const HELP: Help = Help {
    status: "0    success\n73   cannot create the directory or a file",
    examples: "leasehold man | man -l -\nleasehold man ~/.local/share/man/man1",
    ..Help::OFFLINE
};

/// `pages` are the names of the files and their texts. The page of the whole command is the first one.
pub(crate) fn run(args: &Args, pages: Vec<(String, String)>) -> Result<ExitCode, Failure> {
    let Some(directory) = &args.directory else {
        out::print(pages[0].1.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(directory).map_err(|error| cannot_create("directory", directory, &error))?;
    for (name, page) in pages {
        let file = directory.join(name);
        fs::write(&file, page).map_err(|error| cannot_create("file", &file, &error))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn cannot_create(what: &str, path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot create {what} {}: {error}", path.display());
    Failure::new(exit::CANNOT_CREATE, message)
}
