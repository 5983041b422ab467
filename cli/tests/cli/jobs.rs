//! The command as a job among others: ignored signals, processes that leave their group, and patience.

use std::fs;
use std::path::Path;

use leasehold_testbed::{Folder, Redis};

use crate::support::{Home, Running, block_on, code, file, is_gone, leasehold_on, text, until};

/// A script that says its name, and goes on until there is a file.
fn until_there_is(go: &Path) -> String {
    format!("echo $$; while [ ! -e {} ]; do sleep 0.01; done; echo done", go.display())
}

#[test]
fn ignored_signal_stays_ignored() {
    for name in ["HUP", "INT", "TERM"] {
        let (home, folder) = (Home::new(), Folder::in_memory("test-"));
        let go = file(&folder, "go");
        let mut shell = home.on_path("sh");
        let run = format!("trap '' {name}; exec leasehold run job -- sh -c \"$0\"");
        let mut running = Running::start(shell.args(["-c", &run, &until_there_is(&go)]));
        let command = running.line();

        running.signal(name);
        home.on_path("kill").args(["-s", name, &command]).status().unwrap();
        fs::write(&go, "").unwrap();

        assert_eq!(running.line(), "done", "{name}");
        assert_eq!(running.end().0, Some(0), "{name}");
    }
}

#[test]
fn process_in_a_session_of_its_own_ends_with_the_lock() {
    let home = Home::new();
    let script = "setsid sh -c 'echo $$; exec sleep 600 2> /dev/null' & wait";
    let mut running = Running::start(&mut home.run(&[], script));
    let daemon = running.line();

    home.verb(&["release", "--force"]);

    assert_eq!(running.end().0, Some(76));
    assert!(is_gone(&daemon), "it goes on without the lock");
}

#[test]
fn process_that_was_there_before_is_left_alone() {
    let home = Home::new();
    let mut shell = home.on_path("sh");
    let script =
        "sleep 60 > /dev/null 2>&1 & echo $!; exec leasehold run job -- sh -c 'echo in; sleep 60'";
    let mut running = Running::start(shell.args(["-c", script]));
    let (other, _) = (running.line(), running.line());

    home.verb(&["release", "--force"]);

    assert_eq!(running.end().0, Some(76));
    assert!(!is_gone(&other), "it has nothing to do with the lock");
    home.on_path("kill").arg(other).status().unwrap();
}

#[test]
fn stopped_command_ends_with_its_lock() {
    let home = Home::new();
    let options = ["--ttl", "30s", "--kill-after", "9s"];
    let mut running = Running::start(&mut home.run(&options, "echo $$; kill -STOP $$"));
    let command = running.line();
    let stat = Path::new("/proc").join(command).join("stat");
    until("it stops", || fs::read_to_string(&stat).unwrap().contains(") T "));

    running.signal("TERM");

    assert_eq!(running.end().0, Some(128 + 15));
}

#[test]
fn command_in_the_background_may_outlive_the_lock() {
    let home = Home::new();
    let script = "sleep 60 > /dev/null 2>&1 & echo $!";
    let mut running = Running::start(&mut home.run(&[], script));
    let daemon = running.line();

    assert_eq!(running.end().0, Some(0));

    assert!(!is_gone(&daemon), "the command has left it on purpose");
    home.on_path("kill").arg(daemon).status().unwrap();
}

#[test]
fn store_that_starts_late_is_waited_for() {
    let mut redis = block_on(Redis::start());
    let url = redis.url();
    redis.kill();
    let run = |options: &[&str]| {
        let mut command = leasehold_on(&url);
        command.args(["run", "-v"]).args(options).args(["job", "--", "echo", "ran"]);
        command
    };

    let impatient = run(&["--no-wait"]).output().unwrap();
    assert_eq!(code(&impatient), 69);
    let waited = run(&["--wait", "4s"]).output().unwrap();
    let said = text(&waited.stderr);
    let announced = "leasehold: the store is unavailable; trying to connect for at most ";
    assert_eq!((code(&waited), said.matches(announced).count()), (69, 1), "{said}");
    for options in [&["--wait", "60s"][..], &[]] {
        let folder = Folder::in_memory("test-");
        let log = file(&folder, "log");
        let mut command = run(options);
        let waiting =
            command.stderr(fs::File::create(&log).unwrap()).stdout(std::process::Stdio::piped());
        let waiting = waiting.spawn().unwrap();
        until("it waits for the store", || {
            fs::read_to_string(&log).unwrap().contains("waiting for the store")
        });

        block_on(redis.restart());

        let output = waiting.wait_with_output().unwrap();
        assert_eq!((code(&output), text(&output.stdout).trim()), (0, "ran"));
        redis.kill();
    }
}

#[test]
fn reduced_kill_after_causes_a_warning() {
    let home = Home::new();
    let said = |options: &[&str]| text(&home.run(options, "true").output().unwrap().stderr);

    let cut = said(&["--kill-after", "1h", "--ttl", "6s"]);
    assert!(
        cut.contains("warning: --kill-after reduced from 1h to 2s, one third of the TTL"),
        "{cut}"
    );
    assert_eq!(said(&["--kill-after", "2s", "--ttl", "6s"]), "");
    assert_eq!(said(&["--ttl", "6s"]), "", "no warning about the default");
}

#[test]
fn hidden_backend_is_not_in_the_environment_of_the_command() {
    let home = Home::new();
    let url = format!("sqlite:{}", home.0.path().join("locks.db").display());
    let environment = |options: &[&str]| {
        let mut run = home.run(options, "echo \"[$LEASEHOLD_BACKEND] $LEASEHOLD_KEY\"");
        let output = run.env("LEASEHOLD_BACKEND", &url).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        text(&output.stdout)
    };

    assert_eq!(environment(&[]), format!("[{url}] job\n"));
    assert_eq!(environment(&["--hide-backend"]), "[] job\n");
}
