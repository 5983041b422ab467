//! `leasehold completions`

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::Failure;
use crate::out;

/// Prints the completions of a shell.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

const HELP: &str = "\
Examples:
  leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold
  leasehold completions zsh > ~/.zfunc/_leasehold
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let mut command = crate::args::Args::command();
    clap_complete::generate(args.shell, &mut command, "leasehold", &mut script);
    out::print(&script)?;
    Ok(ExitCode::SUCCESS)
}
