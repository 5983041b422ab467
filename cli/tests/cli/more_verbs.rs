//! The verbs beside `run`, `status` and `release`, and the options that all verbs share.

use std::process::Command;

use serde_json::Value;

use crate::support::{Home, Running, block_on, code, fails, text, until};

fn status(home: &Home) -> Option<i32> {
    home.verb(&["status"]).status.code()
}

fn running(command: &mut Command, args: &[&str]) -> Running {
    Running::start(command.args(args))
}

#[test]
fn command_needs_no_dashes_before_it() {
    let home = Home::new();
    let output = home.leasehold().args(["run", "-n", "job", "echo", "-n", "--", "x"]).output();
    let output = output.unwrap();
    assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "-- x"));
}

#[test]
fn bare_numbers_are_seconds_and_months_are_refused() {
    let home = Home::new();
    let mut holder = Running::start(&mut home.run(&["--ttl", "20"], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");

    let late = home.run(&["--wait", "4.25"], "true").output().unwrap();
    assert_eq!(code(&late), 75);
    assert!(text(&late.stderr).contains("still locked after 4s 250ms"), "{}", text(&late.stderr));
    for time in ["1M", "2w", "1y"] {
        let refused = home.run(&["--wait", time], "true").output().unwrap();
        assert_eq!(code(&refused), 64);
        assert!(text(&refused.stderr).contains("unknown unit"), "{}", text(&refused.stderr));
    }
}

#[test]
fn description_is_shown_to_others() {
    let home = Home::new();
    let options = ["--description", "nightly report, ask ops"];
    let mut holder = Running::start(&mut home.run(&options, "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");

    let shown = text(&home.verb(&["status"]).stdout);
    assert!(shown.contains("held by nightly report, ask ops (lease "), "{shown}");
}

#[test]
fn max_hold_stops_the_command() {
    let home = Home::new();
    let options = ["--max-hold", "2s", "--kill-after", "100ms"];
    let (code, said) = Running::start(&mut home.run(&options, "exec sleep 60")).end();
    assert_eq!(code, Some(76));
    assert!(said.contains("the time limit set by --max-hold has expired"), "{said}");
}

#[test]
fn prefixes_keep_locks_apart() {
    let home = Home::new();
    let mut holder = Running::start(&mut home.run(&["--prefix", "one_"], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");

    let url = format!("sqlite:{}", home.locks().display());
    let status = |options: &[&str]| home.verb(&[&["status"], options].concat()).status.code();
    assert_eq!(status(&["--prefix", "one_"]), Some(0));
    assert_eq!(status(&[]), Some(1));
    assert_eq!(status(&["--backend", &url, "--prefix", "one_"]), Some(0));
    let twice = format!("{url}?prefix=one_");
    assert_eq!(status(&["--backend", &twice]), Some(0));
    assert_eq!(status(&["--backend", &twice, "--prefix", "one_"]), Some(64));
}

#[test]
fn held_lock_is_released_when_its_holder_is_told_to_end() {
    let home = Home::new();
    let mut holder = running(&mut home.leasehold(), &["hold", "job"]);
    let said = holder.line();
    let token = said.strip_prefix("job: held, token ").expect(&said);
    assert!(token.parse::<u64>().is_ok(), "{said}");
    assert_eq!(status(&home), Some(0));

    holder.signal("TERM");
    assert_eq!(holder.end().0, Some(0));
    assert_eq!(status(&home), Some(1));

    let mut holder = running(&mut home.leasehold(), &["hold", "--json", "job"]);
    let told: Value = serde_json::from_str(&holder.line()).unwrap();
    assert!(told["token"].is_u64() && told["key"] == "job", "{told}");
    assert_eq!(home.verb(&["release", "--ask"]).status.code(), Some(0));
    assert_eq!(holder.end().0, Some(0));

    let mut holder = running(&mut home.leasehold(), &["hold", "job"]);
    holder.line();
    assert_eq!(home.verb(&["release", "--force"]).status.code(), Some(0));
    let (code, said) = holder.end();
    assert_eq!(code, Some(76), "{said}");
}

#[test]
fn several_locks_are_held_or_none() {
    let home = Home::new();
    let mut other = running(&mut home.leasehold(), &["hold", "b c"]);
    other.line();
    let both = |options: &[&str], script: &str| {
        let mut command = home.leasehold();
        command.arg("run").args(options).args(["--also", "b c", "a", "--", "sh", "-c", script]);
        command
    };

    let refused = both(&["--no-wait"], "true").output().unwrap();
    assert_eq!(code(&refused), 75);
    assert!(text(&refused.stderr).contains("\"b c\" is locked by"), "{}", text(&refused.stderr));
    let free = home.leasehold().args(["status", "a"]).output().unwrap();
    assert_eq!(code(&free), 1, "none is held");
    other.signal("TERM");
    other.end();

    let script = "echo \"$LEASEHOLD_KEY|$LEASEHOLD_KEY_1|$LEASEHOLD_KEY_2\"; \
                  [ $LEASEHOLD_TOKEN = $LEASEHOLD_TOKEN_1 ] && echo $LEASEHOLD_TOKEN_2; sleep 60";
    let mut holder = Running::start(&mut both(&[], script));
    assert_eq!(holder.line(), "a|a|b c");
    assert!(holder.line().parse::<u64>().is_ok());
    let forced = home.leasehold().args(["release", "--force", "b c"]).output().unwrap();
    assert_eq!(code(&forced), 0);
    assert_eq!(holder.end().0, Some(76), "one of them is lost");
}

#[test]
fn leaders_proclaim_and_succeed_each_other() {
    let home = Home::new();
    let candidate = |value: &str| {
        let script = "echo $LEASEHOLD_TOKEN; exec sleep 60";
        let args = ["elect", "--value", value, "job", "--", "sh", "-c", script];
        running(&mut home.leasehold(), &args)
    };
    let mut watch = running(&mut home.leasehold(), &["watch", "job"]);
    let first_line = watch.line();
    let (time, said) = first_line.split_once(' ').unwrap();
    assert_eq!((time.len(), said), ("2026-11-27T12:00:00Z".len(), "job: free"));
    let mut first = candidate("one:1");
    let token: u64 = first.line().parse().unwrap();
    assert!(watch.line().contains("Z job: held by one:1 (lease "));
    let refused = home.leasehold().args(["elect", "-n", "job", "true"]).output().unwrap();
    assert_eq!(code(&refused), 75);
    assert!(text(&refused.stderr).contains("locked by one:1"), "{}", text(&refused.stderr));

    let mut second = candidate("two:2");
    first.signal("TERM");
    assert!(second.line().parse::<u64>().unwrap() > token);
    let shown = text(&home.verb(&["status"]).stdout);
    assert!(shown.contains("held by two:2"), "{shown}");
}

#[test]
fn candidate_stands_again_after_a_loss() {
    let home = Home::new();
    let args =
        ["elect", "--again", "job", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exec sleep 60"];
    let mut candidate = running(&mut home.leasehold(), &args);
    let first: u64 = candidate.line().parse().unwrap();

    assert_eq!(home.verb(&["release", "--force"]).status.code(), Some(0));

    assert!(candidate.line().parse::<u64>().unwrap() > first);
    candidate.signal("TERM");
    assert_eq!(candidate.end().0, Some(128 + 15), "that is no loss");
}

#[test]
fn watch_ends_once_the_lock_is_free() {
    let home = Home::new();
    let mut holder = running(&mut home.leasehold(), &["hold", "job"]);
    holder.line();
    let impatient = home.verb(&["watch", "--until-free", "--wait", "0.1"]);
    assert_eq!(code(&impatient), 75, "{}", text(&impatient.stderr));

    let mut watch = running(&mut home.leasehold(), &["watch", "--json", "--until-free", "job"]);
    let told: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!(told["held"], true);
    assert!(told["time"].as_str().unwrap().ends_with('Z'), "{told}");
    holder.signal("TERM");

    let told: Value = serde_json::from_str(&watch.line()).unwrap();
    assert_eq!(told["held"], false);
    assert_eq!(watch.end().0, Some(0));
}

#[test]
fn operators_get_json_too() {
    let home = Home::new();
    let told =
        |args: &[&str]| -> Value { serde_json::from_slice(&home.verb(args).stdout).unwrap() };
    assert_eq!(told(&["release", "--json", "--ask"])["asked"], false);
    let mut holder = Running::start(&mut home.run(&["--on-asked", "ignore"], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");

    assert_eq!(told(&["release", "--json", "--ask"])["asked"], true);
    let forced = told(&["release", "--json", "--force"]);
    assert_eq!(forced["ended"].as_array().unwrap().len(), 1);
    assert!(forced["min_token"].is_u64(), "{forced}");
    let failed =
        home.leasehold().args(["status", "--json", "--backend", "ftp://x", "job"]).output();
    let failed: Value = serde_json::from_slice(&failed.unwrap().stderr).unwrap();
    assert_eq!(failed["exit_code"], 64);
}

#[test]
fn completions_and_manual_pages_name_all_verbs() {
    let home = Home::new();
    let output = |args: &[&str]| text(&home.leasehold().args(args).output().unwrap().stdout);
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&["completions", shell]);
        for verb in ["run", "hold", "elect", "status", "watch", "release"] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
        assert!(!script.contains("exec"), "{shell}: that is no verb");
    }
    assert!(output(&["man"]).contains(".TH LEASEHOLD 1"));
    let pages = home.0.path().join("man1");
    assert_eq!(output(&["man", pages.to_str().unwrap()]), "");
    assert!(pages.join("leasehold-run.1").exists());
}

#[test]
fn configuration_file_fills_in_for_the_command_line() {
    let home = Home::new();
    let folder = home.0.path().join(".config/leasehold");
    std::fs::create_dir_all(&folder).unwrap();
    let config = |text: &str| std::fs::write(folder.join("config"), text).unwrap();
    config("# of this user\n\nttl = 7s\ndescription = \"from the file\"\nwait=4.2\n");
    let mut holder = Running::start(&mut home.run(&[], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");

    let shown: Value = serde_json::from_slice(&home.verb(&["status", "--json"]).stdout).unwrap();
    assert_eq!(shown["holders"][0]["description"], "from the file");
    assert!(shown["holders"][0]["remaining_ms"].as_u64().unwrap() <= 7_000, "{shown}");
    let late = |options: &[&str]| text(&home.run(options, "true").output().unwrap().stderr);
    let said = late(&[]);
    assert!(said.contains("still locked after 4s 200ms"), "{said}");
    let said = late(&["--wait", "4.3"]);
    assert!(said.contains("still locked after 4s 300ms"), "the command line says more: {said}");
    assert!(late(&["--no-wait"]).contains("is locked by"), "{}", late(&["--no-wait"]));

    for (text, says) in [
        ("backend = redis://:S3CR3T@h\nS3CR3T", "line 2"),
        ("colour = S3CR3T", "known settings are backend"),
        ("ttl = 1s\nttl = 2s", "twice"),
        ("ttl = soon", "invalid value 'soon' for '--ttl <TIME>' (from "),
    ] {
        config(text);
        fails(&mut home.run(&[], "true"), 78, says);
    }
    let missing = "cannot read the configuration file /no/such (from LEASEHOLD_CONFIG)";
    fails(home.run(&[], "true").env("LEASEHOLD_CONFIG", "/no/such"), 78, missing);
    let none = home.run(&["--wait", "4"], "true").env("LEASEHOLD_CONFIG", "").output().unwrap();
    assert_eq!(code(&none), 75, "no file");
}

#[test]
fn locks_in_use_are_listed_by_their_names() {
    let home = Home::new();
    let list = |args: &[&str]| home.leasehold().arg("list").args(args).output().unwrap();
    assert_eq!((code(&list(&[])), text(&list(&[]).stdout).as_str()), (1, ""));
    let mut holders = Vec::new();
    for name in ["a b", "a%20b", "job"] {
        let mut holder = running(&mut home.leasehold(), &["hold", name]);
        holder.line();
        holders.push(holder);
    }

    let lines = text(&list(&[]).stdout);
    for name in ["a b: held by ", "a%20b: held by ", "job: held by "] {
        assert_eq!(lines.lines().filter(|line| line.starts_with(name)).count(), 1, "{lines}");
    }
    let some = list(&["--json", "a"]);
    let some = text(&some.stdout);
    let some: Vec<Value> = some.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(some.len(), 2, "{some:?}");
    for lock in &some {
        assert!(lock["key"] == "a b" || lock["key"] == "a%20b", "{lock}");
        assert_eq!((&lock["kind"], &lock["held"]), (&"mutex".into(), &true.into()));
    }
}

#[test]
fn status_tells_kind_token_age_and_queue() {
    let home = Home::new();
    let mut holder = Running::start(&mut home.run(&[], "echo $LEASEHOLD_TOKEN; sleep 60"));
    let token = holder.line();
    let mut waiting = home.run(&["--fair", "--description", "the next"], "true");
    let _waiting = Running::start(&mut waiting);
    let status =
        || -> Value { serde_json::from_slice(&home.verb(&["status", "--json"]).stdout).unwrap() };
    crate::support::until("it waits", || status()["waiting"] == 1);

    let told = status();
    assert_eq!(told["kind"], "mutex");
    assert_eq!(told["holders"][0]["token"].to_string(), token);
    assert!(told["holders"][0]["held_for_ms"].is_u64(), "{told}");
    assert_eq!(told["queue"][0]["description"], "the next");
    let said = text(&home.verb(&["status"]).stdout);
    assert!(said.contains(&format!("token {token}")), "{said}");
    assert!(said.contains("waited for by the next (lease "), "{said}");
}

#[test]
fn live_view_starts_with_the_lock_that_most_callers_wait_for() {
    let home = Home::new();
    let url = format!("sqlite:{}", home.locks().display());
    home.verb(&["status"]);
    let client = block_on(async { leasehold::connect(&url).await.unwrap() });
    let guards: Vec<_> = block_on(async {
        let mut guards = Vec::new();
        for number in 0..700 {
            guards.push(client.mutex(format!("lock-{number:03}")).unwrap().lock().await.unwrap());
        }
        guards
    });
    let mut last = home.leasehold();
    let _waiting = Running::start(last.args(["run", "lock-699", "true"]));
    let top = |options: &[&str]| {
        text(&home.leasehold().arg("top").args(options).output().unwrap().stdout)
    };

    until("it waits", || top(&["--json"]).lines().next().unwrap().contains("lock-699"));

    assert_eq!(top(&["--json"]).lines().count(), 700);
    let view = top(&[]);
    assert!(view.lines().nth(1).unwrap().starts_with("lock-699 mutex "), "{view}");
    drop(guards);
}

#[test]
fn log_is_json_where_results_are() {
    let home = Home::new();
    let mut holder = Running::start(&mut home.run(&["--json", "-v"], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");
    home.verb(&["release", "--force"]);

    let (code, said) = holder.end();

    assert_eq!(code, Some(76));
    assert!(said.lines().count() > 2, "{said}");
    for line in said.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn release_spares_the_leases_that_it_does_not_name() {
    let home = Home::new();
    let job = |name: &str| {
        let options = ["--permits", "3", "--description", name];
        let mut job = Running::start(&mut home.run(&options, "echo in; exec sleep 60"));
        assert_eq!(job.line(), "in");
        job
    };
    let [one, two, three] = ["one", "two", "three"].map(job);
    let status: Value = serde_json::from_slice(&home.verb(&["status", "--json"]).stdout).unwrap();
    let holders = status["holders"].as_array().unwrap();
    let second = holders.iter().find(|holder| holder["description"] == "two").unwrap();
    let lease = second["lease"].as_str().unwrap();

    let forced = home.verb(&["release", "--force", "--lease", lease]);

    assert_eq!(code(&forced), 0, "{}", text(&forced.stderr));
    let said = text(&forced.stdout);
    assert!(said.contains(&format!("released the lock of two ({lease})")), "{said}");
    assert!(!said.contains("stale"), "the other holders have lower tokens: {said}");
    assert_eq!(two.end().0, Some(76));
    let again = home.verb(&["release", "--force", "--lease", lease]);
    assert_eq!(code(&again), 1);
    assert!(text(&again.stdout).contains(&format!("no holder has the lease {lease}")));
    let odd = home.verb(&["release", "--force", "--lease", "job2"]);
    assert_eq!(code(&odd), 64);
    let first = holders.iter().find(|holder| holder["description"] == "one").unwrap();
    let first = first["lease"].as_str().unwrap();
    assert_eq!(code(&home.verb(&["release", "--ask", "--lease", first])), 0);
    assert_eq!(one.end().0, Some(128 + 15), "its holder was asked");
    assert_eq!(home.verb(&["status"]).status.code(), Some(0));
    three.signal("TERM");
    assert_eq!(three.end().0, Some(128 + 15));
}
