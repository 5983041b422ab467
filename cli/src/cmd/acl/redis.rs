//! Users of Redis and of Sentinel.

use leasehold_settings::Server;

use super::step::{PASSWORD, SET_PASSWORD, Step, shell_word, tls_files};
use crate::place::{Place, Store};

/// The permissions that all types of locks require on one server.
const COMMANDS: &str = "+publish +subscribe +evalsha +eval +get +mget +set +del +unlink +exists +pexpire +pttl +time \
     +client|tracking +client|caching +zadd +zrem +zcard +zscore +zmscore +zrank +zrange +zrangebyscore +hset +hget +hmget +hdel +hincrby";

/// The permissions for the commands that a client sends to sentinels.
const SENTINELS: &str = "+sentinel|master +sentinel|myid +sentinel|sentinels +subscribe";

/// The rules that remove all other permissions. They do not change a password, and do not enable a disabled user.
const RESET: [&str; 3] = ["resetkeys", "resetchannels", "-@all"];

pub(super) fn steps(place: &Place, user: &str, list: bool) -> Vec<Step> {
    let clients = clients(place);
    let rules = rules(place, list);
    let mut steps = user_steps("servers", servers(place), &clients, user, &rules);
    if place.store == Store::RedisSentinel {
        let clients: Vec<_> = place.hosts().iter().map(|server| client(place, server)).collect();
        let user = place.parameter("sentinel-user").unwrap_or(user);
        let rules = [&RESET[..], &["&+switch-master"]].concat().join(" ") + " " + SENTINELS;
        let servers = "every sentinel, including sentinels that the URL does not name. \
             Required only if the sentinels need a password, which is sentinel-pass in the URL";
        steps.extend(user_steps("sentinels", servers, &clients, user, &rules));
    }
    steps
}

/// The permissions come first, so that they can be pasted without the password.
fn user_steps(
    on: &'static str,
    servers: &str,
    clients: &[String],
    user: &str,
    rules: &str,
) -> Vec<Step> {
    let user = shell_word(user);
    let commands = |rules: &str| {
        clients.iter().map(|client| format!("{client} ACL SETUSER {user} {rules}")).collect()
    };
    let rules: Vec<String> = rules.split(' ').map(shell_word).collect();
    vec![
        Step::new(
            on,
            format!(
                "Permissions, as an administrator on {servers}. An existing user keeps its passwords."
            ),
            commands(&rules.join(" ")),
        ),
        Step::new(
            on,
            format!("On the same servers, only for a new user. {SET_PASSWORD}"),
            commands(&format!("on \">{PASSWORD}\"")),
        ),
    ]
}

/// The permissions on a server that keeps locks.
fn rules(place: &Place, list: bool) -> String {
    let prefix = place.prefix();
    let mut rules = format!("{} ~{prefix}* &{prefix}* {COMMANDS}", RESET.join(" "));
    if place.database() != "0" {
        rules += " +select";
    }
    if place.store == Store::RedisCluster {
        rules += " +cluster|slots +cluster|nodes +asking";
    }
    if place.store == Store::Redlock {
        rules += " +info +getex +config|get +acl|dryrun";
    }
    if place.parameter("wait-replicas").is_some_and(|replicas| replicas != "0") {
        rules += " +wait";
    }
    if list {
        rules += " +scan";
    }
    rules
}

/// The servers that need the user, in words.
fn servers(place: &Place) -> &'static str {
    match place.store {
        Store::RedisSentinel => {
            "the primary and on each of its replicas. Set REDIS_HOST to each server in turn, and REDIS_PORT unless it is 6379"
        }
        Store::RedisCluster => {
            "every server of the cluster, including replicas and servers that the URL does not name"
        }
        Store::Redlock => "every server of the quorum",
        _ => "the server and on its replicas",
    }
}

/// One `redis-cli` for each server. A URL for Sentinel does not contain the servers that keep the locks.
fn clients(place: &Place) -> Vec<String> {
    if let Some(socket) = &place.socket {
        return vec![format!("redis-cli -s {}", shell_word(socket))];
    }
    if place.store == Store::RedisSentinel {
        let tls = tls(place);
        return vec![format!(
            "redis-cli -h \"${{REDIS_HOST:?}}\" -p \"${{REDIS_PORT:-6379}}\"{tls}"
        )];
    }
    place.hosts().iter().map(|server| client(place, server)).collect()
}

fn client(place: &Place, server: &Server) -> String {
    format!("redis-cli -h {} -p {}{}", shell_word(&server.host), server.port, tls(place))
}

fn tls(place: &Place) -> String {
    if place.is_encrypted { format!(" --tls{}", tls_files(place)) } else { String::new() }
}
