//! The command, as its users run it, on a real server.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_conformance::stalls::Stalls;
use leasehold_testbed::{Redis, free_port};
use tempfile::TempDir;

use support::{
    PROMPT, Running, block_on, code, fails, file, leasehold_on, measured, run_on, text, until,
};

fn leasehold(redis: &Redis) -> Command {
    leasehold_on(&redis.url())
}

/// `leasehold run`, with the shell script `script` as its command.
fn run(redis: &Redis, options: &[&str], script: &str) -> Command {
    run_on(&redis.url(), options, script)
}

fn redis() -> Redis {
    block_on(Redis::start())
}

fn ask(redis: &Redis, command: &[&str]) -> String {
    block_on(redis.command(command))
}

mod run_verb {
    use super::*;

    #[test]
    fn the_command_runs_under_the_lock_and_is_told_its_token() {
        let redis = redis();

        let output = run(&redis, &[], "echo $LEASEHOLD_KEY $LEASEHOLD_TOKEN; exit 7").output();
        let output = output.unwrap();

        assert_eq!(code(&output), 7);
        let said = text(&output.stdout);
        let (key, token) = said.trim().split_once(' ').unwrap();
        assert_eq!(key, "job");
        assert!(token.parse::<u64>().unwrap() > 1_000_000_000_000_000);
        assert_eq!(text(&output.stderr), "");
        assert_eq!(ask(&redis, &["EXISTS", "lock:job"]), ":0");
    }

    #[test]
    fn commands_of_many_shells_never_overlap() {
        let (redis, folder) = (redis(), TempDir::new().unwrap());
        let log = file(&folder, "log");
        let script = format!("echo in >> {0}; sleep 0.02; echo out >> {0}", log.display());
        let mut shells: Vec<_> =
            (0..8).map(|_| Running::start(&mut run(&redis, &[], &script))).collect();

        for shell in shells.drain(..) {
            assert_eq!(shell.end(), (Some(0), String::new()));
        }

        assert_eq!(std::fs::read_to_string(log).unwrap(), "in\nout\n".repeat(8));
    }

    #[test]
    fn clients_that_do_set_nx_px_are_kept_out_and_waited_for() {
        let redis = redis();
        let mut holder =
            Running::start(&mut run(&redis, &[], "echo in; read line < /dev/null; sleep 0.3"));
        assert_eq!(holder.line(), "in");
        assert_eq!(ask(&redis, &["SET", "lock:job", "x", "NX", "PX", "1000"]), "$-1");
        assert_eq!(holder.end().0, Some(0));

        assert_eq!(ask(&redis, &["SET", "lock:job", "theirs", "NX", "PX", "60000"]), "+OK");
        let mut waiting = Running::start(&mut run(&redis, &[], "echo in"));
        let refused = run(&redis, &["--no-wait"], "echo in").output().unwrap();
        assert_eq!(code(&refused), 75);
        assert!(text(&refused.stderr).contains("not obtained"), "{}", text(&refused.stderr));
        ask(&redis, &["DEL", "lock:job"]);
        assert_eq!(waiting.line(), "in");
        assert_eq!(waiting.end().0, Some(0));
    }

    #[test]
    fn the_wait_is_limited() {
        measured(|| {
            let redis = redis();
            ask(&redis, &["SET", "lock:job", "theirs"]);

            let (stalls, start) = (Stalls::watch(), Instant::now());
            let output = run(&redis, &["--wait", "4s"], "echo in").output().unwrap();

            let took = start.elapsed();
            assert_eq!(code(&output), 75);
            assert!(took >= Duration::from_secs(4), "{took:?}");
            stalls.in_time("the refusal", took, Duration::from_secs(4) + PROMPT)?;
            assert_eq!(text(&output.stdout), "");
            Ok(())
        });
    }

    #[test]
    fn a_server_that_hangs_longer_than_the_ttl_stops_the_command_before_the_deadline() {
        let (redis, folder) = (redis(), TempDir::new().unwrap());
        let ticks = file(&folder, "ticks");
        // It would go on for ever, and notes when it still did.
        let script = format!("while true; do date +%s%3N >> {}; sleep 0.01; done", ticks.display());
        let options = ["--ttl", "4s", "--kill-after", "1s"];
        let running = Running::start(&mut run(&redis, &options, &script));
        until("the command runs", || ticks.exists());
        let remaining = ask(&redis, &["PTTL", "lock:job"]);

        redis.pause();
        let paused_at = millis();
        let (exit, complaint) = running.end();

        let remaining: u128 = remaining.trim_start_matches(':').parse().unwrap();
        let last = std::fs::read_to_string(ticks).unwrap().lines().last().unwrap().parse::<u128>();
        let last = last.unwrap();
        assert_eq!(exit, Some(76), "{complaint}");
        assert!(complaint.contains("the command was stopped"), "{complaint}");
        assert!(last < paused_at + remaining, "it ran on after its lease");
        redis.resume();
    }

    fn millis() -> u128 {
        std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()
    }

    #[test]
    fn a_command_that_does_not_want_to_end_is_killed() {
        measured(|| {
            let redis = redis();
            let options = ["--ttl", "15s", "--kill-after", "200ms"];
            let script = "trap 'echo asked' TERM; echo in; while true; do sleep 0.01; done";
            let mut running = Running::start(&mut run(&redis, &options, script));
            assert_eq!(running.line(), "in");

            let (stalls, start) = (Stalls::watch(), Instant::now());
            ask(&redis, &["SET", "lock:job", "theirs"]);

            assert_eq!(running.line(), "asked");
            let (exit, complaint) = running.end();
            let took = start.elapsed();
            assert_eq!(exit, Some(76), "{complaint}");
            stalls.in_time("the end", took, Duration::from_millis(200) + PROMPT)?;
            assert!(
                ask(&redis, &["GET", "lock:job"]).ends_with("theirs"),
                "their lock was touched"
            );
            Ok(())
        });
    }

    #[test]
    fn a_command_may_run_on_without_its_lock_if_told_so() {
        let redis = redis();
        let options = ["--on-lost", "ignore"];
        let mut running =
            Running::start(&mut run(&redis, &options, "echo in; sleep 0.5; echo out; exit 3"));
        assert_eq!(running.line(), "in");

        ask(&redis, &["SET", "lock:job", "theirs"]);

        assert_eq!(running.line(), "out");
        let (exit, complaint) = running.end();
        assert_eq!(exit, Some(3));
        assert!(complaint.contains("ran on without the lock"), "{complaint}");
    }

    #[test]
    fn a_killed_holder_takes_its_command_along_and_leaves_the_key_for_a_ttl() {
        measured(|| {
            let (redis, folder) = (redis(), TempDir::new().unwrap());
            let ticks = file(&folder, "ticks");
            let script = format!(
                "echo $LEASEHOLD_TOKEN; while true; do date +%s%N >> {}; sleep 0.01; done",
                ticks.display()
            );
            let mut holder = Running::start(&mut run(&redis, &["--ttl", "4s"], &script));
            let first: u64 = holder.line().parse().unwrap();
            until("the command runs", || ticks.exists());

            holder.signal("KILL");
            let (stalls, killed_at) = (Stalls::watch(), Instant::now());
            let next = run(&redis, &["--ttl", "4s"], "echo $LEASEHOLD_TOKEN").output().unwrap();

            stalls.in_time(
                "the next holder",
                killed_at.elapsed(),
                Duration::from_secs(4) + PROMPT,
            )?;
            let second: u64 = text(&next.stdout).trim().parse().unwrap();
            assert!(second > first, "{second} after {first}");
            let last = std::fs::read_to_string(&ticks).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(std::fs::read_to_string(&ticks).unwrap(), last, "the command runs on");
            Ok(())
        });
    }

    #[test]
    fn signals_are_passed_on_and_the_command_answers_them_its_own_way() {
        let redis = redis();
        for (name, number) in [("TERM", 15), ("INT", 2), ("USR1", 10)] {
            let script = format!(
                "trap 'exit {}' {name}; echo in; while true; do sleep 0.01; done",
                number + 40
            );
            let mut running = Running::start(&mut run(&redis, &[], &script));
            assert_eq!(running.line(), "in");

            running.signal(name);

            let (exit, complaint) = running.end();
            assert_eq!(exit, Some(number + 40));
            // The shell may say that its own child was ended too.
            assert!(!complaint.contains("leasehold:"), "{complaint}");
            assert_eq!(ask(&redis, &["EXISTS", "lock:job"]), ":0");
        }
        let mut running = Running::start(&mut run(&redis, &[], "echo in; sleep 60"));
        assert_eq!(running.line(), "in");
        running.signal("HUP");
        assert_eq!(running.end().0, Some(128 + 1));
    }

    #[test]
    fn a_signal_ends_the_waiting_and_leaves_nothing_behind() {
        let redis = redis();
        ask(&redis, &["SET", "lock:job", "theirs"]);
        let waiting = Running::start(&mut run(&redis, &[], "echo in"));
        until("it waits", || ask(&redis, &["INFO", "commandstats"]).contains("cmdstat_eval"));

        waiting.signal("TERM");

        assert_eq!(waiting.end().0, Some(128 + 15));
        assert!(ask(&redis, &["GET", "lock:job"]).ends_with("theirs"));
    }

    #[test]
    fn commands_that_cannot_be_started_end_as_in_a_shell() {
        let redis = redis();
        for on_lost in ["term", "ignore"] {
            for (command, expected) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
                let mut leasehold = leasehold(&redis);
                let output =
                    leasehold.args(["run", "--on-lost", on_lost, "job", "--", command]).output();
                let output = output.unwrap();
                assert_eq!(code(&output), expected, "{command}");
                assert!(text(&output.stderr).contains(command), "{}", text(&output.stderr));
                assert_eq!(ask(&redis, &["EXISTS", "lock:job"]), ":0");
            }
        }
    }

    #[test]
    fn arguments_and_input_reach_the_command_as_they_are() {
        let redis = redis();
        let mut command = leasehold(&redis);
        command.args(["run", "a b/{c}*", "--", "sh", "-c", "cat; printf '<%s>' \"$@\"", "sh"]);
        command.args(["--ttl", "two words", "", "*"]).stdin(Stdio::piped());
        command.stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"input ").unwrap();

        let output = child.wait_with_output().unwrap();

        assert_eq!(text(&output.stdout), "input <--ttl><two words><><*>");
    }
}

mod kinds {
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
    fn those_that_read_run_together_and_those_that_write_alone() {
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
        assert_eq!(code(&other_kind), 64, "{}", text(&other_kind.stderr));
    }

    #[test]
    fn those_that_are_fair_run_in_the_order_of_their_coming() {
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
}

mod on_a_terminal {
    use std::io::Write;

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
    fn waiting_shows_who_holds_the_lock() {
        let redis = redis();
        let mut holder = Running::start(&mut run(&redis, &[], "echo in; sleep 60"));
        assert_eq!(holder.line(), "in");
        let mut waiting = start(&redis, "echo in");
        let mut screen = waiting.stdout.take().unwrap();
        let mut shown = String::new();

        let pid = format!("/{})", holder.id());
        while !(shown.contains("held by") && shown.contains(&pid)) {
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
        let trap =
            "trap \"echo interrupted; exit 5\" INT; echo in; while true; do sleep 0.01; done";
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
}

mod status_and_release {
    use super::*;

    #[test]
    fn status_tells_who_holds_it_and_for_how_long() {
        let redis = redis();
        let status = |args: &[&str]| leasehold(&redis).arg("status").args(args).output().unwrap();
        let free = status(&["job"]);
        assert_eq!((code(&free), text(&free.stdout).trim()), (1, "job: free"));

        let mut holder = Running::start(&mut run(&redis, &[], "echo $LEASEHOLD_TOKEN; sleep 60"));
        let token = holder.line();
        let held = status(&["job"]);
        assert_eq!(code(&held), 0);
        let said = text(&held.stdout);
        assert!(said.contains(&format!("/{})", holder.id())), "{said}");
        let (_, left) = said.split_once("for another ").expect("it says for how long");
        let left: f64 = left.split_once('s').expect("in seconds").0.parse().unwrap();
        assert!((10.0..=30.0).contains(&left), "{said}");
        assert!(said.contains(&token), "{said}");

        let json: serde_json::Value =
            serde_json::from_slice(&status(&["--json", "job"]).stdout).unwrap();
        assert_eq!(json["held"], true);
        assert_eq!(json["key"], "job");
        assert_eq!(json["last_token"].to_string(), token);
        assert_eq!(json["holders"][0]["lease"].as_str().unwrap().len(), 8);
        assert!(json["holders"][0]["remaining_ms"].as_u64().unwrap() > 20_000);
        let value = ask(&redis, &["GET", "lock:job"]);
        let secret = value.split_once("\r\n").unwrap().1.split(' ').next().unwrap();
        assert!(!json.to_string().contains(&secret[..16]) && !said.contains(&secret[..16]));
    }

    #[test]
    fn a_holder_that_is_asked_ends_if_it_wants_to() {
        let redis = redis();
        let ask_for_it = || leasehold(&redis).args(["release", "--ask", "job"]).output().unwrap();
        assert_eq!(code(&ask_for_it()), 1, "it is free");
        let deaf = "trap \"exit 3\" TERM; echo in; while true; do sleep 0.01; done";

        let mut holder = Running::start(&mut run(&redis, &["--on-asked", "term"], deaf));
        assert_eq!(holder.line(), "in");
        assert_eq!(code(&ask_for_it()), 0);
        assert_eq!(holder.end().0, Some(3));

        let mut holder = Running::start(&mut run(&redis, &[], deaf));
        assert_eq!(holder.line(), "in");
        assert_eq!(code(&ask_for_it()), 0);
        holder.signal("TERM");
        assert_eq!(holder.end().0, Some(3), "it went on until then");
    }

    #[test]
    fn a_forced_release_frees_the_lock_and_stops_the_holder() {
        let redis = redis();
        let mut holder = Running::start(&mut run(&redis, &[], "echo $LEASEHOLD_TOKEN; sleep 60"));
        let token: u64 = holder.line().parse().unwrap();

        let forced = leasehold(&redis).args(["release", "--force", "job"]).output().unwrap();

        assert_eq!(code(&forced), 0);
        let said = text(&forced.stdout);
        let (_, stale) = said.split_once("tokens below ").unwrap();
        let stale: u64 = stale.split(' ').next().unwrap().parse().unwrap();
        assert!(stale > token);
        let (exit, complaint) = holder.end();
        assert_eq!(exit, Some(76), "{complaint}");
        let next = run(&redis, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
        assert!(text(&next.stdout).trim().parse::<u64>().unwrap() >= stale);

        let again = leasehold(&redis).args(["release", "--force", "job"]).output().unwrap();
        assert_eq!((code(&again), text(&again.stdout).trim()), (1, "job: was free"));
        let careless = leasehold(&redis).args(["release", "job"]).output().unwrap();
        assert_eq!(code(&careless), 64);
    }
}

#[cfg(feature = "fred")]
mod topologies_and_clients {
    use leasehold_testbed::{RedisCluster, RedisSentinel};

    use super::*;

    #[test]
    fn of_redis_serve_the_command_alike() {
        let (one, sentinel) = (redis(), block_on(RedisSentinel::start()));
        let cluster = block_on(RedisCluster::start());
        for url in [one.url(), sentinel.url(), cluster.url()] {
            for client in ["redis", "fred"] {
                let url = format!("{url}?client={client}");
                let output = run_on(&url, &[], "echo $LEASEHOLD_TOKEN").output().unwrap();
                assert_eq!((code(&output), text(&output.stderr)), (0, String::new()), "{url}");
                assert!(text(&output.stdout).trim().parse::<u64>().is_ok(), "{url}");
            }
        }
    }
}

mod bad_usage {
    use super::*;

    fn bare() -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.env_remove("LEASEHOLD_BACKEND");
        command
    }

    #[test]
    fn what_makes_no_sense_is_said_so() {
        let redis = redis();
        fails(&mut bare(), 64, "Usage");
        fails(bare().args(["run", "--backend", "", "job", "--", "true"]), 64, "LEASEHOLD_BACKEND");
        fails(bare().args(["run", "--backend", "memory:", "job", "--", "true"]), 64, "memory");
        fails(leasehold(&redis).args(["run", "job"]), 64, "COMMAND");
        fails(leasehold(&redis).args(["run", "--", "true"]), 64, "KEY");
        fails(leasehold(&redis).args(["run", "", "--", "true"]), 64, "empty");
        fails(leasehold(&redis).args(["run", &"x".repeat(513), "--", "true"]), 64, "512");
        fails(&mut run(&redis, &["--ttl", "soon"], "true"), 64, "--ttl");
        fails(&mut run(&redis, &["--ttl", "0s"], "true"), 64, "ttl");
        fails(&mut run(&redis, &["--ttl", "2days"], "true"), 64, "ttl");
        fails(&mut run(&redis, &["--wait", "1s", "--no-wait"], "true"), 64, "--no-wait");
        for url in ["S3CR3T", "ftp://S3CR3T", "redis://:S3CR3T@", "redis://:S3CR3T@h?x=1"] {
            fails(bare().args(["status", "--backend", url, "job"]), 64, "URL");
        }
    }

    #[test]
    fn stores_that_do_not_serve_us_are_said_so() {
        let redis = redis();
        let nobody = format!("redis://:S3CR3T@127.0.0.1:{}", free_port());
        for verb in [&["status"][..], &["release", "--force"], &["run"]] {
            let mut command = bare();
            command.args(verb).args(["--backend", &nobody, "job"]);
            if verb == ["run"] {
                command.args(["--", "true"]);
            }
            fails(&mut command, 69, "cannot be reached");
        }
        ask(&redis, &["CONFIG", "SET", "requirepass", "S3CR3T"]);
        fails(&mut run(&redis, &[], "true"), 69, "NOAUTH");
        let wrong = format!("redis://:wrong@{}", redis.address());
        fails(bare().args(["status", "--backend", &wrong, "job"]), 69, "WRONGPASS");
    }

    #[test]
    fn help_and_version_are_no_failure() {
        for args in [&["--help"][..], &["--version"], &["run", "--help"], &["help", "status"]] {
            let output = bare().args(args).env("LEASEHOLD_BACKEND", "redis://:S3CR3T@h").output();
            let output = output.unwrap();
            assert_eq!(code(&output), 0, "{args:?}");
            assert!(!text(&output.stdout).contains("S3CR3T"));
        }
    }
}
