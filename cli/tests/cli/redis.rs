//! The command on a real Redis.

mod bad_usage;
mod cannot_grant;
mod kinds;
mod on_a_terminal;
mod operators_tools;
mod run_verb;
mod status_and_release;
mod topologies_and_clients;

use std::process::{Command, Stdio};

use leasehold_testbed::Redis;

use crate::operator;
use crate::support::{Running, block_on, code, fails, leasehold_on, run_on, text, until};

fn leasehold(redis: &Redis) -> Command {
    leasehold_on(&redis.url())
}

/// `leasehold run`, with the shell script `script` as its command.
fn run(redis: &Redis, options: &[&str], script: &str) -> Command {
    run_on(&redis.url(), options, script)
}

fn redis() -> Redis {
    block_on(Redis::start())
}

fn ask(redis: &Redis, command: &[&str]) -> String {
    block_on(redis.command(command))
}
