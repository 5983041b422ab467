//! The scenarios of the bench.

mod cluster;
mod crowd;
mod cycle;
mod etcd_hand_over;
mod etcd_keep_alive;
mod etcd_lock;
mod etcd_waiting;
mod hand_over;
mod held;
mod hot;
mod many;
mod memory;
mod one;
mod quorum;
mod sql_churn;
mod sql_lock;
mod sql_snapshot;
mod waiting;
mod zookeeper;

use std::process::ExitCode;

use serde_json::Value;

use crate::args::{Args, Scenario};
use crate::child::{self, PlannedScenario};
use crate::database::Database;
use crate::outcome::Outcome;

/// Measures a scenario on servers that it starts.
pub(crate) async fn run(scenario: Scenario, args: &Args) -> Vec<Outcome> {
    match scenario {
        Scenario::RedisOne => vec![one::run(args).await],
        Scenario::RedisMany => many::run(args).await,
        Scenario::RedisManyApart => many::run_apart(args).await,
        Scenario::RedisCluster => cluster::run(args).await,
        Scenario::RedisHot => vec![hot::run(args).await],
        Scenario::RedisHandOver => vec![hand_over::run(args).await],
        Scenario::RedisCrowd => vec![crowd::run(args).await],
        Scenario::RedisHeld => vec![held::run(args).await],
        Scenario::RedisHeldMillion => vec![held::run_million(args).await],
        Scenario::RedisWaiting => vec![waiting::run(args).await],
        Scenario::Quorum => quorum::run(args).await,
        Scenario::Memory => vec![memory::run(args).await],
        Scenario::EtcdLock => etcd_lock::run(args).await,
        Scenario::EtcdHandOver => vec![etcd_hand_over::run(args).await],
        Scenario::EtcdKeepAlive => vec![etcd_keep_alive::run(args).await],
        Scenario::EtcdWaiting => vec![etcd_waiting::run(args).await],
        Scenario::PostgresLock => sql_lock::run(Database::Postgres, args).await,
        Scenario::PostgresHandOver => vec![hand_over::run_on(Database::Postgres, args).await],
        Scenario::MariadbLock => sql_lock::run(Database::MariaDb, args).await,
        Scenario::MariadbHandOver => vec![hand_over::run_on(Database::MariaDb, args).await],
        Scenario::SqliteLock => sql_lock::run(Database::Sqlite, args).await,
        Scenario::SqliteHandOver => vec![hand_over::run_on(Database::Sqlite, args).await],
        Scenario::SqlHeld => vec![held::run_on_databases(args).await],
        Scenario::SqlChurn => vec![sql_churn::run(args).await],
        Scenario::SqlSnapshot => vec![sql_snapshot::run(args).await],
        Scenario::ZookeeperLock => zookeeper::lock(args).await,
        Scenario::ZookeeperHandOver => vec![zookeeper::hand_over(args).await],
        Scenario::ZookeeperHeld => vec![zookeeper::held(args).await],
    }
}

/// Runs the plan of a parent in a child process.
pub(crate) async fn run_plan(plan: &str) -> ExitCode {
    let (scenario, plan): (PlannedScenario, Value) =
        serde_json::from_str(plan).expect("parents and children share the type of plans");
    match scenario {
        PlannedScenario::HandOver => child::run(plan, hand_over::Plan::run).await,
        PlannedScenario::Crowd => child::run(plan, crowd::Plan::run).await,
        PlannedScenario::Held => child::run(plan, held::Plan::run).await,
    }
}
