//! Each process of a command receives a signal once, whoever sends it, and to whom.

use std::process::Command;

use super::{Home, Running, children, descendants, helper, send};
use leasehold_testbed::Folder;

use crate::support::{file, is_gone, until};

/// Prints the names of the signals that it receives, and exits with the first SIGUSR2.
const JOB: &str = "
import signal, sys, time
def say(number, frame):
    print(signal.Signals(number).name, flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, say)
signal.signal(signal.SIGUSR2, lambda *_: sys.exit(0))
print('in', flush=True)
while True:
    time.sleep(0.01)
";

/// `leasehold`, and a job that waits for signals.
fn start(command: &mut Command) -> Running {
    let mut running = Running::start(command.args(["python3", "-c", JOB]));
    assert_eq!(running.line(), "in");
    helper(&running, "lease-canary");
    running
}

fn run(home: &Home) -> Command {
    let mut command = home.leasehold();
    command.args(["run", "job", "--"]);
    command
}

/// Expects one SIGTERM and no second one. A second one would come before the next signal, as signals are passed on in their order.
fn receives_one_sigterm(mut running: Running) {
    assert_eq!(running.line(), "SIGTERM");
    running.signal("USR1");
    assert_eq!(running.line(), "SIGUSR1", "it received SIGTERM twice");
    running.signal("USR2");
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn signal_for_leasehold_alone_is_passed_on() {
    let home = Home::new();
    let running = start(&mut run(&home));

    running.signal("TERM");

    receives_one_sigterm(running);
}

#[test]
fn signal_for_each_process_of_a_unit_arrives_once() {
    let home = Home::new();
    let running = start(&mut run(&home));

    // As a service manager does, and `pkill -f`.
    send(&home, "TERM", &descendants(running.id()));

    receives_one_sigterm(running);
}

#[test]
fn signal_for_a_process_group_arrives_once() {
    let home = Home::new();
    let mut session = home.on_path("setsid");
    let running = start(session.args(["leasehold", "run", "job", "--"]));

    // As a shell does for `kill %1`.
    send(&home, "TERM", &[format!("-{}", running.id())]);

    receives_one_sigterm(running);
}

#[test]
fn signal_of_timeout_arrives_once() {
    let home = Home::new();
    let mut timeout = home.on_path("timeout");
    let job = ["600", "leasehold", "run", "job", "--", "python3", "-c", JOB];
    let mut running = Running::start(timeout.args(job));
    assert_eq!(running.line(), "in");
    let leasehold = children(running.id())[0].1.clone();
    let has_canary = || {
        let children = children(leasehold.parse().unwrap());
        children.iter().any(|(name, _)| name == "lease-canary")
    };
    until("the canary is there", has_canary);

    // It passes this on like the signal that it sends when the time is over: to its child, and then to its group.
    running.signal("TERM");

    assert_eq!(running.line(), "SIGTERM");
    send(&home, "USR1", std::slice::from_ref(&leasehold));
    assert_eq!(running.line(), "SIGUSR1", "it received SIGTERM twice");
    send(&home, "USR2", &[leasehold]);
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn signal_for_leasehold_reaches_a_command_under_two_locks_once() {
    let home = Home::new();
    let running = start(run(&home).args(["leasehold", "run", "inner", "--"]));

    running.signal("TERM");

    receives_one_sigterm(running);
}

#[test]
fn signal_for_each_process_reaches_a_command_under_two_locks_once() {
    let home = Home::new();
    let running = start(run(&home).args(["leasehold", "run", "inner", "--"]));
    let is_canary = |pid: &String| {
        children(pid.parse().unwrap()).iter().any(|(name, _)| name == "lease-canary")
    };
    let canaries = || descendants(running.id()).iter().filter(|pid| is_canary(pid)).count();
    until("the inner canary is there", || canaries() == 2);

    send(&home, "TERM", &descendants(running.id()));

    receives_one_sigterm(running);
}

#[test]
fn signal_for_the_guardian_reaches_a_command_that_does_not_catch_it() {
    let home = Home::new();
    let mut running = Running::start(&mut home.run(&[], "echo in; exec sleep 600"));
    assert_eq!(running.line(), "in");

    send(&home, "TERM", &[helper(&running, "lease-guardian")]);

    assert_eq!(running.end().0, Some(128 + 15));
}

#[test]
fn cleanup_after_a_shared_signal_is_left_alone() {
    let (home, folder) = (Home::new(), Folder::in_memory("test-"));
    let go = file(&folder, "go");
    let cleanup = format!("until [ -e {} ]; do sleep 0.01; done; echo clean", go.display());
    let job = JOB.replace(
        "print(signal.Signals(number).name, flush=True)",
        // `sys.exit` would reset the signal handlers shortly before the exit, and a signal at that time would kill the job.
        &format!("subprocess.run(['sh', '-c', '{cleanup}']); os._exit(7)"),
    );
    let job = job.replace("import signal", "import os, subprocess, signal");
    let mut running = Running::start(run(&home).args(["python3", "-c", &job]));
    assert_eq!(running.line(), "in");
    helper(&running, "lease-canary");
    let canary = || children(running.id()).into_iter().find(|(name, _)| name == "lease-canary");
    let first = canary();

    send(&home, "TERM", &descendants(running.id()));
    // Once there is a new canary, it is decided what becomes of the signal.
    until("there is a new canary", || canary().is_some() && canary() != first);
    std::fs::write(&go, "").unwrap();

    assert_eq!(running.line(), "clean");
    assert_eq!(running.end().0, Some(7));
}

#[test]
fn signal_that_is_for_the_command_alone_reaches_no_other_process() {
    let home = Home::new();
    let job = JOB.replace(
        "print('in', flush=True)",
        "print(subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid, flush=True)",
    );
    let job = job.replace("import signal", "import subprocess, signal");
    let mut running = Running::start(run(&home).args(["python3", "-c", &job]));
    let other = running.line();

    running.signal("USR1");

    assert_eq!(running.line(), "SIGUSR1");
    assert!(!is_gone(&other), "SIGUSR1 ends a process that does not expect it");
    running.signal("USR2");
    assert_eq!(running.end().0, Some(0));
    assert!(!is_gone(&other));
    send(&home, "KILL", &[other]);
}
