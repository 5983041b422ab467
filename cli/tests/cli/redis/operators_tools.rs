//! The verbs `doctor` and `acl`.

use std::collections::BTreeSet;

use leasehold_testbed::{Etcd, RedisOptions};

use crate::support::Home;

use super::*;

/// The words of a line for `program`, as a shell reads them if the new password is `S3CR3T`.
fn words_for(program: &str, line: &str) -> Vec<String> {
    let words = line.strip_prefix(program).unwrap();
    let script = format!("printf '%s\\n' {words}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("NEW_PASSWORD", "S3CR3T").env("REDIS_HOST", "h");
    text(&shell.output().unwrap().stdout).lines().map(str::to_owned).collect()
}

/// The words of a line from `ACL` on.
fn words(line: &str) -> Vec<String> {
    let words = words_for("redis-cli ", line);
    let options = words.iter().take_while(|word| *word != "ACL").count();
    words[options..].to_vec()
}

/// The lines that `leasehold acl` prints for a shell, without its comments.
fn commands(args: &[&str]) -> Vec<String> {
    acl(args).into_iter().filter(|line| !line.starts_with(['#', '-'])).collect()
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
    let (_, rule) = page.split_once("ACL SETUSER locker ").unwrap();
    let (rule, _) = rule.split_once("```").unwrap();
    let rule = rule.split_whitespace().filter(|word| *word != "on" && !word.starts_with('>'));
    let documented: BTreeSet<&str> = rule.collect();

    let [grant, password] = &commands(&["redis://127.0.0.1"])[..] else { panic!("two lines") };

    assert_eq!(words(grant)[..3], ["ACL", "SETUSER", "locker"]);
    let printed = words(grant);
    assert_eq!(printed[3..].iter().map(String::as_str).collect::<BTreeSet<_>>(), documented);
    assert_eq!(words(password), ["ACL", "SETUSER", "locker", "on", ">S3CR3T"]);
}

#[test]
fn rights_are_enough_for_all_kinds_of_lock() {
    let redis = redis();
    let url = format!("redis://jobs:S3CR3T@{}/2?prefix=my:", redis.address());
    for line in commands(&[&url]) {
        let words = words(&line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(ask(&redis, &words), "+OK", "{words:?}");
    }

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
    fails(leasehold_on(&url).arg("list"), 77, "`leasehold acl --list` prints (server said: NOPERM");
    let line = self::words(&commands(&["--list", &url])[0]);
    assert_eq!(ask(&redis, &line.iter().map(String::as_str).collect::<Vec<_>>()), "+OK");
    let listed = leasehold_on(&url).arg("list").output().unwrap();
    assert!(text(&listed.stdout).starts_with("job: held by "), "{}", text(&listed.stdout));
    let foreign = url.replace("my:", "lock:");
    fails(leasehold_on(&foreign).args(["run", "-n", "job", "true"]), 77, "NOPERM");
}

#[test]
fn url_decides_which_rights_are_needed() {
    let has = |url: &str, right: &str| commands(&[url])[0].contains(right);
    for (url, right) in [
        ("redis://h/3", "+select"),
        ("redis://h?wait-replicas=1", "+wait"),
        ("redis-cluster://h", "cluster|slots"),
        ("redlock+redis://a,b,c", "acl|dryrun"),
    ] {
        assert!(has(url, right), "{url}");
        assert!(!has("redis://h", right), "{url}");
    }
    assert!(acl(&["--user", "app", "postgres://h/db"]).contains(
        &"GRANT SELECT, INSERT, UPDATE, DELETE ON public.leasehold_key TO app;".to_owned()
    ));
    fails(
        Home::new().leasehold().args(["acl", "--backend", "sqlite:x.db"]),
        64,
        "has no user accounts",
    );
}

#[test]
fn commands_name_the_servers_of_the_url() {
    let starts = |url: &str, expected: &[&str]| {
        let printed = commands(&[url]);
        assert_eq!(printed.len(), expected.len(), "{url}: {printed:?}");
        for (line, start) in printed.iter().zip(expected) {
            assert!(line.starts_with(start), "{url}: {line}");
        }
    };
    let one = "redis-cli -h db.example -p 7000 ACL ";
    starts("redis://u:p@db.example:7000/3", &[one, one]);
    let tls = "redis-cli -h ::1 -p 6379 --tls --cacert /ca.pem ACL ";
    starts("rediss://[::1]?ca=/ca.pem", &[tls, tls]);
    let socket = "redis-cli -s /run/my.sock ACL ";
    starts("unix:///run/my.sock", &[socket, socket]);
    let quorum = ["a -p 6379", "b -p 1", "c -p 6379"].map(|it| format!("redis-cli -h {it} ACL "));
    let quorum: Vec<_> = quorum.iter().cycle().take(6).map(String::as_str).collect();
    starts("redlock+redis://a,b:1,c", &quorum);
    let etcd = "etcdctl --endpoints https://a:2379,https://b:7 --cacert /ca.pem ";
    starts("etcds://a,b:7?ca=/ca.pem", &[etcd; 4]);
    starts(
        "zookeeper://u:p@a,b:7/app/locks",
        &[
            "zkCli.sh -server a:2181,b:7 create /app ''",
            "zkCli.sh -server a:2181,b:7 create /app/locks ''",
            ": \"${NEW_PASSWORD:?}\" && zkCli.sh -server a:2181,b:7 setAcl /app/locks digest:u:",
        ],
    );
    starts(
        "zookeeper://u:p@a?auth=sasl",
        &[
            "zkCli.sh -server a:2181 create /lock ''",
            "zkCli.sh -server a:2181 setAcl /lock sasl:u:cdrwa",
        ],
    );
}

#[test]
fn permissions_of_sentinels_are_kept_apart() {
    let url = "redis-sentinel://locker:p@s1,s2:7/main?sentinel-user=watcher";
    let printed = commands(&[url]);

    let server = "redis-cli -h \"${REDIS_HOST:?}\" -p \"${REDIS_PORT:-6379}\" ACL SETUSER locker ";
    let sentinel = |place| format!("redis-cli -h {place} ACL SETUSER watcher ");
    assert!(printed[0].starts_with(server) && printed[1].starts_with(server), "{printed:?}");
    for (line, place) in printed[2..].iter().zip(["s1 -p 26379", "s2 -p 7"].iter().cycle()) {
        assert!(line.starts_with(&sentinel(place)), "{line}");
    }
    let output = Home::new().leasehold().args(["acl", "--json", "--backend", url]).output();
    let told: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let told = told["commands"].as_array().unwrap();
    assert_eq!(told.len(), printed.len());
    for (told, line) in told.iter().zip(&printed) {
        assert_eq!(told["command"], **line);
        assert_eq!(told["on"], if line.contains("watcher") { "sentinels" } else { "servers" });
        assert!(told["comment"].is_string());
    }
}

/// A user may paste all lines, comments included, into an interactive shell, also into one that does not ignore comments.
#[test]
fn pasted_lines_set_no_password_that_others_can_guess() {
    for url in
        ["redis://h", "redis-sentinel://h/m", "redis-cluster://h", "etcd://h", "zookeeper://h"]
    {
        for line in acl(&[url]) {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || " ,.:-_".contains(c);
            match line.strip_prefix("# ") {
                Some(comment) => assert!(comment.chars().all(is_plain), "{comment}"),
                None if line.contains("PASSWORD") => {
                    let script = format!("{line}; echo ran");
                    let mut shell = Command::new("sh");
                    let output = shell.args(["-c", &script]).env_remove("NEW_PASSWORD").output();
                    let output = output.unwrap();
                    assert_eq!(text(&output.stdout), "", "{line}");
                    let said = text(&output.stderr);
                    assert!(said.contains("NEW_PASSWORD") || said.contains("REDIS_HOST"), "{said}");
                }
                None => assert!(!line.contains(" on "), "{line}"),
            }
        }
    }
}

#[test]
fn etcd_lines_make_a_user_that_may_lock() {
    let etcd = block_on(Etcd::start());
    for line in commands(&[&etcd.url()]) {
        let words = words_for("etcdctl ", &line);
        block_on(etcd.ctl(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    for words in ["user add root:root", "user grant-role root root", "auth enable"] {
        block_on(etcd.ctl(&words.split(' ').collect::<Vec<_>>()));
    }

    let url = etcd.url().replace("//", "//locker:S3CR3T@");
    let output = leasehold_on(&url).args(["run", "job", "true"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
}

#[test]
fn lines_for_an_existing_user_keep_its_password() {
    let redis = redis();
    ask(&redis, &["ACL", "SETUSER", "jobs", "on", ">before"]);
    let url = format!("redis://jobs:before@{}", redis.address());

    let words = words(&commands(&[&url])[0]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(ask(&redis, &words), "+OK", "{words:?}");

    let output = leasehold_on(&url).args(["run", "job", "true"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let passwords = ask(&redis, &["ACL", "GETUSER", "jobs"]);
    assert_eq!(passwords.matches("$64").count(), 1, "it has one password: {passwords}");
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
    let (failed, others): (Vec<_>, Vec<_>) = told.partition(|it| it["verdict"] == "failed");
    for check in ["release --ask", "release --force"] {
        let told = others.iter().find(|it| it["check"] == check).unwrap();
        assert_eq!(told["said"], "not checked, because the check of locks failed");
    }
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
