//! A command is never alone: it ends with its lock, whatever happens to `leasehold` and to its helpers.

mod refusals;
mod signals;
mod survivors;
mod two_holders;

use std::fs;
use std::process::Command;

use crate::support::{Home, Running, text, until};

/// Runs a test that needs root, through `sudo` if an ordinary user runs the tests. `name` is the path of the test.
fn as_root(name: &str, test: impl FnOnce()) {
    if rustix::process::geteuid().is_root() {
        return test();
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["--non-interactive", "--preserve-env"]).arg(std::env::current_exe().unwrap());
    let output = sudo.args(["--exact", name]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("1 passed"), "{said}{}", text(&output.stderr));
}

/// The children of a process: their names and process ids.
fn children(pid: u32) -> Vec<(String, String)> {
    let parent = pid.to_string();
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let children = entries.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let is_child = rest.split(' ').nth(1) == Some(&*parent);
        is_child.then(|| (name.to_owned(), entry.file_name().into_string().unwrap()))
    });
    children.collect()
}

/// The process id of a helper of `leasehold`, as soon as it is there.
fn helper(leasehold: &Running, name: &str) -> String {
    let mut found = None;
    until(name, || {
        found = children(leasehold.id()).into_iter().find(|(found, _)| found == name);
        found.is_some()
    });
    found.unwrap().1
}

/// All descendants of a process, and the process itself.
fn descendants(pid: u32) -> Vec<String> {
    let mut found = vec![pid.to_string()];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let below: Vec<_> =
            children(pid.parse().unwrap()).into_iter().map(|(_, pid)| pid).collect();
        found.extend(below);
        next += 1;
    }
    found
}

fn send(home: &Home, signal: &str, pids: &[String]) {
    let mut kill = home.on_path("kill");
    assert!(kill.args(["-s", signal, "--"]).args(pids).status().unwrap().success());
}
