//! `leasehold doctor` asks each server through the connections of the client.

use std::process::Command;

use leasehold_testbed::{
    Etcd, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisOptions, SentinelOptions,
};

use crate::support::{Home, Running, block_on, code, leasehold_on, text, until};

/// The report on the store at `url`, where locks work.
fn doctor(url: &str) -> String {
    report(leasehold_on(url).arg("doctor"))
}

fn report(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(code(&output), 0, "{command:?}: {said}{}", text(&output.stderr));
    assert!(!said.contains("S3CR3T"), "{said}");
    said
}

fn has_line(said: &str, line: &str) {
    assert!(said.lines().any(|it| it.starts_with(line)), "{line:?} is missing: {said}");
}

#[test]
fn every_form_of_a_redis_url_shows_the_settings() {
    let server = RedisOptions::new().tls().start();
    let redis = block_on(server);
    block_on(redis.command(&["ACL", "SETUSER", "jobs", "on", ">S3CR3T", "allkeys", "+@all", "&*"]));
    block_on(redis.command(&["CONFIG", "SET", "requirepass", "S3CR3T"]));
    let (address, socket) = (redis.address(), redis.socket());
    let authority = redis.certificates().authority();

    for url in [
        format!("redis://{address}?user=jobs&pass=S3CR3T"),
        format!("redis://{address}?pass=S3CR3T"),
        format!("unix://{}?pass=S3CR3T", socket.display()),
        format!("{}?ca={}", redis.tls_url().replace("//", "//jobs:S3CR3T@"), authority.display()),
    ] {
        let said = doctor(&url);

        for check in ["version: ", "role: primary", "eviction: none", "clock: "] {
            has_line(&said, &format!("ok       {check}"));
        }
        has_line(&said, "WARNING  persistence: a restart frees all locks");
    }
}

#[test]
fn each_member_of_a_quorum_is_examined() {
    let servers: Vec<Redis> = (0..3).map(|_| block_on(Redis::start())).collect();
    let addresses: Vec<String> = servers.iter().map(Redis::address).collect();
    for server in &servers {
        block_on(server.command(&["CONFIG", "SET", "requirepass", "S3CR3T"]));
    }

    let said = doctor(&format!("redlock+redis://{}?pass=S3CR3T", addresses.join(",")));

    for address in &addresses {
        has_line(&said, &format!("ok       role of {address}: primary"));
    }
}

#[test]
fn primary_that_sentinel_names_is_examined() {
    let servers = block_on(SentinelOptions::new().start());

    let said = doctor(&servers.url());

    has_line(&said, "ok       role of 127.0.0.1:");
}

#[test]
fn missing_right_is_named() {
    let redis = block_on(Redis::start());
    block_on(redis.command(&["CONFIG", "SET", "appendonly", "yes"]));
    let rights = ["on", ">S3CR3T", "allkeys", "+@all", "&*"];
    let user = |name, without: &[&str]| {
        let words = [&["ACL", "SETUSER", name][..], &rights, without].concat();
        block_on(redis.command(&words));
        doctor(&format!("redis://{name}:S3CR3T@{}", redis.address()))
    };

    has_line(
        &user("a", &["-info"]),
        "WARNING  settings: NOPERM; to check the settings, connect as a user with +info",
    );
    let said = user("b", &["-config"]);
    has_line(&said, "ok       role: primary");
    let (_, said) = said.split_once("WARNING  persistence: appendonly is yes").expect(&said);
    assert!(said.lines().next().unwrap().contains("+config|get"), "{said}");
}

#[test]
fn postgres_that_may_lose_commits_is_a_warning() {
    let careless =
        block_on(PostgresOptions::new().set("fsync", "off").set("full_page_writes", "off").start());
    let careful = block_on(PostgresOptions::new().durable().start());

    let said = doctor(&careless.url());
    has_line(&said, "ok       version: PostgreSQL ");
    has_line(&said, "ok       role: primary");
    has_line(&said, "WARNING  persistence: fsync is off");
    has_line(&said, "WARNING  persistence: full_page_writes is off");
    has_line(&said, "ok       clock: ");
    let said = doctor(&careful.url());
    assert!(!said.contains("WARNING"), "{said}");
    has_line(&said, "ok       persistence: a crash keeps all locks");
}

#[test]
fn postgres_transaction_that_keeps_dead_rows_is_named() {
    let server = block_on(Postgres::start());
    let sql = |text: &str| block_on(server.sql(text));
    has_line(&doctor(&server.url()), "ok       oldest snapshot: ");
    sql("CREATE ROLE locker LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO locker;
         GRANT SELECT, UPDATE ON SEQUENCE leasehold_min_token TO locker");
    let snapshot = "SET application_name = 'report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(600)";
    // The client sends all statements in one message.
    let _report = Running::start(&mut server.client(snapshot).into_std());
    let pid = "SELECT pid FROM pg_stat_activity WHERE application_name = 'report' AND backend_xmin IS NOT NULL";
    until("the report has its snapshot", || !sql(pid).is_empty());

    sql("DO $$ BEGIN FOR n IN 1..10001 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$");
    sql(
        "INSERT INTO leasehold_key (key, generation, token, ends) SELECT 'k' || n, 0, 1, 0 FROM generate_series(1, 10000) n",
    );
    sql("UPDATE leasehold_key SET ends = -1");
    let dead = "SELECT pg_stat_get_dead_tuples('leasehold_key'::regclass) >= 10000";
    until("the server counts the dead rows", || sql(dead) == "t");

    // The transaction is not 5 min old, but its time is visible only to users with `pg_monitor`.
    has_line(&doctor(&server.url()), "ok       oldest snapshot: ");
    let said = doctor(&server.url_as("locker"));
    let pid = sql(pid);
    has_line(&said, &format!("WARNING  oldest snapshot: pid {pid}, application \"report\" is 1"));
    assert!(said.contains("users with pg_monitor see the time"), "{said}");
}

#[test]
fn postgres_without_writes_fails() {
    let server = block_on(Postgres::start());
    doctor(&server.url());
    block_on(server.sql("ALTER ROLE ALL SET default_transaction_read_only = on"));

    let output = leasehold_on(&server.url()).arg("doctor").output().unwrap();

    assert_eq!(code(&output), 1, "{}", text(&output.stderr));
    has_line(&text(&output.stdout), "FAILED   role: default_transaction_read_only is on");
}

#[test]
fn mariadb_that_may_lose_commits_is_a_warning() {
    let careless = MariaDbOptions::new().set("innodb_flush_log_at_trx_commit", "2");
    let careless = block_on(careless.set("innodb_doublewrite", "0").start());

    let said = doctor(&careless.url());

    has_line(&said, "ok       version: MariaDB ");
    has_line(&said, "ok       role: primary");
    has_line(&said, "WARNING  persistence: innodb_flush_log_at_trx_commit is 2");
    has_line(&said, "WARNING  persistence: innodb_doublewrite is OFF");
    has_line(&said, "ok       clock: ");
}

#[test]
fn lock_file_tells_its_journal() {
    let said = report(Home::new().leasehold().arg("doctor"));

    has_line(&said, "ok       version: SQLite 3.");
    has_line(&said, "ok       persistence: the journal mode is wal");
}

#[test]
fn etcd_tells_its_version_and_role() {
    let etcd = block_on(Etcd::start());

    let said = doctor(&etcd.url());

    has_line(&said, "ok       role: leader");
    assert!(said.contains("  version: etcd 3."), "{said}");
}
