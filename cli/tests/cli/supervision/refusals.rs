//! Places in which a command is hard to supervise: it is supervised all the same, or it is not started.

use std::fs;

use super::{Home, Running, as_root, helper, send};
use crate::support::{code, fails, file, is_gone, text, until};

/// A job with a child. It says the id of the child, and then waits.
const JOB: &str = "sleep 600 > /dev/null & echo $!; wait; wait";

#[test]
fn parent_that_blocks_sigchld_makes_no_difference() {
    let home = Home::new();
    let block = "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD]); os.execvp(sys.argv[1], sys.argv[1:])";
    let mut python = home.on_path("python3");

    let output =
        python.args(["-c", block, "leasehold", "run", "job", "sh", "-c", "exit 4"]).output();

    assert_eq!(code(&output.unwrap()), 4);
}

#[test]
fn parent_that_ignores_sigchld_makes_no_difference() {
    let home = Home::new();
    let ignore = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])";
    let mut python = home.on_path("python3");

    let output =
        python.args(["-c", ignore, "leasehold", "run", "job", "sh", "-c", "exit 4"]).output();

    assert_eq!(code(&output.unwrap()), 4);
}

#[test]
fn command_is_not_started_where_proc_shows_another_namespace() {
    as_root(
        "supervision::refusals::command_is_not_started_where_proc_shows_another_namespace",
        || {
            let home = Home::new();
            let mut unshare = home.on_path("unshare");
            unshare.args(["--pid", "--fork", "leasehold", "run", "job", "echo", "ran"]);

            fails(&mut unshare, 71, "/proc does not show the processes of this PID namespace");
        },
    );
}

#[test]
fn first_process_of_a_namespace_passes_on_signals_and_ends_its_command() {
    as_root(
        "supervision::refusals::first_process_of_a_namespace_passes_on_signals_and_ends_its_command",
        || {
            let home = Home::new();
            let mut unshare = home.on_path("unshare");
            unshare.args([
                "--pid",
                "--fork",
                "--mount-proc",
                "leasehold",
                "run",
                "job",
                "sh",
                "-c",
            ]);
            let mut running = Running::start(
                unshare.arg("trap 'echo TERM; exit 3' TERM; echo in; while :; do sleep 0.01; done"),
            );
            assert_eq!(running.line(), "in");
            let leasehold = super::children(running.id())[0].1.clone();

            send(&home, "TERM", &[leasehold]);

            assert_eq!(running.line(), "TERM");
            assert_eq!(running.end().0, Some(3));
        },
    );
}

#[test]
fn command_ends_with_its_lock_where_pidfd_open_is_refused() {
    for errno in ["ENOSYS", "EPERM"] {
        let home = Home::new();
        let mut strace = home.on_path("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=pidfd_open,pidfd_send_signal"]);
        strace.args(["-e", &format!("inject=pidfd_open:error={errno}")]);
        let mut running = Running::start(strace.args(["leasehold", "run", "job", "sh", "-c", JOB]));
        let child = running.line();

        home.verb(&["release", "--force"]);

        assert_eq!(running.end().0, Some(76), "{errno}");
        assert!(is_gone(&child), "{errno}: it goes on without the lock");
    }
}

/// Leaves no free descriptor to a process.
fn take_descriptors(home: &Home, pid: &str) {
    let is_open = |number: &u32| fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok();
    let lowest = (0..).find(|number| !is_open(number)).unwrap();
    let mut prlimit = home.on_path("prlimit");
    prlimit.args(["--pid", pid, &format!("--nofile={lowest}:{lowest}")]);
    assert!(prlimit.status().unwrap().success());
}

#[test]
fn command_ends_with_its_lock_when_no_descriptor_is_left() {
    let home = Home::new();
    let mut running = Running::start(&mut home.run(&[], JOB));
    let child = running.line();
    take_descriptors(&home, &running.id().to_string());
    take_descriptors(&home, &helper(&running, "lease-guardian"));

    home.verb(&["release", "--force"]);

    assert_eq!(running.end().0, Some(76));
    assert!(is_gone(&child), "it goes on without the lock");
}

#[test]
fn command_ends_with_its_guardian_when_no_descriptor_is_left() {
    let home = Home::new();
    let mut running = Running::start(&mut home.run(&[], JOB));
    let child = running.line();
    take_descriptors(&home, &running.id().to_string());

    send(&home, "KILL", &[helper(&running, "lease-guardian")]);

    let (code, complaint) = running.end();
    assert_eq!(code, Some(71), "{complaint}");
    assert!(complaint.contains("the command's guardian process was killed"), "{complaint}");
    assert!(is_gone(&child), "it goes on without the lock");
    assert_eq!(home.verb(&["status"]).status.code(), Some(1), "the lock is free");
}

#[test]
fn command_is_not_started_without_descriptors_for_its_supervision() {
    let home = Home::new();
    home.verb(&["status"]);
    let mut shell = home.on_path("sh");
    // Enough for the store, and too few for the rest.
    let limited = "for n in 12 13 14 15 16 17 18 19 20 21 22 23 24; do (ulimit -n $n; leasehold run job echo ran); done";

    let output = shell.args(["-c", limited]).output().unwrap();

    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    let supervised = text(&output.stdout).lines().filter(|line| *line == "ran").count();
    assert_eq!(
        supervised + said.lines().filter(|line| line.starts_with("leasehold: ")).count(),
        13,
        "{said}"
    );
}

#[test]
fn process_that_leasehold_has_adopted_is_left_alone() {
    let home = Home::new();
    let started = file(&home.0, "started");
    let worker = file(&home.0, "worker");
    let script = format!(
        "sh -c 'sleep 600 > /dev/null 2>&1 & echo $! > {1}; until [ -e {0} ]; do sleep 0.01; done' & \
         until [ -s {1} ]; do sleep 0.01; done; exec leasehold run job -- sh -c 'touch {0}; echo in; exec sleep 600'",
        started.display(),
        worker.display()
    );
    let mut running = Running::start(home.on_path("sh").args(["-c", &script]));
    assert_eq!(running.line(), "in");
    let worker = fs::read_to_string(worker).unwrap().trim().to_owned();
    let is_adopted = || super::children(running.id()).iter().any(|(_, pid)| *pid == worker);
    until("leasehold adopts it", is_adopted);

    home.verb(&["release", "--force"]);

    assert_eq!(running.end().0, Some(76));
    assert!(!is_gone(&worker), "it has nothing to do with the lock");
    send(&home, "KILL", &[worker]);
}

#[test]
fn descriptors_and_addressed_variables_reach_the_command() {
    let home = Home::new();
    let mut shell = home.on_path("sh");
    let script = "export LISTEN_FDS=1 LISTEN_PID=$$ WATCHDOG_PID=$$ NOTIFY_SOCKET=/run/notify; echo passed > \"$HOME/passed\"; exec 3< \"$HOME/passed\"; \
                  exec leasehold run outer -- leasehold run job -- sh -c 'echo $LISTEN_PID $WATCHDOG_PID $$ $LISTEN_FDS $NOTIFY_SOCKET; cat <&3'";

    let output = shell.args(["-c", script]).output().unwrap();

    let said = text(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let &[listen, watchdog, own, "1", "/run/notify", "passed"] = &words[..] else {
        panic!("{said}")
    };
    assert_eq!((listen, watchdog), (own, own));
}

#[test]
fn loader_may_run_leasehold() {
    let home = Home::new();
    let loader = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let loader = loader.into_iter().find(|path| fs::exists(path).unwrap()).unwrap();
    let mut command = home.on_path(loader);
    command.args([env!("CARGO_BIN_EXE_leasehold"), "run", "job", "echo", "ran"]);

    let output = command.output().unwrap();

    assert_eq!(text(&output.stdout), "ran\n", "{}", text(&output.stderr));
}

#[test]
fn script_without_an_interpreter_runs_in_a_shell() {
    let home = Home::new();
    let script = file(&home.0, "script");
    fs::write(&script, "echo ran\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();

    for on_lost in ["term", "ignore"] {
        let mut run = home.leasehold();
        let output = run.args(["run", "--on-lost", on_lost, "job"]).arg(&script).output().unwrap();
        assert_eq!(text(&output.stdout), "ran\n", "{}", text(&output.stderr));
    }
}

#[test]
fn variables_of_an_outer_lock_are_not_those_of_an_inner_one() {
    let home = Home::new();
    let mut run = home.leasehold();
    run.args(["run", "--also", "b", "a", "--", "leasehold", "run", "c", "--", "env"]);

    let said = text(&run.output().unwrap().stdout);

    let keys: Vec<&str> = said.lines().filter(|line| line.starts_with("LEASEHOLD_KEY")).collect();
    assert_eq!(keys, ["LEASEHOLD_KEY=c"]);
    assert_eq!(said.matches("LEASEHOLD_TOKEN").count(), 1, "{said}");
}

#[test]
fn first_process_of_a_namespace_ends_by_a_signal() {
    as_root("supervision::refusals::first_process_of_a_namespace_ends_by_a_signal", || {
        for signal in ["TERM", "INT", "HUP"] {
            let home = Home::new();
            let mut unshare = home.on_path("unshare");
            unshare.args(["--pid", "--fork", "--mount-proc", "leasehold", "watch", "job"]);
            let mut running = Running::start(&mut unshare);
            assert!(running.line().ends_with("free"));
            let leasehold = super::children(running.id())[0].1.clone();

            send(&home, signal, std::slice::from_ref(&leasehold));

            until("it ends", || is_gone(&leasehold));
        }
    });
}
