//! Output without a reader, on a full disk, and unwanted output.

use std::fs::File;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Home, Running, code, text};

/// A pipe whose reader has gone.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn holder(home: &Home) -> Running {
    let mut holder = Running::start(&mut home.run(&[], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");
    holder
}

/// Runs a command whose results go to `out`.
fn code_with(command: &mut Command, out: Stdio) -> (i32, String) {
    let output = command.stdout(out).stderr(Stdio::piped()).output().unwrap();
    (code(&output), text(&output.stderr))
}

#[test]
fn reader_that_has_gone_does_not_change_the_answer() {
    let home = Home::new();
    let status = |options: &[&str]| {
        code_with(home.leasehold().arg("status").args(options).arg("job"), closed_pipe())
    };
    assert_eq!(status(&[]), (1, String::new()), "it is free");

    let holder = holder(&home);
    assert_eq!(status(&[]), (0, String::new()), "it is held");
    assert_eq!(status(&["--json"]), (0, String::new()));
    let mut release = home.leasehold();
    assert_eq!(code_with(release.args(["release", "--force", "job"]), closed_pipe()).0, 0);
    assert_eq!(holder.end().0, Some(76));
    assert_eq!(code_with(home.leasehold().arg("--help"), closed_pipe()), (0, String::new()));
}

#[test]
fn disk_that_is_full_is_a_failure_of_its_own() {
    let home = Home::new();
    for command in [&["status", "job"][..], &["status", "--json", "job"], &["--help"]] {
        let (code, said) = code_with(home.leasehold().args(command), full_disk());
        assert_eq!(code, 74, "{said}");
        assert!(said.contains("cannot write the result"), "{said}");
    }
}

#[test]
fn complaint_that_cannot_be_written_changes_nothing() {
    let home = Home::new();
    let _holder = holder(&home);
    for stderr in [closed_pipe, full_disk] {
        let mut refused = home.run(&["--no-wait"], "true");
        assert_eq!(refused.stderr(stderr()).status().unwrap().code(), Some(75));
        let mut refused = home.leasehold();
        assert_eq!(refused.args(["run", ""]).stderr(stderr()).status().unwrap().code(), Some(64));
    }
}

#[test]
fn busy_lock_is_told_by_its_holder_in_json_or_not_at_all() {
    let home = Home::new();
    let holder = holder(&home);
    let refusal = |option: &str| {
        let output = home.run(&["--no-wait", option], "true").output().unwrap();
        assert_eq!(code(&output), 75);
        text(&output.stderr)
    };

    assert_eq!(refusal("--quiet"), "");
    let told: Value = serde_json::from_str(&refusal("--json")).unwrap();
    assert_eq!((&told["exit_code"], &told["key"]), (&75.into(), &"job".into()));
    let description = told["holders"][0]["description"].as_str().unwrap();
    assert!(description.ends_with(&format!("/{}", holder.id())), "{told}");
}

#[test]
fn log_is_shown_where_it_is_wanted() {
    let home = Home::new();
    let log = |options: &[&str], filter: &str| {
        let mut holder = home.run(options, "echo in; sleep 60");
        let mut holder = Running::start(holder.env("RUST_LOG", filter));
        assert_eq!(holder.line(), "in");
        let forced = home.verb(&["release", "--force"]);
        assert_eq!(text(&forced.stderr), "", "its result says it all");
        let (code, said) = holder.end();
        assert_eq!(code, Some(76));
        assert!(said.contains("leasehold: lock \"job\" was lost"), "{said}");
        said
    };

    for (options, filter) in [(&["-v"][..], "off"), (&[], "leasehold=warn")] {
        let said = log(options, filter);
        assert!(said.contains("WARN") && said.contains("lease lost"), "{said}");
    }
    for (options, filter) in [(&["--quiet"][..], "trace"), (&[], "off"), (&[], "")] {
        let said = log(options, filter);
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let nonsense = home.run(&[], "true").env("RUST_LOG", "a=b").output().unwrap();
    assert_eq!(code(&nonsense), 64, "{}", text(&nonsense.stderr));
}

#[test]
fn help_shows_stores_parameters_variables_and_examples() {
    let home = Home::new();
    let help = |args: &[&str]| text(&home.leasehold().args(args).output().unwrap().stdout);

    let all = help(&["--help"]);
    for part in [
        "redis://",
        "etcd://",
        "zookeeper://",
        "postgres://",
        "sqlite:",
        "prefix=",
        "timeout-ms=",
        "wait-replicas=",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    for part in ["LEASEHOLD_BACKEND", "RUST_LOG", "Examples:", "77"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let run = help(&["run", "--help"]);
    for part in ["Examples:", "500ms", "LEASEHOLD_TOKEN", "<KEY> <COMMAND>"] {
        assert!(run.contains(part), "{part}: {run}");
    }
    assert!(!run.contains("--backend <URL> "), "the variable stands for it: {run}");
}

#[test]
fn commands_of_the_readme_are_understood() {
    let readme = include_str!("../../../README.md");
    let (_, shell) = readme.split_once("## On the command line").unwrap();
    let cron = readme.lines().find(|line| line.starts_with("leasehold run")).unwrap();
    let commands = shell.lines().filter(|line| line.starts_with("leasehold "));
    let commands: Vec<&str> = [cron].into_iter().chain(commands).collect();
    assert!(commands.len() > 10, "{commands:?}");

    for command in commands {
        let mut shell = Home::new().on_path("sh");
        let output = shell.args(["-c", command]).env("LEASEHOLD_BACKEND", "").output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains("the backend URL is empty"), "{command}: {said}");
    }
}
