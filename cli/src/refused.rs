//! A command line that clap refuses.

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::{self, Failure};
use crate::out;

/// An error of clap, which may be a request for help, and the origin of the refused value, unless it is the command line.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: clap::Error,
    pub(crate) origin: Option<Origin>,
}

/// The variable or the file that contains the value of an option.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The option, as clap shows it.
    pub(crate) option: String,
    pub(crate) source: String,
    /// The exit code of a mistake there.
    pub(crate) code: u8,
}

impl Refused {
    /// Prints a message of clap. Help and versions are a success. Other messages are a usage error or an error in the configuration file.
    pub(crate) fn report(&self) -> ExitCode {
        let Self { error, origin } = self;
        if !error.use_stderr() {
            let help = error.render();
            let help =
                if stdout().is_terminal() { help.ansi().to_string() } else { help.to_string() };
            let printed = out::print(help.as_bytes());
            return printed.map_or_else(|failure| out::fail(&failure), |()| ExitCode::SUCCESS);
        }
        if is_stray_url(error) {
            // The URL may contain a password.
            return out::fail(&Failure::usage(
                "unexpected URL in the arguments; name the store with --backend or in LEASEHOLD_BACKEND",
            ));
        }
        let text = error.to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let Some(Origin { option, source, code }) = origin else {
            out::raw(&format!("leasehold: {text}"));
            return ExitCode::from(exit::USAGE);
        };
        let option = format!("'{option}'");
        let text = text.replacen(&option, &format!("{option} (from {source})"), 1);
        out::raw(&format!("leasehold: {text}"));
        ExitCode::from(*code)
    }
}

/// Whether the subcommand does not expect an argument that is the URL of a store.
fn is_stray_url(error: &clap::Error) -> bool {
    let is_url = |text: &str| text.contains("://") || text.starts_with("sqlite:");
    error.kind() == ErrorKind::UnknownArgument
        && matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(it)) if !it.starts_with('-') && is_url(it))
}
