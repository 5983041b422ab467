//! The command on a real etcd, beside etcd's own.

use std::process::Command;

use leasehold_testbed::{Etcd, EtcdOptions, Folder, free_port};

use crate::operator;
use crate::support::{Running, block_on, code, fails, file, leasehold_on, run_on, text, until};

fn etcd() -> Etcd {
    block_on(Etcd::start())
}

fn leasehold(etcd: &Etcd) -> Command {
    leasehold_on(&etcd.url())
}

/// `leasehold run`, with the shell script `script` as its command.
fn run(etcd: &Etcd, options: &[&str], script: &str) -> Command {
    run_on(&etcd.url(), options, script)
}

/// `etcdctl lock` on the same lock.
fn etcdctl_lock(etcd: &Etcd, script: &str) -> Command {
    etcd.ctl_command(&["lock", "lock/job", "--", "sh", "-c", script]).into_std()
}

/// All keys that there are, in order.
fn keys(etcd: &Etcd) -> Vec<String> {
    let keys = block_on(etcd.ctl(&["get", "--prefix", "--keys-only", ""]));
    keys.split_whitespace().map(str::to_owned).collect()
}

/// The entries of the lock `job`. A command that ends before a reply arrives also leaves a mark, at
/// a different key.
fn places(etcd: &Etcd) -> Vec<String> {
    keys(etcd).into_iter().filter(|key| key.starts_with("lock/job/")).collect()
}

mod run_verb {
    use super::*;

    #[test]
    fn the_command_runs_under_the_lock_is_told_its_token_and_leaves_nothing() {
        let etcd = etcd();

        let token = |exit: i32| {
            let script = format!("echo $LEASEHOLD_TOKEN; exit {exit}");
            let output = run(&etcd, &[], &script).output().unwrap();
            assert_eq!((code(&output), text(&output.stderr).as_str()), (exit, ""));
            text(&output.stdout).trim().parse::<u64>().unwrap()
        };

        let (first, second) = (token(7), token(0));
        assert!(first < second, "{first} {second}");
        assert_eq!(keys(&etcd), Vec::<String>::new());
    }

    #[test]
    fn commands_of_many_shells_never_overlap() {
        let (etcd, folder) = (etcd(), Folder::in_memory("test-"));
        let log = file(&folder, "log");
        let script = format!("echo in >> {0}; sleep 0.02; echo out >> {0}", log.display());
        let mut shells: Vec<_> =
            (0..8).map(|_| Running::start(&mut run(&etcd, &[], &script))).collect();

        for shell in shells.drain(..) {
            assert_eq!(shell.end(), (Some(0), String::new()));
        }

        assert_eq!(std::fs::read_to_string(log).unwrap(), "in\nout\n".repeat(8));
    }

    #[test]
    fn as_many_run_at_once_as_there_are_permits() {
        let etcd = etcd();
        let options = ["--permits", "2"];
        let start = || Running::start(&mut run(&etcd, &options, "echo in; exec sleep 60"));
        let mut held = [start(), start()];
        for command in &mut held {
            assert_eq!(command.line(), "in");
        }

        let no_wait = ["--permits", "2", "--no-wait"];
        assert_eq!(code(&run(&etcd, &no_wait, "true").output().unwrap()), 75);
        let other_kind = run(&etcd, &["--no-wait"], "true").output().unwrap();
        assert_eq!(code(&other_kind), 65, "{}", text(&other_kind.stderr));

        let mut waiting = start();
        held[0].signal("TERM");
        assert_eq!(waiting.line(), "in");
    }

    #[test]
    fn a_server_that_hangs_longer_than_the_ttl_stops_the_command() {
        let etcd = etcd();
        let options = ["--ttl", "4s", "--kill-after", "1s"];
        let mut running = Running::start(&mut run(&etcd, &options, "echo in; exec sleep 60"));
        assert_eq!(running.line(), "in");

        etcd.pause();
        let (exit, complaint) = running.end();
        etcd.resume();

        assert_eq!(exit, Some(76), "{complaint}");
        assert!(complaint.contains("The command was stopped"), "{complaint}");
    }

    #[test]
    fn a_signal_ends_the_waiting_and_its_place_in_line() {
        let etcd = etcd();
        let mut holder = Running::start(&mut run(&etcd, &[], "echo in; exec sleep 60"));
        assert_eq!(holder.line(), "in");
        let held = places(&etcd);
        let waiting = Running::start(&mut run(&etcd, &[], "echo in"));
        until("it waits", || places(&etcd).len() == 2);

        waiting.signal("TERM");

        assert_eq!(waiting.end().0, Some(128 + 15));
        assert_eq!(places(&etcd), held);
    }

    #[test]
    fn a_command_that_has_waited_long_enough_leaves_the_line() {
        let etcd = etcd();
        let mut holder = Running::start(&mut run(&etcd, &[], "echo in; exec sleep 60"));
        assert_eq!(holder.line(), "in");
        let held = places(&etcd);

        for options in [&["--wait", "4s"][..], &["--fair", "--wait", "4s"]] {
            let output = run(&etcd, options, "echo in").output().unwrap();

            assert_eq!(code(&output), 75, "{}", text(&output.stderr));
            assert_eq!(places(&etcd), held);
        }
    }
}

mod beside_etcdctl {
    use super::*;

    #[test]
    fn commands_of_both_never_overlap() {
        let (etcd, folder) = (etcd(), Folder::in_memory("test-"));
        let log = file(&folder, "log");
        let script = format!("echo in >> {0}; sleep 0.05; echo out >> {0}", log.display());

        let start = |number| match number % 2 {
            0 => Running::start(&mut run(&etcd, &[], &script)),
            _ => Running::start(&mut etcdctl_lock(&etcd, &script)),
        };
        let shells: Vec<_> = (0..8).map(start).collect();
        for shell in shells {
            assert_eq!(shell.end().0, Some(0));
        }

        assert_eq!(std::fs::read_to_string(log).unwrap(), "in\nout\n".repeat(8));
    }

    #[test]
    fn both_stand_in_one_line_in_the_order_of_their_coming() {
        let (etcd, folder) = (etcd(), Folder::in_memory("test-"));
        let (gate, log) = (file(&folder, "gate"), file(&folder, "log"));
        let until_open = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
        let mut shells = vec![Running::start(&mut etcdctl_lock(&etcd, &until_open))];
        until("it is held", || keys(&etcd).len() == 1);
        for number in 1..=4 {
            let script = format!("echo {number} >> {0}; sleep 0.05; echo . >> {0}", log.display());
            shells.push(match number % 2 {
                0 => Running::start(&mut etcdctl_lock(&etcd, &script)),
                _ => Running::start(&mut run(&etcd, &[], &script)),
            });
            until("it waits", || keys(&etcd).len() == 1 + number);
        }

        std::fs::write(gate, "").unwrap();
        for shell in shells {
            assert_eq!(shell.end().0, Some(0));
        }

        assert_eq!(std::fs::read_to_string(log).unwrap(), "1\n.\n2\n.\n3\n.\n4\n.\n");
    }

    #[test]
    fn a_command_that_does_not_want_to_wait_is_told_at_once() {
        let etcd = etcd();
        let mut theirs = Running::start(&mut etcdctl_lock(&etcd, "echo in; exec sleep 60"));
        assert_eq!(theirs.line(), "in");

        let refused = run(&etcd, &["--no-wait"], "echo in").output().unwrap();

        assert_eq!(code(&refused), 75);
        assert!(text(&refused.stderr).contains("is locked by"), "{}", text(&refused.stderr));
    }
}

mod status_and_release {
    use super::*;

    #[test]
    fn status_names_the_holder_and_the_time_left() {
        let etcd = etcd();
        let status = |args: &[&str]| leasehold(&etcd).arg("status").args(args).output().unwrap();
        let free = status(&["job"]);
        assert_eq!(code(&free), 1);
        assert!(text(&free.stdout).starts_with("job: free\n"), "{}", text(&free.stdout));

        let mut holder = Running::start(&mut run(&etcd, &[], "echo $LEASEHOLD_TOKEN; sleep 60"));
        let token = holder.line();
        let held = status(&["job"]);
        assert_eq!(code(&held), 0);
        let said = text(&held.stdout);
        assert!(said.contains(&format!("/{} (lease ", holder.id())), "{said}");
        assert!(said.contains("expires in 29.") || said.contains("expires in 30.0s"), "{said}");
        assert!(said.contains(&token), "{said}");

        let json: serde_json::Value =
            serde_json::from_slice(&status(&["--json", "job"]).stdout).unwrap();
        assert_eq!((&json["held"], &json["key"]), (&true.into(), &"job".into()));
        // The grant has spare tokens, too.
        assert_eq!(json["holders"][0]["token"].to_string(), token);
        assert!(json["last_token"].as_u64() >= token.parse().ok(), "{json}");
        assert!(json["holders"][0]["remaining_ms"].as_u64().unwrap() > 20_000);
        // The name of the entry is made of the lease's id, which is secret.
        let name = keys(&etcd)[0].strip_prefix("lock/job/").unwrap().to_owned();
        assert!(!said.contains(&name) && !json.to_string().contains(&name));
    }

    #[test]
    fn a_lock_of_etcdctl_is_shown_and_may_be_taken_away() {
        let etcd = etcd();
        let mut theirs = Running::start(&mut etcdctl_lock(&etcd, "echo in; exec sleep 60"));
        assert_eq!(theirs.line(), "in");

        let status = leasehold(&etcd).args(["status", "job"]).output().unwrap();
        assert_eq!(code(&status), 0);
        assert!(text(&status.stdout).contains("held by"), "{}", text(&status.stdout));

        let forced = leasehold(&etcd).args(["release", "--force", "job"]).output().unwrap();
        assert_eq!(code(&forced), 0, "{}", text(&forced.stderr));
        assert_eq!(keys(&etcd), Vec::<String>::new());
        let next = run(&etcd, &["--no-wait"], "true").output().unwrap();
        assert_eq!(code(&next), 0, "{}", text(&next.stderr));
    }

    #[test]
    fn a_forced_release_frees_the_lock_and_stops_the_holder() {
        operator::forces_a_release(&etcd().url());
    }

    #[test]
    fn a_holder_that_is_asked_ends_if_it_wants_to() {
        operator::asks_for_the_lock(&etcd().url());
    }
}

mod getting_in {
    use super::*;

    #[test]
    fn urls_that_make_no_sense_are_said_so() {
        for url in ["etcd://u:S3CR3T@", "etcd://u:S3CR3T@h/path", "etcd://u:S3CR3T@h/?x=1"] {
            fails(leasehold_on(url).args(["status", "job"]), 64, "URL");
        }
    }

    #[test]
    fn servers_that_do_not_serve_us_are_said_so() {
        let unserved = format!("etcd://u:S3CR3T@127.0.0.1:{}", free_port());
        for verb in [&["status", "job"][..], &["release", "--force", "job"]] {
            fails(leasehold_on(&unserved).args(verb), 69, "connection refused");
        }
        fails(&mut run_on(&unserved, &["--no-wait"], "true"), 69, "connection refused");
    }

    #[test]
    fn users_need_their_password_and_rights_for_the_prefix() {
        let etcd = block_on(EtcdOptions::new().user("locker", "S3CR3T", "lock/").start());
        let url = |user: &str, rest: &str| etcd.url().replace("//", &format!("//{user}@")) + rest;

        let locker = url("locker:S3CR3T", "");
        assert_eq!(code(&run_on(&locker, &[], "true").output().unwrap()), 0);
        let options = ["--on-asked", "ignore"];
        let mut holder = Running::start(&mut run_on(&locker, &options, "echo in; exec sleep 60"));
        assert_eq!(holder.line(), "in");
        for verb in [&["status"][..], &["release", "--ask"], &["release", "--force"]] {
            let output = leasehold_on(&locker).args(verb).arg("job").output().unwrap();
            assert_eq!(code(&output), 0, "{verb:?}: {}", text(&output.stderr));
        }
        assert_eq!(holder.end().0, Some(76));

        fails(&mut run(&etcd, &[], "true"), 77, "user");
        fails(&mut run_on(&url("locker:wrong", ""), &[], "true"), 77, "password");
        fails(&mut run_on(&url("locker:S3CR3T", "?prefix=app/"), &[], "true"), 77, "prefix");
    }

    #[test]
    fn tls_needs_the_right_certificate() {
        let etcd = block_on(EtcdOptions::new().tls().start());
        let ours = format!("{}?ca={}", etcd.tls_url(), etcd.certificates().authority().display());

        assert_eq!(code(&run_on(&ours, &[], "true").output().unwrap()), 0);
        fails(&mut run_on(&etcd.tls_url(), &[], "true"), 77, "TLS");
    }
}
