//! `leasehold acl`

mod etcd;
mod redis;
mod sql;
mod step;
mod zookeeper;

use std::process::ExitCode;

use serde_json::{Value, json};

use self::step::Step;
use crate::exit::Failure;
use crate::help::Help;
use crate::out;
use crate::place::{Place, Store};
use crate::store::Backend;

/// The name of the user, unless the URL or the command line contains one.
const USER: &str = "locker";

/// Prints the commands that grant a user the permissions that locks require.
///
/// Run the commands as an administrator, in a shell or in the database's SQL client. The comment above each command says where to run it, and
/// for which users. Commands that set a password use the shell variable NEW_PASSWORD. For a database, first create the user and run the
/// statements that `leasehold tables` prints. This subcommand does not connect to the store. The permissions depend on the URL, for example on
/// its prefix and database, and on whether it names a cluster, Sentinel or a quorum.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    /// Name of the user. By default, the user in the URL, or `locker`.
    #[arg(long, value_name = "NAME", help_heading = "Permissions")]
    user: Option<String>,

    /// Include the permission for `leasehold list`. On Redis, this permission reveals the names of all keys in the database.
    #[arg(long, help_heading = "Permissions")]
    list: bool,
}

pub(crate) const HELP: Help = Help {
    examples: "\
leasehold acl --backend redis://127.0.0.1
leasehold acl --user jobs --backend 'redis-cluster://a,b?prefix=jobs:'",
    ..Help::OFFLINE
};

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let url = args.backend.url()?;
    let place = Place::of(&url)?;
    let user = args.user.as_deref().or(place.user.as_deref()).unwrap_or(USER);
    let steps = steps(&place, user, args.list)?;
    if out::style().json {
        let commands: Vec<Value> = steps.iter().flat_map(Step::to_json).collect();
        out::print_json(&json!({ "user": user, "commands": commands }))?;
    } else {
        let is_sql = matches!(place.store, Store::Postgres | Store::Mysql);
        let mark = if is_sql { "--" } else { "#" };
        let text: String = steps.iter().map(|step| step.to_text(mark)).collect();
        out::print(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn steps(place: &Place, user: &str, list: bool) -> Result<Vec<Step>, Failure> {
    Ok(match place.store {
        Store::Redis | Store::RedisSentinel | Store::RedisCluster | Store::Redlock => {
            redis::steps(place, user, list)
        }
        Store::Etcd => etcd::steps(place, user),
        Store::ZooKeeper => zookeeper::steps(place, user),
        Store::Postgres => sql::steps(place, '"', &sql::quote(user, '"')),
        Store::Mysql => sql::steps(place, '`', &sql::quote(user, '\'')),
        Store::Sqlite => {
            return Err(Failure::usage(
                "a lock file has no user accounts; give the operating-system users write access to the file and its directory",
            ));
        }
    })
}
