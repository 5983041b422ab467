//! The kinds of lock.

use super::*;

/// Starts `count` commands that say `in` once they run, and go on until they are killed.
fn start_many(redis: &Redis, options: &[&str], count: usize) -> Vec<Running> {
    let start = |_| Running::start(&mut run(redis, options, "echo in; exec sleep 60"));
    (0..count).map(start).collect()
}

#[test]
fn as_many_run_at_once_as_there_are_permits() {
    let redis = redis();
    let mut held = start_many(&redis, &["--permits", "3"], 3);
    for command in &mut held {
        assert_eq!(command.line(), "in");
    }

    let fourth = ["--permits", "3", "--no-wait"];
    assert_eq!(code(&run(&redis, &fourth, "echo in").output().unwrap()), 75);
    let status = leasehold(&redis).args(["status", "--json", "job"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!((&status["units"], status["holders"].as_array().unwrap().len()), (&3.into(), 3));

    let mut waiting = start_many(&redis, &["--permits", "3"], 1).remove(0);
    held.remove(0).signal("TERM");
    assert_eq!(waiting.line(), "in");
    let fourth = run(&redis, &fourth, "echo in").output().unwrap();
    assert_eq!(code(&fourth), 75, "still three");
}

#[test]
fn readers_run_together_and_writers_alone() {
    let redis = redis();
    let mut readers = start_many(&redis, &["--read"], 2);
    for reader in &mut readers {
        assert_eq!(reader.line(), "in");
    }
    let write = ["--write", "--no-wait"];
    assert_eq!(code(&run(&redis, &write, "true").output().unwrap()), 75);
    for reader in readers {
        reader.signal("TERM");
        reader.end();
    }

    let mut writer = start_many(&redis, &["--write"], 1).remove(0);
    assert_eq!(writer.line(), "in");
    for option in ["--read", "--write"] {
        let other = run(&redis, &[option, "--wait", "4s"], "true").output().unwrap();
        assert_eq!(code(&other), 75, "{option}");
    }
    let other_kind = run(&redis, &["--no-wait"], "true").output().unwrap();
    assert_eq!(code(&other_kind), 65, "{}", text(&other_kind.stderr));
}

#[test]
fn fair_commands_run_in_the_order_of_their_coming() {
    let redis = redis();
    let mut first = start_many(&redis, &["--fair"], 1).remove(0);
    assert_eq!(first.line(), "in");
    let mut waiting = Vec::new();
    for number in 1..=3 {
        waiting.push(start_many(&redis, &["--fair"], 1).remove(0));
        let queue = || {
            let names = ask(&redis, &["KEYS", "lock:~queue:*"]);
            let name = names.lines().find(|name| name.starts_with("lock:")).map(str::to_owned);
            name.map(|name| ask(&redis, &["ZCARD", &name]))
        };
        until("it waits", || queue() == Some(format!(":{number}")));
    }

    let mut running = first;
    for mut next in waiting {
        running.signal("TERM");
        assert_eq!(next.line(), "in");
        running = next;
    }
}

#[test]
fn kinds_that_exclude_each_other_are_bad_usage() {
    let redis = redis();
    for options in [
        &["--read", "--write"][..],
        &["--permits", "3", "--read"],
        &["--permits", "0"],
        &["--permits", "-1"],
    ] {
        let output = run(&redis, options, "true").output().unwrap();
        assert_eq!(code(&output), 64, "{options:?}: {}", text(&output.stderr));
    }
}
