//! The subcommands.

pub(crate) mod acl;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod hold;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod tables;
pub(crate) mod top;
#[cfg(feature = "verify")]
pub(crate) mod verify;
pub(crate) mod watch;

/// A subcommand that this build does not have.
#[cfg(not(feature = "verify"))]
#[derive(clap::Args, Debug)]
pub(crate) struct Disabled {
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    _words: Vec<std::ffi::OsString>,
}
