//! Options from the command line, the environment and the configuration file, together.

use std::fs;

use crate::support::{Home, Running, code, fails, leasehold_on, text};

fn write_config(home: &Home, text: &str) {
    let folder = home.0.path().join(".config/leasehold");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config"), text).unwrap();
}

#[test]
fn no_wait_overrides_a_variable_and_the_configuration_file() {
    let home = Home::new();
    let mut holder = Running::start(home.leasehold().args(["hold", "busy"]));
    holder.line();

    for origin in ["LEASEHOLD_WAIT", "file"] {
        let mut settings = Vec::new();
        match origin {
            "file" => write_config(&home, "wait = 5m"),
            variable => settings.push((variable, "5m")),
        }
        for subcommand in ["run", "elect", "hold"] {
            let command: &[&str] = if subcommand == "hold" { &[] } else { &["true"] };
            let mut leasehold = home.leasehold();
            leasehold.args([subcommand, "--no-wait", "busy"]).args(command);
            let output = leasehold.envs(settings.clone()).output().unwrap();
            let said = text(&output.stderr);
            // An election needs a key of its own.
            let expected = if subcommand == "elect" { 65 } else { 75 };
            assert_eq!(code(&output), expected, "{subcommand}, {origin}: {said}");
            assert!(!said.contains("--wait"), "{subcommand}, {origin}: {said}");
        }
    }
    let both = ["run", "--no-wait", "--wait", "1s", "busy", "true"];
    fails(home.leasehold().args(both), 64, "--wait and --no-wait cannot be used together");
}

#[test]
fn refused_value_names_its_origin() {
    let home = Home::new();
    let refused = "invalid value 'banana' for '--ttl <TIME>'";

    let from_variable = format!("{refused} (from LEASEHOLD_TTL): not a time");
    fails(home.run(&[], "true").env("LEASEHOLD_TTL", "banana"), 64, &from_variable);
    fails(&mut home.run(&["--ttl", "banana"], "true"), 64, &format!("{refused}: not a time"));
    write_config(&home, "ttl = banana\n");
    let file = home.0.path().join(".config/leasehold/config");
    let from_file = format!("{refused} (from {}): not a time", file.display());
    fails(&mut home.run(&[], "true"), 78, &from_file);
    assert_eq!(code(&home.run(&["--ttl", "5s"], "true").output().unwrap()), 0);
}

#[test]
fn empty_variable_is_like_a_missing_one() {
    let home = Home::new();
    for variable in ["CONFIG", "DESCRIPTION", "PREFIX", "TTL", "VALUE", "WAIT"] {
        let mut elect = home.leasehold();
        elect.args(["elect", "job", "true"]).env(format!("LEASEHOLD_{variable}"), "");
        let output = elect.output().unwrap();
        assert_eq!(code(&output), 0, "{variable}: {}", text(&output.stderr));
    }
    write_config(&home, "ttl =\nwait = \"\"\n");
    assert_eq!(code(&home.run(&[], "true").output().unwrap()), 0);

    let mut run = home.run(&[], "true");
    fails(run.env("LEASEHOLD_BACKEND", ""), 64, "the backend URL is empty");
}

#[test]
fn options_for_locks_in_the_file_do_not_apply_to_other_subcommands() {
    let home = Home::new();
    write_config(&home, "wait = 10ms\n");
    let mut holder = Running::start(home.leasehold().args(["hold", "job"]));
    holder.line();
    let mut watch = Running::start(home.leasehold().args(["watch", "--until-free", "job"]));
    assert!(watch.line().contains("held by"));

    holder.signal("TERM");

    assert!(watch.line().ends_with("job: free"), "it waits as long as the lock is held");
    assert_eq!(watch.end().0, Some(0));
}

#[test]
fn more_specific_prefix_wins() {
    let home = Home::new();
    let file = home.locks();
    home.verb(&["status"]);
    let url = |prefix: &str| format!("sqlite:{}?prefix={prefix}", file.display());
    let mut holder = leasehold_on(&url("own_"));
    let mut holder = Running::start(holder.args(["hold", "job"]));
    holder.line();
    let status = |variables: &[(&str, &str)], options: &[&str]| {
        let mut status = home.leasehold();
        status.args(["status"]).args(options).arg("job").envs(variables.iter().copied());
        status.output().unwrap().status.code()
    };
    let (own, other) = (url("own_"), url("other_"));

    assert_eq!(status(&[("LEASEHOLD_PREFIX", "other_")], &["--backend", &own]), Some(0));
    assert_eq!(status(&[("LEASEHOLD_BACKEND", &other)], &["--prefix", "own_"]), Some(0));
    write_config(&home, "prefix = other_\n");
    assert_eq!(status(&[("LEASEHOLD_BACKEND", &own)], &[]), Some(0));
    assert_eq!(
        status(&[("LEASEHOLD_PREFIX", "own_"), ("LEASEHOLD_BACKEND", &other)], &[]),
        Some(64)
    );
}

#[test]
fn local_lock_is_announced_unless_it_was_asked_for() {
    let home = Home::new();
    for subcommand in ["run", "elect"] {
        let run = |options: &[&str]| {
            let mut run = home.leasehold();
            run.arg(subcommand).args(options).args(["job", "echo", "ran"]);
            run.env_remove("LEASEHOLD_BACKEND");
            run
        };

        let output = run(&[]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "ran\n"), "{said}");
        assert!(said.contains("local to this user and this machine"), "{said}");
        for silent in [&["--quiet"][..], &["--backend", "local"]] {
            assert_eq!(text(&run(silent).output().unwrap().stderr), "", "{silent:?}");
        }
        fails(&mut run(&["--shared"]), 64, "--shared requires a store that machines can share");
        fails(&mut run(&["--shared", "--backend", "local"]), 64, "--backend");
    }
}

#[test]
fn misspelled_variable_is_named() {
    let home = Home::new();

    let mut run = home.run(&[], "true");
    let output = run.env("LEASEHOLD_BACKENDS", "redis://:S3CR3T@h").output().unwrap();

    let said = text(&output.stderr);
    assert!(
        said.contains("LEASEHOLD_BACKENDS has no effect; did you mean LEASEHOLD_BACKEND?"),
        "{said}"
    );
    assert!(!said.contains("S3CR3T"), "{said}");
}
