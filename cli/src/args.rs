//! The command line, and the options that its verbs share.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use leasehold::{Description, Error, LockClient, LockOptions};

use crate::exit::{self, Failure};
use crate::key::Key;
use crate::{cmd, time};

/// Runs commands under distributed locks.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    max_term_width = 100,
    after_help = "`leasehold --help` also shows the URLs of stores, the environment and examples.",
    after_long_help = format!("{STORES}\n\n{ENVIRONMENT}\n\n{EXAMPLES}\n\n{}", exit::HELP),
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
    Completions(cmd::completions::Args),
    Man(cmd::man::Args),
}

/// How the command speaks.
#[derive(ClapArgs, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Style {
    /// Print results as lines of JSON, on stdout, and failures as such, on stderr.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Say nothing about a lock that is busy, and log nothing.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Log events on stderr; given twice, all of them. Without it: warnings, or as RUST_LOG says.
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// Where the locks are.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct Backend {
    /// Store to use, such as redis://127.0.0.1. By default, locks are kept in a file of this user and shared by this user's processes on
    /// this machine; `local` says so explicitly.
    ///
    /// Other users and root have separate files, so their commands are not excluded. If the URL contains a password, set the environment
    /// variable instead: command lines are visible to other users. See `leasehold --help` for the supported URLs.
    #[arg(long = "backend", value_name = "URL", env = "LEASEHOLD_BACKEND", hide_env_values = true)]
    pub(crate) url: Option<String>,

    /// Put this before the names of all locks in the store, instead of the store's usual prefix.
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_PREFIX")]
    pub(crate) prefix: Option<String>,

    /// Refuse to use the file of this machine: a store that several machines share must be named.
    #[arg(long)]
    pub(crate) shared: bool,
}

/// How long to wait for a lock.
#[derive(ClapArgs, Clone, Copy, Debug)]
#[command(next_help_heading = "Lock")]
pub(crate) struct WaitArgs {
    /// How long to wait for the lock, and for a store that is down. Without it: for the lock as long as it takes, for the store 10 s.
    ///
    /// A TIME is a number of seconds, or like 500ms, 30s, 5m, 1h 30m, 1d.
    #[arg(long, short, value_name = "TIME", value_parser = time::parse, env = "LEASEHOLD_WAIT")]
    wait: Option<Duration>,

    /// Give up at once if the lock is busy.
    #[arg(long, short)]
    pub(crate) no_wait: bool,
}

impl WaitArgs {
    /// How long to wait, if the user has limited it. `--no-wait` overrides a variable and the configuration file.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.wait.filter(|_| !self.no_wait)
    }
}

/// The properties of a lease.
#[derive(ClapArgs, Clone, Copy, Debug)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LeaseArgs {
    /// How long the store keeps the lock if this process dies; it is renewed until then. Without it: 30 s, or the longest that the store
    /// allows.
    #[arg(long, value_name = "TIME", value_parser = time::parse, env = "LEASEHOLD_TTL")]
    ttl: Option<Duration>,

    /// Stand in one queue with all others that wait, on all machines: first come, first served.
    #[arg(long)]
    pub(crate) fair: bool,

    /// Keep the lock for at least this long, even if the command exits sooner.
    ///
    /// Together with `--no-wait`, this makes a cron job run once across many machines: use a time longer than their clocks can differ. If
    /// this process is killed, the lock is free after its TTL; a --ttl of at least --min-hold covers this case, too.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) min_hold: Option<Duration>,

    /// Stop the command if it holds the lock for longer than this.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// How long the lock stays closed beyond the TTL if this process dies or is cut off.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time::parse)]
    pub(crate) lock_delay: Duration,
}

impl LeaseArgs {
    /// The options of the library. `--max-hold` is not among them: the lease is renewed until the command has ended, and then released.
    pub(crate) fn options(&self, client: &LockClient, wait: &WaitArgs) -> LockOptions {
        let mut options = client.options().fair(self.fair).lock_delay(self.lock_delay);
        if let Some(ttl) = self.ttl {
            options = options.ttl(ttl);
        }
        if let Some(time) = self.min_hold {
            options = options.min_hold(time);
        }
        if let Some(wait) = wait.limit() {
            // A store that is down is waited for like a lock.
            options = options.outage_wait(wait);
        }
        options
    }

    pub(crate) fn ttl(&self, client: &LockClient) -> Duration {
        let longest = client.backend().capabilities().max_ttl();
        self.ttl.unwrap_or(LockOptions::DEFAULT_TTL.min(longest))
    }
}

/// The lock that is wanted.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Lock")]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Hold one of so many permits: this many commands may run at once, on all machines. All should name the same number.
    #[arg(long, value_name = "N", conflicts_with_all = ["read", "write"])]
    pub(crate) permits: Option<u32>,

    /// Share the lock with others that read.
    #[arg(long, conflicts_with = "write")]
    pub(crate) read: bool,

    /// Have the lock alone, among others that read or write.
    #[arg(long)]
    pub(crate) write: bool,

    /// Describe the holder, for `status` and for waiters. Without it: host and process id.
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_DESCRIPTION")]
    pub(crate) description: Option<String>,

    /// Hold this lock too, at the same time; may be repeated. All or none are held, in any order.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) also: Vec<OsString>,
}

impl LockArgs {
    pub(crate) fn options(&self, client: &LockClient) -> Result<LockOptions, Error> {
        let options = self.lease.options(client, &self.wait);
        Ok(match &self.description {
            Some(text) => options.description(Description::new(text.clone())?),
            None => options,
        })
    }

    /// `key`, and all others that are to be held with it.
    pub(crate) fn keys(&self, key: &OsString) -> Result<Vec<Key>, Failure> {
        let names = [key].into_iter().chain(&self.also);
        Ok(names.map(|name| Key::new(name)).collect::<Result<_, _>>()?)
    }
}

const STORES: &str = "\
Stores, as --backend or LEASEHOLD_BACKEND name them:
  sqlite:/path/to/locks.db                                     the processes of this machine
  redis://[user:password@]host[:port][/database]               one Redis or Valkey server
  unix:///path/to/socket                                       the same
  redis-sentinel://[user:password@]host[:port][,…]/master      the server that Sentinel names
  redis-cluster://[user:password@]host[:port][,…]              a cluster
  redlock+redis://[user:password@]host[:port],host,host[,…]    a quorum of 3, 5, 7 or 9 servers
  etcd://[user:password@]host[:port][,…]                       an etcd cluster
  zookeeper://[user:password@]host[:port][,…][/prefix]         a ZooKeeper ensemble, beside Apache Curator
  postgres://[user[:password]@]host[:port][/database]          tables in PostgreSQL
  mysql://user[:password]@host[:port]/database                 tables in MySQL; mariadb:// too
With TLS: rediss://, rediss-sentinel://, rediss-cluster://, redlock+rediss://, etcds://, zookeepers://;
?sslmode=verify-full for PostgreSQL, ?ssl-mode=verify_identity for MySQL.

Parameters, after ? and between &:
  prefix=TEXT        before the names of all locks (lock: on Redis, lock/ on etcd, /lock on ZooKeeper)
  timeout-ms=N       for a connection, and for each request
  wait-replicas=N    Redis: a lock counts once so many replicas have it, or the majority
  push=off           Redis: poll instead of being told
  client=fred        Redis: with the other client crate
  ca=, cert=, key=   TLS: paths of PEM files
  docs/operating.md lists them all.

Without --backend, locks are in a file of the current user, ~/.local/state/leasehold/locks.db. It excludes
other commands of this user on this machine. Other users and root have separate files, so their commands are
not excluded.";

const ENVIRONMENT: &str = "\
Environment:
  LEASEHOLD_BACKEND, LEASEHOLD_PREFIX, LEASEHOLD_TTL, LEASEHOLD_WAIT, LEASEHOLD_DESCRIPTION
                     stand for the options of these names
  LEASEHOLD_CONFIG   a file of lines like `ttl = 30s`, for backend, prefix, ttl, wait, min-hold, max-hold,
                     lock-delay, kill-after, on-lost, on-asked and description where neither an option nor a
                     variable is given (~/.config/leasehold/config)
  RUST_LOG           the events to log, like leasehold=debug,warn
A command under `run` finds LEASEHOLD_KEY and LEASEHOLD_TOKEN in its environment.";

const EXAMPLES: &str = "\
Examples:
  leasehold run nightly ./report.sh                     one at a time
  leasehold run --no-wait --min-hold 1m --max-hold 6h nightly -- ./report.sh
                                                        once, from the crontabs of many machines
  leasehold run --permits 3 import ./import.sh          three at a time
  leasehold status nightly                              its holder, and its waiters
  leasehold list                                        all locks in use
  leasehold release --ask nightly                       asks the holder to finish early
  leasehold release --force nightly                     ends its lease";

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
