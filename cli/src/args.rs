//! The command line, with its subcommands and their help.

use clap::{Arg, ArgAction, Args as ClapArgs, CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::help::{self, Help};

/// The widest line of the help.
const HELP_WIDTH: usize = 80;

/// Runs commands while holding distributed locks.
///
/// Locks are kept in a store, such as a Redis server or a database. If no store is specified, locks are kept in a file that only your own
/// processes on this machine share. Other users, including root, have separate lock files, so your locks do not keep their commands from
/// running at the same time.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    disable_help_flag = true,
    after_help = "`leasehold --help` also shows store URLs, environment variables and examples."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) style: Style,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(cmd::run::Args),
    Hold(cmd::hold::Args),
    Elect(cmd::elect::Args),
    Status(cmd::status::Args),
    List(cmd::list::Args),
    Top(cmd::top::Args),
    Watch(cmd::watch::Args),
    Release(cmd::release::Args),
    Doctor(cmd::doctor::Args),
    Acl(cmd::acl::Args),
    Tables(cmd::tables::Args),
    #[cfg(feature = "verify")]
    Verify(cmd::verify::Args),
    #[cfg(not(feature = "verify"))]
    #[command(hide = true)]
    Verify(cmd::Disabled),
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

impl Command {
    /// The parts of the help of a subcommand that clap does not know.
    pub(crate) fn help(name: &str) -> Help {
        match name {
            "run" => cmd::run::HELP,
            "hold" => cmd::hold::HELP,
            "elect" => cmd::elect::HELP,
            "status" => cmd::status::HELP,
            "list" => cmd::list::HELP,
            "top" => cmd::top::HELP,
            "watch" => cmd::watch::HELP,
            "release" => cmd::release::HELP,
            "doctor" => cmd::doctor::HELP,
            "acl" => cmd::acl::HELP,
            "tables" => cmd::tables::HELP,
            #[cfg(feature = "verify")]
            "verify" => cmd::verify::HELP,
            "completions" => cmd::completions::HELP,
            "man" => cmd::man::HELP,
            _ => Help::OFFLINE,
        }
    }
}

/// The output.
#[derive(ClapArgs, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Style {
    /// Print results and errors as JSON, one object per line.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Do not print warnings, log messages, or the message that the lock is busy.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print debug messages; specify twice to print trace messages. By default, warnings are printed, or the events that RUST_LOG selects.
    #[arg(long, short, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Print help (see a summary with `-h`).
    #[arg(long, short, global = true, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The definition of the command line, with the whole help.
pub(crate) fn definition() -> clap::Command {
    let command =
        Args::command().max_term_width(HELP_WIDTH).mut_args(plain).mut_subcommands(|it| {
            let help = Command::help(it.get_name()).text();
            it.mut_args(plain).after_long_help(help)
        });
    command.after_long_help(HELP.text())
}

/// The names of the files of all manual pages, and their texts.
pub(crate) fn pages() -> Vec<(String, String)> {
    help::pages(definition(), &HELP, Command::help)
}

/// Shows the name of a variable without its value, which may be a secret.
fn plain(arg: Arg) -> Arg {
    let is_time = arg.get_value_names().is_some_and(|names| names[0] == "TIME");
    arg.hide_env_values(true).allow_negative_numbers(is_time)
}

pub(crate) const HELP: Help = Help {
    sections: &[("Stores", STORES), ("Environment", ENVIRONMENT)],
    status: "\
0    success; for `status`, the lock is held
1    the answer is no: the lock is free, there was nothing to release,
     `doctor` found a fault, or a case of `verify` failed",
    examples: EXAMPLES,
    ..Help::RUNNING
};

const STORES: &str = "\
sqlite:/path/to/locks.db                a file, for this machine
redis://[user:password@]host[:port][/database]
                                        a Redis or Valkey server
unix:///path/to/socket                  a Redis server on this machine
redis-sentinel://[user:password@]host[:port][,...]/master[/database]
                                        the server that Sentinel names
redis-cluster://[user:password@]host[:port][,...]
                                        a Redis or Valkey cluster
redlock+redis://[user:password@]host[:port],host,host[,...]
                                        a quorum of 3, 5, 7 or 9 servers
etcd://[user:password@]host[:port][,...]
                                        an etcd cluster
zookeeper://[user:password@]host[:port][,...][/prefix]
                                        a ZooKeeper ensemble
postgres://[user[:password]@]host[:port][/database]
                                        tables in a PostgreSQL database
mysql://user[:password]@host[:port]/database
                                        tables in a MySQL or MariaDB
                                        database; also mariadb://

TLS: rediss://, rediss-sentinel://, rediss-cluster://, redlock+rediss://,
     etcds://, zookeepers://; ?sslmode=verify-full for PostgreSQL,
     ?ssl-mode=verify_identity for MySQL. valkey:// means redis://.

Parameters, after ? and separated by &:
prefix=TEXT      prefix for the names of all locks; by default lock: on
                 Redis, lock/ on etcd, /lock on ZooKeeper
timeout-ms=N     time limit for a connection, and for each request
wait-replicas=N  Redis: require N replicas to acknowledge each lock
push=off         Redis: poll instead of subscribing to notifications
client=fred      Redis: use the fred client library
ca=, cert=, key= TLS: paths of PEM files";

const ENVIRONMENT: &str = "\
LEASEHOLD_BACKEND, LEASEHOLD_PREFIX, LEASEHOLD_TTL, LEASEHOLD_WAIT,
LEASEHOLD_DESCRIPTION, LEASEHOLD_VALUE
       Defaults for the options with these names
LEASEHOLD_CONFIG
       Path of a file with lines like `ttl = 30s`, for the options
       backend, prefix, ttl, wait, min-hold, max-hold, lock-delay,
       kill-after, on-lost, on-asked and description. Options and
       variables override it. [default: ~/.config/leasehold/config]
RUST_LOG
       The events to log, such as leasehold=debug,warn";

const EXAMPLES: &str = "\
leasehold run nightly ./report.sh          # one at a time
leasehold run --no-wait --min-hold 1m --max-hold 6h nightly ./report.sh
                                           # once, on many machines
leasehold run --permits 3 import ./import.sh
leasehold status nightly                   # holder and waiters
leasehold list                             # all locks in use
leasehold release --ask nightly            # ask the holder to finish
leasehold release --force nightly          # release it immediately";

#[cfg(test)]
mod tests {
    use super::*;

    /// The widest line of a text that is broken by hand, so that a manual page can indent it.
    const WIDEST: usize = 73;

    fn all() -> Vec<(String, Help)> {
        let command = definition();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs = verbs.map(|verb| (verb.get_name().to_owned(), Command::help(verb.get_name())));
        verbs.chain([("leasehold".to_owned(), HELP)]).collect()
    }

    #[test]
    fn texts_that_are_broken_by_hand_fit_into_a_manual_page() {
        for (verb, help) in all() {
            for (title, text) in help.parts() {
                for line in text.lines() {
                    let width = line.chars().count();
                    assert!(width <= WIDEST, "{verb}, {title}, {width}: {line}");
                }
            }
        }
    }

    #[test]
    fn definition_is_sound_and_every_option_has_help() {
        let mut command = definition();
        command.build();
        command.clone().debug_assert();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(verb.get_about().is_some(), "{}", verb.get_name());
            for arg in verb.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", verb.get_name(), arg.get_id());
            }
        }
    }
}
