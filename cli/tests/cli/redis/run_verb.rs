//! The verb `run`.

use std::time::{Duration, Instant};

use leasehold_conformance::stalls::Stalls;
use leasehold_testbed::Folder;

use crate::support::{PROMPT, file, measured};

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
    let (redis, folder) = (redis(), Folder::in_memory("test-"));
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
    assert!(text(&refused.stderr).contains("is locked by"), "{}", text(&refused.stderr));
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
    let (redis, folder) = (redis(), Folder::in_memory("test-"));
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
    assert!(complaint.contains("The command was stopped"), "{complaint}");
    assert!(last < paused_at + remaining, "it ran on after its lease");
    redis.resume();
}

fn millis() -> u128 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()
}

#[test]
fn command_that_does_not_want_to_end_is_killed_before_the_deadline() {
    let redis = redis();
    // A busy machine takes its time until the script answers.
    let options = ["--ttl", "4s", "--kill-after", "1s"];
    let script = "trap 'echo asked' TERM; echo in; while true; do sleep 0.01; done";
    let mut running = Running::start(&mut run(&redis, &options, script));
    assert_eq!(running.line(), "in");

    redis.pause();

    assert_eq!(running.line(), "asked");
    let (exit, complaint) = running.end();
    redis.resume();
    assert_eq!(exit, Some(76), "{complaint}");
    assert!(complaint.contains("The command was stopped"), "{complaint}");
}

#[test]
fn lock_that_another_has_taken_has_the_command_killed_at_once() {
    measured(|| {
        let redis = redis();
        let options = ["--ttl", "30s", "--kill-after", "9s"];
        let script = "trap 'echo asked' TERM; echo in; while true; do sleep 0.01; done";
        let mut running = Running::start(&mut run(&redis, &options, script));
        assert_eq!(running.line(), "in");

        let (stalls, start) = (Stalls::watch(), Instant::now());
        ask(&redis, &["SET", "lock:job", "theirs"]);

        assert_eq!(running.line(), "", "there is no time to ask");
        let (exit, complaint) = running.end();
        assert_eq!(exit, Some(76), "{complaint}");
        stalls.in_time("the end", start.elapsed(), PROMPT)?;
        assert!(ask(&redis, &["GET", "lock:job"]).ends_with("theirs"), "their lock was touched");
        Ok(())
    });
}

#[test]
fn end_of_a_lost_lock_waits_for_no_release() {
    measured(|| {
        let redis = redis();
        let script = "trap 'echo asked; exit' TERM; echo in; while true; do sleep 0.01; done";
        let mut running = Running::start(&mut run(&redis, &["--ttl", "3s"], script));
        assert_eq!(running.line(), "in");

        let (stalls, paused_at) = (Stalls::watch(), Instant::now());
        redis.pause();
        let said = running.line();
        let start = Instant::now();
        let (exit, complaint) = running.end();
        let took = start.elapsed();
        redis.resume();
        if said != "asked" {
            stalls.steady("the command is asked to end", paused_at.elapsed(), PROMPT)?;
        }
        assert_eq!(said, "asked");

        assert_eq!(exit, Some(76), "{complaint}");
        stalls.in_time("the end", took, PROMPT)
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
    assert!(complaint.contains("The command continued without the lock"), "{complaint}");
}

#[test]
fn a_killed_holder_takes_its_command_along_and_leaves_the_key_for_a_ttl() {
    measured(|| {
        let (redis, folder) = (redis(), Folder::in_memory("test-"));
        let ticks = file(&folder, "ticks");
        let script = format!(
            "echo $LEASEHOLD_TOKEN; while true; do date +%s%N >> {}; sleep 0.01; done",
            ticks.display()
        );
        let mut holder = Running::start(&mut run(&redis, &["--ttl", "4s"], &script));
        let first: u64 = holder.line().parse().unwrap();
        let has_ticked = || std::fs::read_to_string(&ticks).is_ok_and(|it| it.contains('\n'));
        until("the command runs", has_ticked);

        holder.signal("KILL");
        let (stalls, killed_at) = (Stalls::watch(), Instant::now());
        let script = "date +%s%N; echo $LEASEHOLD_TOKEN";
        let next = run(&redis, &["--ttl", "4s"], script).output().unwrap();

        stalls.in_time("the next holder", killed_at.elapsed(), Duration::from_secs(4) + PROMPT)?;
        assert!(next.status.success(), "{}", text(&next.stderr));
        let said = text(&next.stdout);
        let (began_at, second) = said.trim().split_once('\n').unwrap();
        let (began_at, second): (u128, u64) = (began_at.parse().unwrap(), second.parse().unwrap());
        assert!(second > first, "{second} after {first}");
        holder.falls_silent();
        let ticks = std::fs::read_to_string(&ticks).unwrap();
        let last: u128 = ticks.lines().last().unwrap().parse().unwrap();
        assert!(last < began_at, "the command ran beside the next one");
        Ok(())
    });
}

#[test]
fn signals_are_passed_on_and_the_command_answers_them_its_own_way() {
    let redis = redis();
    for (name, number) in [("TERM", 15), ("INT", 2), ("USR1", 10)] {
        let script =
            format!("trap 'exit {}' {name}; echo in; while true; do sleep 0.01; done", number + 40);
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
