//! The verbs `doctor` and `acl`.

use std::collections::BTreeSet;

use leasehold_testbed::{Etcd, RedisOptions};

use crate::support::Home;

use super::*;

/// The words of a line, as a shell reads them for `redis-cli`.
fn words(line: &str) -> Vec<String> {
    let words = line.strip_prefix("redis-cli ").unwrap();
    let script = format!("printf '%s\\n' {words}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Runs `leasehold acl` with these arguments, of which the last is the URL of the store.
fn acl(args: &[&str]) -> Vec<String> {
    let (url, options) = args.split_last().unwrap();
    let output =
        Home::new().leasehold().arg("acl").args(options).args(["--backend", url]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn rights_are_those_of_the_documentation() {
    let page = include_str!("../../../../redis-support/README.md");
    let (_, rule) = page.split_once("ACL SETUSER locker on >PASSWORD").unwrap();
    let (rule, _) = rule.split_once("```").unwrap();
    let documented: BTreeSet<&str> = rule.split_whitespace().collect();

    let [line] = &acl(&["redis://127.0.0.1"])[..] else { panic!("it is one line") };
    let words = words(line);

    assert_eq!(words[..5], ["ACL", "SETUSER", "locker", "on", ">PASSWORD"]);
    assert_eq!(words[5..].iter().map(String::as_str).collect::<BTreeSet<_>>(), documented);
}

#[test]
fn rights_are_enough_for_all_kinds_of_lock() {
    let redis = redis();
    let url = format!("redis://jobs:PASSWORD@{}/2?prefix=my:", redis.address());
    let [line] = &acl(&[&url])[..] else { panic!("it is one line") };
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(ask(&redis, &words), "+OK", "{words:?}");

    for options in [&[][..], &["--permits", "2"], &["--read"], &["--fair"], &["--write"]] {
        let key = options.join("");
        let mut command = leasehold_on(&url);
        command.args(["run"]).args(options).args([&format!("k{key}"), "true"]);
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{options:?}: {}", text(&output.stderr));
    }
    let checked = leasehold_on(&url).arg("doctor").output().unwrap();
    assert_eq!(code(&checked), 0, "{}{}", text(&checked.stdout), text(&checked.stderr));
    let mut holder = leasehold_on(&url);
    let mut holder = Running::start(holder.args(["hold", "job"]));
    assert!(holder.line().starts_with("job: held"));
    fails(leasehold_on(&url).arg("list"), 77, "NOPERM");
    let [line] = &acl(&["--list", &url])[..] else { panic!("it is one line") };
    let line = self::words(line);
    assert_eq!(ask(&redis, &line.iter().map(String::as_str).collect::<Vec<_>>()), "+OK");
    let listed = leasehold_on(&url).arg("list").output().unwrap();
    assert!(text(&listed.stdout).starts_with("job: held by "), "{}", text(&listed.stdout));
    let foreign = url.replace("my:", "lock:");
    fails(leasehold_on(&foreign).args(["run", "-n", "job", "true"]), 77, "NOPERM");
}

#[test]
fn url_decides_which_rights_are_needed() {
    let has = |url: &str, right: &str| acl(&[url])[0].contains(right);
    for (url, right) in [
        ("redis://h/3", "+select"),
        ("redis://h?wait-replicas=1", "+wait"),
        ("redis-cluster://h", "cluster|slots"),
        ("redlock+redis://a,b,c", "acl|dryrun"),
    ] {
        assert!(has(url, right), "{url}");
        assert!(!has("redis://h", right), "{url}");
    }
    assert_eq!(acl(&["redis-sentinel://h/m"]).len(), 2, "one for the sentinels");
    assert!(
        acl(&["--user", "app", "postgres://h/db"]).contains(
            &"GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_lease TO app;".to_owned()
        )
    );
    fails(
        Home::new().leasehold().args(["acl", "--backend", "sqlite:x.db"]),
        64,
        "has no store permissions",
    );
}

#[test]
fn etcd_line_makes_a_user_that_may_lock() {
    let etcd = block_on(Etcd::start());
    let [line] = &acl(&[&etcd.url()])[..] else { panic!("it is one line") };
    for command in line.split(" && ") {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        block_on(etcd.ctl(&words));
    }
    for words in ["user add root:root", "user grant-role root root", "auth enable"] {
        block_on(etcd.ctl(&words.split(' ').collect::<Vec<_>>()));
    }

    let url = etcd.url().replace("//", "//locker:PASSWORD@");
    let output = leasehold_on(&url).args(["run", "job", "true"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
}

#[test]
fn doctor_judges_the_settings_of_a_server() {
    let doctor = |redis: &Redis| {
        let output = leasehold(redis).arg("doctor").output().unwrap();
        assert_eq!(code(&output), 0, "{}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let redis = block_on(RedisOptions::new().append_only().start());
    ask(&redis, &["CONFIG", "SET", "appendfsync", "always"]);
    let said = doctor(&redis);
    assert!(!said.contains("WARNING"), "{said}");
    for check in ["reachable", "version", "role", "eviction", "persistence", "clock", "locks"] {
        assert!(said.contains(&format!("ok       {check}: ")), "{check}: {said}");
    }

    ask(&redis, &["CONFIG", "SET", "appendonly", "no"]);
    ask(&redis, &["CONFIG", "SET", "maxmemory", "100mb"]);
    ask(&redis, &["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let said = doctor(&redis);
    for check in ["eviction: volatile-lru may evict locks", "persistence: a restart frees"] {
        assert!(said.contains(&format!("WARNING  {check}")), "{said}");
    }
}

#[test]
fn doctor_finds_a_server_that_grants_no_locks() {
    let redis = redis();
    ask(&redis, &["REPLICAOF", "127.0.0.1", "1"]);

    let checked = leasehold(&redis).args(["doctor", "--json"]).output().unwrap();

    assert_eq!(code(&checked), 1, "{}", text(&checked.stderr));
    let told = text(&checked.stdout);
    let told = told.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let failed: Vec<_> = told.filter(|it| it["verdict"] == "failed").collect();
    assert!(failed.iter().any(|it| it["check"] == "role"), "{failed:?}");
    assert!(failed.iter().any(|it| it["check"] == "locks"), "{failed:?}");
    fails(leasehold_on("redis://127.0.0.1:1").arg("doctor"), 69, "connection refused");
}

#[test]
fn data_of_other_programs_hides_no_lock() {
    let redis = redis();
    ask(&redis, &["RPUSH", "lock:theirs", "x"]);
    let mut holder = leasehold(&redis);
    let mut holder = Running::start(holder.args(["hold", "job"]));
    assert!(holder.line().starts_with("job: held"));
    let waiter = Running::start(leasehold(&redis).args(["run", "job", "true"]));
    until("the claim stands in the queue", || {
        let status = leasehold(&redis).args(["status", "job"]).output().unwrap();
        text(&status.stdout).contains("waited for by")
    });

    let list = leasehold(&redis).arg("list").output().unwrap();
    let top = leasehold(&redis).arg("top").output().unwrap();

    let mut listed: Vec<_> = text(&list.stdout).lines().map(str::to_owned).collect();
    listed.sort();
    assert_eq!(code(&list), 0, "{}", text(&list.stderr));
    assert_eq!(listed.len(), 2, "each is named once: {listed:?}");
    assert!(listed[0].starts_with("job: held by "), "{listed:?}");
    assert_eq!(listed[1], "theirs: not a lock, but other data");
    assert_eq!(text(&top.stdout).lines().count(), 2, "a heading and a lock");
    drop(waiter);
}

#[test]
fn suite_runs_on_the_store_of_a_user() {
    let (redis, home) = (redis(), Home::new());
    ask(&redis, &["SET", "lock:theirs", "x"]);
    let junit = home.0.path().join("locks.xml");
    let file = junit.to_str().unwrap();
    let only = "a_forged_id";

    let output =
        leasehold(&redis).args(["verify", "--only", only, "--junit", file]).output().unwrap();

    let said = text(&output.stdout);
    assert_eq!(code(&output), 0, "{said}{}", text(&output.stderr));
    assert!(said.contains("ok       release::a_forged_id_releases_nothing"), "{said}");
    assert!(said.contains(" passed, 0 failed, "), "{said}");
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("<testcase classname=\"release\" name=\"a_forged_id_releases_nothing\""));
    let foreign = ask(&redis, &["KEYS", "*"]);
    let foreign = foreign.lines().filter(|line| !line.starts_with(['$', '*']));
    let foreign: Vec<_> = foreign.filter(|line| !line.contains("lock:verify-")).collect();
    assert_eq!(foreign, ["lock:theirs"], "the rest is in a namespace of its own");
}

#[test]
fn histories_of_processes_are_judged() {
    let redis = redis();
    let only = "a_forged_id_releases_nothing";

    let output =
        leasehold(&redis).args(["verify", "--only", only, "--histories", "4s"]).output().unwrap();

    let said = text(&output.stdout);
    assert_eq!(code(&output), 0, "{said}{}", text(&output.stderr));
    assert!(said.contains("violations: none"), "{said}");
}

#[test]
fn suite_tells_of_a_store_that_fails() {
    let redis = redis();
    let mut command = leasehold(&redis);
    ask(&redis, &["ACL", "SETUSER", "default", "-set"]);

    let output = command.args(["verify", "--json", "--only", "a_forged_id"]).output().unwrap();

    assert_eq!(code(&output), 1, "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "", "faults are no news here");
    assert!(text(&output.stdout).contains("\"verdict\":\"failed\""), "{}", text(&output.stdout));
    let none = leasehold(&redis).args(["verify", "--only", "no such case"]).output().unwrap();
    assert_eq!(code(&none), 64);
    fails(leasehold_on("redis://127.0.0.1:1").arg("verify"), 69, "connection refused");
}
