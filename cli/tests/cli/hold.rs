//! The `hold` subcommand and the script that has started it.

use std::fs;

use leasehold_testbed::Folder;

use crate::support::{Home, Running, code, file, text, until};

/// Starts `hold` in the background of a script, which then waits to be killed.
fn script(home: &Home, folder: &Folder, options: &str) -> Running {
    let token = file(folder, "token");
    let script = format!(
        "leasehold hold {options} job > {0} & until [ -s {0} ]; do sleep 0.01; done; echo $!; wait",
        token.display()
    );
    Running::start(home.on_path("sh").args(["-c", &script]))
}

fn is_held(home: &Home) -> bool {
    home.verb(&["status"]).status.code() == Some(0)
}

#[test]
fn lock_is_released_when_the_script_is_killed() {
    let (home, folder) = (Home::new(), Folder::in_memory("test-"));
    let mut script = script(&home, &folder, "");
    script.line();
    assert!(is_held(&home));

    script.signal("KILL");

    until("the lock is released", || !is_held(&home));
}

#[test]
fn lock_outlives_its_script_if_told_so() {
    let (home, folder) = (Home::new(), Folder::in_memory("test-"));
    let mut script = script(&home, &folder, "--detach --ttl 1s");
    let holder = script.line();

    script.signal("KILL");
    // It notices the end of its parent within half a second, and its lease lasts for a second.
    let parent = || fs::read_to_string(format!("/proc/{holder}/stat")).unwrap();
    until("it has another parent", || !parent().contains(&format!(" {} ", script.id())));
    let waited = home.verb(&["watch", "--until-free", "--wait", "2s"]);

    assert_eq!(waited.status.code(), Some(75), "it is held and renewed");
    home.on_path("kill").arg(&holder).status().unwrap();
    until("the lock is released", || !is_held(&home));
}

#[test]
fn sample_script_of_the_help_runs_and_does_not_hang_if_the_lock_is_busy() {
    let home = Home::new();
    let help = text(&home.leasehold().args(["hold", "--help"]).output().unwrap().stdout);
    let (_, script) = help.split_once("  exec 3<").expect("the help has a sample script");
    let script = format!("exec 3<{script}");
    let script = script.replace("--wait 1m", "--no-wait").replace("./deploy.sh", "echo deployed");
    let run = || home.on_path("bash").args(["-c", &script]).output().unwrap();

    let free = run();
    assert_eq!((code(&free), text(&free.stdout).as_str()), (0, "deployed\n"), "{script}");

    let mut other = Running::start(home.leasehold().args(["hold", "--wait", "5s", "deploy"]));
    other.line();
    let busy = run();
    assert_eq!((code(&busy), text(&busy.stdout).as_str()), (75, ""), "{script}");
}

#[test]
fn lock_ends_at_its_limit() {
    let home = Home::new();
    let mut holder = Running::start(home.leasehold().args(["hold", "--max-hold", "200ms", "job"]));
    holder.line();

    let (code, complaint) = holder.end();

    assert_eq!(code, Some(76), "{complaint}");
    assert!(complaint.contains("the time limit set by --max-hold has expired"), "{complaint}");
    assert!(!is_held(&home));
}
