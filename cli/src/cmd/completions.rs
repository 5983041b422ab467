//! `leasehold completions`

use std::process::ExitCode;

use clap_complete::Shell;

use crate::exit::Failure;
use crate::help::Help;
use crate::out;

/// Prints a shell completion script.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Shell to generate the script for.
    shell: Shell,
}

pub(crate) const HELP: Help = Help {
    examples: "\
leasehold completions bash >~/.bash_completion.d/leasehold
leasehold completions zsh >~/.zfunc/_leasehold
leasehold completions fish >~/.config/fish/completions/leasehold.fish",
    ..Help::OFFLINE
};

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "leasehold", &mut script);
    out::print(&script)?;
    Ok(ExitCode::SUCCESS)
}
