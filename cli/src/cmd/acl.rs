//! `leasehold acl`

use std::process::ExitCode;

use serde_json::json;

use crate::args::Backend;
use crate::exit::Failure;
use crate::help::Help;
use crate::out;
use crate::place::{Place, Store};

/// The name of the user, unless the URL or the command line contains one.
const USER: &str = "locker";

/// Prints the commands that grant a user the permissions that locks require.
///
/// Replace PASSWORD in the printed lines, and run them as an administrator, in a shell or in the database's SQL client. For a database, first
/// create the user and run the statements that `leasehold tables` prints. This subcommand does not connect to the store. The permissions
/// depend on the URL, for example on its prefix and database, and on whether it names a cluster, Sentinel or a quorum.
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
    let lines = lines(&place, user, args.list)?;
    if out::style().json {
        out::print_json(&json!({ "user": user, "commands": lines }))?;
    } else {
        out::print((lines.join("\n") + "\n").as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(place: &Place, user: &str, list: bool) -> Result<Vec<String>, Failure> {
    Ok(match place.store {
        Store::Redis | Store::RedisCluster | Store::Redlock => vec![redis(place, user, list)],
        Store::RedisSentinel => vec![
            redis(place, user, list),
            redis_cli(user, "resetkeys resetchannels -@all", &["&+switch-master"], SENTINELS),
        ],
        Store::Etcd => vec![etcd(place, user)],
        Store::ZooKeeper => vec![zookeeper(place, user)],
        Store::Postgres => sql(place, '"', &quote(user, '"')),
        Store::Mysql => sql(place, '`', &quote(user, '\'')),
        Store::Sqlite => {
            return Err(Failure::usage(
                "a lock file has no store permissions; give the users write access to the file and its directory",
            ));
        }
    })
}

/// The permissions that all types of locks require on one server.
const COMMANDS: &str = "+publish +subscribe +evalsha +eval +get +mget +set +del +unlink +exists +pexpire +pttl +time \
     +client|tracking +client|caching +zadd +zrem +zcard +zscore +zmscore +zrank +zrange +zrangebyscore +hset +hget +hmget +hdel +hincrby";

/// The permissions for the commands that a client sends to sentinels.
const SENTINELS: &str = "+sentinel|master +sentinel|myid +sentinel|sentinels +subscribe";

fn redis(place: &Place, user: &str, list: bool) -> String {
    let mut commands = COMMANDS.to_owned();
    if place.database() != "0" {
        commands += " +select";
    }
    if place.store == Store::RedisCluster {
        commands += " +cluster|slots +cluster|nodes +asking";
    }
    if place.store == Store::Redlock {
        commands += " +info +getex +config|get +acl|dryrun";
    }
    if place.parameter("wait-replicas").is_some_and(|replicas| replicas != "0") {
        commands += " +wait";
    }
    if list {
        commands += " +scan";
    }
    let prefix = place.prefix();
    let patterns = [format!("~{prefix}*"), format!("&{prefix}*")];
    redis_cli(user, "resetkeys resetchannels -@all", &patterns, &commands)
}

/// `ACL SETUSER` for a shell, with quotation marks around words that the shell would interpret.
fn redis_cli(user: &str, reset: &str, patterns: &[impl AsRef<str>], commands: &str) -> String {
    let words = ["on", ">PASSWORD"].into_iter().chain(reset.split(' '));
    let words = words.chain(patterns.iter().map(AsRef::as_ref)).chain(commands.split(' '));
    let words: Vec<String> = [user].into_iter().chain(words).map(shell_word).collect();
    format!("redis-cli ACL SETUSER {}", words.join(" "))
}

fn etcd(place: &Place, user: &str) -> String {
    let (user, prefix) = (shell_word(user), shell_word(&*place.prefix()));
    format!(
        "etcdctl role add {user} && etcdctl role grant-permission {user} --prefix=true readwrite {prefix} && \
         etcdctl user add {user}:PASSWORD && etcdctl user grant-role {user} {user}"
    )
}

/// Creates the parent node of all locks, for this user only. The scheme `digest` identifies users by a hash.
fn zookeeper(place: &Place, user: &str) -> String {
    let prefix = shell_word(&*place.prefix());
    let id = match place.parameter("auth") {
        Some("sasl") => shell_word(format!("sasl:{user}:cdrwa")),
        _ => {
            let login = shell_word(format!("{user}:PASSWORD"));
            let hash = format!("$(printf %s {login} | openssl dgst -sha1 -binary | base64)");
            format!("digest:{}:\"{hash}\":cdrwa", shell_word(user))
        }
    };
    format!("zkCli.sh create {prefix} '' {id}")
}

/// Statements for an administrator of the database, in which the tables are.
fn sql(place: &Place, mark: char, user: &str) -> Vec<String> {
    let schema = place.parameter("schema").map(|it| quote(it, mark) + ".").unwrap_or_default();
    let table = |name: &str| format!("{schema}{}{name}", place.prefix());
    let mut statements = vec![
        format!("GRANT SELECT, UPDATE ON {} TO {user};", table("stripe")),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {user};", table("lease")),
        format!("GRANT SELECT, UPDATE ON {} TO {user};", table("member")),
    ];
    if place.store == Store::Postgres {
        let schema = place.parameter("schema").unwrap_or("public");
        statements.insert(0, format!("GRANT USAGE ON SCHEMA {} TO {user};", quote(schema, mark)));
    }
    statements
}

/// A name in SQL, in quotation marks if necessary.
fn quote(name: &str, mark: char) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.bytes().all(is_plain) && mark != '\'' {
        return name.to_owned();
    }
    let doubled = name.replace(mark, &format!("{mark}{mark}"));
    format!("{mark}{doubled}{mark}")
}

/// A word for a shell, in quotation marks if necessary.
fn shell_word(word: impl AsRef<str>) -> String {
    let word = word.as_ref();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_.:/@".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
