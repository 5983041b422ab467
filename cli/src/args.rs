//! The command line, and the options that its subcommands share.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs, Parser, Subcommand};
use leasehold::{Description, Error, LockClient, LockOptions};

use crate::cmd;
use crate::exit::Failure;
use crate::help::Help;
use crate::key::Key;
use crate::time::{self, Time};

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

/// The store of the locks.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct Backend {
    /// Store to use, such as redis://127.0.0.1. By default, locks are kept in a file that only your own processes on this machine share;
    /// `local` selects this file explicitly.
    ///
    /// Other users, including root, have separate lock files, so your locks do not keep their commands from running at the same time. If
    /// the URL contains a password, set the environment variable instead of this option, because command lines are visible to other users.
    /// See `leasehold --help` for the supported URLs.
    #[arg(long = "backend", value_name = "URL", env = "LEASEHOLD_BACKEND")]
    pub(crate) url: Option<String>,

    /// Prefix for the names of all locks in the store, instead of the store's default.
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_PREFIX")]
    pub(crate) prefix: Option<String>,

    /// Fail if no store is specified, or if the store is `local`, instead of using a lock file on this machine.
    #[arg(long)]
    pub(crate) shared: bool,
}

/// How long to wait for a lock.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitArgs {
    /// How long to wait for the lock, and for a store that is down. By default, leasehold waits indefinitely for a busy lock, and 10s for a
    /// store that is down.
    #[arg(long, short, value_name = "TIME", value_parser = time::parse_wait, env = "LEASEHOLD_WAIT")]
    wait: Option<Time>,

    /// Exit with status 75 if the lock is busy, instead of waiting.
    #[arg(long, short)]
    pub(crate) no_wait: bool,

    /// Queue for the lock, so that waiting commands on all machines acquire it in order of arrival.
    #[arg(long)]
    fair: bool,
}

impl WaitArgs {
    /// How long to wait, if the user has limited it. `--no-wait` overrides a variable and the configuration file.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.wait.as_ref().filter(|_| !self.no_wait).map(|wait| wait.span)
    }
}

/// The properties of a lease.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Lease")]
pub(crate) struct LeaseArgs {
    /// How long the store keeps the lock after this process dies.
    ///
    /// [default: 30s, or less if the store's maximum is lower]
    #[arg(long, value_name = "TIME", value_parser = time::parse, env = "LEASEHOLD_TTL")]
    ttl: Option<Time>,

    /// Keep the lock for at least this long, even if the command exits sooner.
    ///
    /// With --min-hold and --no-wait, a cron job on many machines runs only once. The time must be longer than the maximum clock skew
    /// between the machines. If this process is killed, the lock expires after its TTL, even if --min-hold is longer.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    min_hold: Option<Time>,

    /// Stop the command if it holds the lock for longer than this time.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    max_hold: Option<Time>,

    /// After a crash or a network failure, keep the lock for this additional time after its TTL, so that late requests from the command
    /// arrive before the next holder's requests.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time::parse)]
    lock_delay: Time,
}

impl LeaseArgs {
    /// The options of the library. They do not include `--max-hold`, because the lease is renewed until the command has ended.
    ///
    /// # Errors
    ///
    /// Fails if the store does not support a time. The message names the option, unlike a message of the library.
    pub(crate) fn options(
        &self,
        client: &LockClient,
        wait: &WaitArgs,
    ) -> Result<LockOptions, Failure> {
        self.check(client)?;
        let mut options = client.options().fair(wait.fair).lock_delay(self.lock_delay.span);
        if let Some(ttl) = &self.ttl {
            options = options.ttl(ttl.span);
        }
        if let Some(time) = &self.min_hold {
            options = options.min_hold(time.span);
        }
        if let Some(wait) = wait.limit() {
            // `--wait` also limits the wait for a store that is down.
            options = options.outage_wait(wait);
        }
        Ok(options)
    }

    fn check(&self, client: &LockClient) -> Result<(), Failure> {
        let store = client.backend().capabilities();
        let (min, max) = (store.min_ttl().max(LockOptions::MIN_TTL), store.max_ttl());
        let (name, min_text, max_text) = (store.name(), time::show(min), time::show(max));
        let range = format!("{name} supports {min_text} to {max_text}");
        let limit = format!("{name} keeps a lock for at most {max_text}");
        let refused = |option: &str, time: &Time, fault: &str, why: &str| {
            Err(Failure::usage(format!("{option} {time} is too {fault}: {why}")))
        };
        match (&self.ttl, &self.min_hold, &self.max_hold) {
            (Some(ttl), ..) if ttl.span < min => refused("--ttl", ttl, "short", &range),
            (Some(ttl), ..) if ttl.span > max => refused("--ttl", ttl, "long", &range),
            (_, Some(least), _) if least.span > max => refused("--min-hold", least, "long", &limit),
            (_, _, Some(most)) if most.span.is_zero() => {
                refused("--max-hold", most, "short", "the command could not run")
            }
            (_, Some(least), Some(most)) if least.span > most.span => {
                refused("--min-hold", least, "long", &format!("--max-hold is {most}"))
            }
            _ if self.ttl(client).saturating_add(self.lock_delay.span) > max => {
                let why = format!("{limit}, including the TTL");
                refused("--lock-delay", &self.lock_delay, "long", &why)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn ttl(&self, client: &LockClient) -> Duration {
        let longest = client.backend().capabilities().max_ttl();
        self.ttl.as_ref().map_or(LockOptions::DEFAULT_TTL.min(longest), |ttl| ttl.span)
    }

    pub(crate) fn max_hold(&self) -> Option<Duration> {
        self.max_hold.as_ref().map(|time| time.span)
    }
}

/// The lock that is wanted.
#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) wait: WaitArgs,

    #[command(flatten)]
    pub(crate) lock_type: TypeArgs,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Description of the holder, shown by `leasehold status` and to waiting callers.
    ///
    /// [default: host name and process ID]
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_DESCRIPTION")]
    pub(crate) description: Option<String>,
}

/// The type of the lock, and further locks of that type.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Lock type (default: a mutex)")]
pub(crate) struct TypeArgs {
    /// Acquire one of N permits, so that at most N commands run at a time. All commands that use the lock must specify the same N.
    #[arg(long, value_name = "N", conflicts_with_all = ["read", "write"])]
    pub(crate) permits: Option<u32>,

    /// Acquire the lock for reading, shared with other readers.
    #[arg(long, conflicts_with = "write")]
    pub(crate) read: bool,

    /// Acquire the lock for writing, exclusively.
    #[arg(long)]
    pub(crate) write: bool,

    /// Also acquire this lock, with the same lock type. This option may be given more than once, and the order does not matter. The command
    /// runs only when all locks are held.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(crate) also: Vec<OsString>,
}

impl LockArgs {
    pub(crate) fn options(&self, client: &LockClient) -> Result<LockOptions, Failure> {
        let options = self.lease.options(client, &self.wait)?;
        Ok(match &self.description {
            Some(text) => options.description(description(text, "--description")?),
            None => options,
        })
    }

    /// `key`, and all keys that should be held with it.
    pub(crate) fn keys(&self, key: &OsString) -> Result<Vec<Key>, Failure> {
        let names = [key].into_iter().chain(&self.lock_type.also);
        Ok(names.map(|name| Key::new(name)).collect::<Result<_, _>>()?)
    }
}

/// The description in the value of `option`.
pub(crate) fn description(text: &str, option: &str) -> Result<Description, Failure> {
    Description::new(text.to_owned())
        .map_err(|error: Error| Failure::usage(format!("invalid value for {option}: {error}")))
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
