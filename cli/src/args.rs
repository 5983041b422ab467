//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// Runs commands under distributed locks.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    Status(Status),
    List(crate::cmd::list::List),
    Top(crate::cmd::top::Top),
    Release(Release),
    #[command(hide = true)]
    Exec(Exec),
}

/// Where the locks are.
#[derive(ClapArgs, Debug)]
pub(crate) struct Backend {
    /// The store. Without one: a file in this user's state folder, for locks on this machine.
    ///
    /// `sqlite:/path/to/locks.db`, `redis://[user:password@]host[:port][/database]`, `unix:///socket`,
    /// `redis-sentinel://[user:password@]host[:port][,host[:port]…]/master`,
    /// `redis-cluster://[user:password@]host[:port][,host[:port]…]` (with TLS `rediss`),
    /// `etcd://[user:password@]host[:port][,host[:port]…]` or `etcds://…`,
    /// `postgres://[user[:password]@]host[:port][/database]`,
    /// `mysql://user[:password]@host[:port]/database` or `mariadb://…`.
    ///
    /// Rather set the environment variable if it holds a password: command lines are visible to all.
    #[arg(long = "backend", value_name = "URL", env = "LEASEHOLD_BACKEND", hide_env_values = true)]
    pub(crate) url: Option<String>,
}

/// Runs a command while holding a lock.
///
/// The lock is a mutex unless another kind is named; all that name a key must mean the same kind.
///
/// The lock is renewed for as long as the command runs, and released when it ends. The command finds
/// the key in `LEASEHOLD_KEY` and the fencing token in `LEASEHOLD_TOKEN`: whatever it writes to
/// should refuse a token that is smaller than one it has seen. Signals are passed on to it, and
/// where the system can, it is killed if this process is; what it has started itself is not.
///
/// Exit status: that of the command (128 and the signal's number if one ended it, 126 or 127 if it
/// cannot be started); 75 if the lock was not obtained in time; 69 if the store cannot be reached;
/// 76 if the lease was lost; 64 if the command line makes no sense.
#[derive(ClapArgs, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) backend: Backend,

    /// How long the store keeps the lock if this process dies.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Duration,

    /// How long to wait for the lock. Without it: as long as it takes.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Give up at once if somebody else holds the lock.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Hold one of so many permits: this many commands may run at once, on all machines.
    #[arg(long, value_name = "N", conflicts_with_all = ["read", "write"])]
    pub(crate) permits: Option<u32>,

    /// Share the lock with others that read.
    #[arg(long, conflicts_with = "write")]
    pub(crate) read: bool,

    /// Have the lock alone, among others that read or write.
    #[arg(long)]
    pub(crate) write: bool,

    /// Stand in one queue with all others that wait, on all machines: first come, first served.
    #[arg(long)]
    pub(crate) fair: bool,

    /// How long the lock stays closed after it was obtained, however soon the command ends.
    ///
    /// With `--no-wait`, a job that cron starts on many machines runs once: take more than their clocks differ by.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) min_hold: Option<Duration>,

    /// How long the lock stays closed beyond the TTL if this process dies or is cut off.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) lock_delay: Duration,

    /// What to do with the command if the lease is lost, or about to be.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// What to do with the command if somebody asks for the lock: `leasehold release --ask`.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnAsked::Ignore)]
    pub(crate) on_asked: OnAsked,

    /// How long the command has to end after it was asked to, before it is killed.
    ///
    /// It is asked early enough that this is over before the lease is.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) kill_after: Duration,

    /// The lock's name.
    pub(crate) key: OsString,

    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What to do with the command if the lease is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnLost {
    /// Ask it to end (SIGTERM), then kill it, all before somebody else can get the lock.
    Term,
    /// Let it run on, unprotected.
    Ignore,
}

/// What to do with the command if somebody asks for the lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnAsked {
    /// Ask it to end (SIGTERM), and leave it all the time it needs.
    Term,
    /// Let it run on.
    Ignore,
}

/// Shows who holds a lock.
///
/// Exit status: 0 if it is held, 1 if it is free, 69 if the store cannot be reached, 64 if the
/// command line makes no sense.
#[derive(ClapArgs, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) backend: Backend,

    /// Print one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// The lock's name.
    pub(crate) key: OsString,
}

/// Ends somebody else's lease, as an operator, or asks for it.
///
/// With `--force`, its holder learns of it soon, and may go on until then: have whatever it writes to
/// refuse the tokens below the one that is printed. With `--ask`, it learns of it too, and does what it likes.
///
/// Exit status: 0 if a lease was ended or its holder asked, 1 if the lock was free, 69 if the store cannot be reached,
/// 64 if the command line makes no sense.
#[derive(ClapArgs, Debug)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) backend: Backend,

    /// End it. Yes, it is somebody else's.
    #[arg(long, required_unless_present = "ask")]
    pub(crate) force: bool,

    /// Ask its holder to finish early, and leave it to them.
    #[arg(long, conflicts_with = "force")]
    pub(crate) ask: bool,

    /// The lock's name.
    pub(crate) key: OsString,
}

/// Becomes a command that dies with the process that supervises it. For `run` itself.
#[derive(ClapArgs, Debug)]
pub(crate) struct Exec {
    /// The process that supervises.
    pub(crate) supervisor: i32,

    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound_and_every_option_has_help() {
        let mut command = Args::command();
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
