//! The command on a terminal.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use super::*;

/// `leasehold run` on a terminal of its own.
///
/// `exec`, because a shell that stays in between would take the terminal's keys too.
fn start(redis: &Redis, script: &str) -> Child {
    let line = format!("exec {} run job -- sh -c '{script}'", env!("CARGO_BIN_EXE_leasehold"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("LEASEHOLD_BACKEND", redis.url());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn waiting_shows_the_holder_of_the_lock() {
    let redis = redis();
    let mut holder = Running::start(&mut run(&redis, &[], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");
    let mut waiting = start(&redis, "echo in");
    let mut screen = waiting.stdout.take().unwrap();
    let mut shown = String::new();

    let pid = format!("/{} (lease ", holder.id());
    while !(shown.contains("locked by") && shown.contains(&pid)) {
        let mut more = [0; 256];
        let len = screen.read(&mut more).unwrap();
        assert!(len > 0, "it ended: {shown}");
        shown += &text(&more[..len]);
    }

    drop(waiting.kill());
    drop(waiting.wait());
}

#[test]
fn its_keys_reach_the_command_once() {
    let redis = redis();
    let trap = "trap \"echo interrupted; exit 5\" INT; echo in; while true; do sleep 0.01; done";
    let mut child = start(&redis, trap);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap().trim_end(), "in");

    child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();

    let said: Vec<String> = lines.map(|line| line.unwrap().trim_end().to_owned()).collect();
    let interrupted = said.iter().filter(|line| line.ends_with("interrupted")).count();
    assert_eq!(interrupted, 1, "{said:?}");
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(ask(&redis, &["EXISTS", "lock:job"]), ":0");
}
