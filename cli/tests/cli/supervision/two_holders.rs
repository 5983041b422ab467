//! No process of a job runs on once the next job has the lock.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Home, Running, as_root, helper, send, until};
use crate::support::{code, file, is_gone, text};

/// How often each case is tried.
const RUNS: &str = "LEASEHOLD_SUPERVISION_RUNS";

/// Notes the time of the boot clock in a file, in hundredths of a second, until it is ended.
const TICKER: &str = "while read now _ < /proc/uptime; do echo $now; sleep 0.01; done";

/// Has `wrapper` run a job, does something to the job's `leasehold`, and expects the next job to begin after the last line of the first.
fn no_line_follows_the_next_holder(wrapper: &[&str], disturb: impl Fn(&Home, &Running)) {
    let runs = std::env::var(RUNS).map_or(1, |runs| runs.parse().unwrap());
    for _ in 0..runs {
        let (home, lines) = job(wrapper);
        let first = Running::start(
            home.leasehold().args(["run", "--ttl", "2s", "job"]).args(command(wrapper, &home)),
        );
        until(&format!("the job runs: {wrapper:?}"), || {
            fs::metadata(&lines).is_ok_and(|it| it.len() > 0)
        });

        disturb(&home, &first);
        let next = home.run(&[], "read now _ < /proc/uptime; echo $now").output().unwrap();

        assert_eq!(code(&next), 0, "{}", text(&next.stderr));
        // Paused or not, it does not keep us from seeing that no other process of the job is left.
        first.signal("KILL");
        let id = first.id().to_string();
        first.falls_silent();
        for (_, group) in memory_groups(&id) {
            drop(fs::remove_dir(group));
        }
        let began: f64 = text(&next.stdout).trim().parse().unwrap();
        let last = fs::read_to_string(&lines).unwrap().lines().last().unwrap().parse::<f64>();
        assert!(last.clone().unwrap() <= began, "{wrapper:?}: {last:?} after {began}");
    }
}

/// A home in which a job of any user can write its lines, and the file of the lines.
fn job(wrapper: &[&str]) -> (Home, PathBuf) {
    let home = Home::new();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(home.0.path(), 0o711).unwrap();
    let (script, lines) = (file(&home.0, "ticker"), file(&home.0, "lines"));
    let is_pipe = wrapper == PIPE;
    let out = if is_pipe { String::new() } else { format!(" >> {}", lines.display()) };
    fs::write(&script, format!("#!/bin/sh\n{TICKER}{out}\n")).unwrap();
    mode(&script, 0o755).unwrap();
    fs::write(&lines, "").unwrap();
    mode(&lines, 0o666).unwrap();
    (home, lines)
}

fn command(wrapper: &[&str], home: &Home) -> Vec<String> {
    let (script, lines) = (file(&home.0, "ticker"), file(&home.0, "lines"));
    let fill = |word: &&str| {
        word.replace("TICKER", script.to_str().unwrap()).replace("LINES", lines.to_str().unwrap())
    };
    wrapper.iter().map(fill).collect()
}

const PIPE: &[&str] = &["sh", "-c", "TICKER | cat >> LINES"];

/// The ways in which a job leaves its session, its group, its user or its PID namespace.
const WRAPPERS: [&[&str]; 8] = [
    &["TICKER"],
    PIPE,
    &["setpriv", "--reuid", "65534", "--clear-groups", "TICKER"],
    &["sudo", "-u", "nobody", "TICKER"],
    &["su", "-s", "/bin/sh", "nobody", "-c", "TICKER"],
    &["timeout", "500", "TICKER"],
    &["setsid", "TICKER"],
    &["unshare", "--pid", "--fork", "TICKER"],
];

fn under_each_wrapper(disturb: impl Fn(&Home, &Running) + Copy) {
    for wrapper in WRAPPERS {
        no_line_follows_the_next_holder(wrapper, disturb);
    }
}

#[test]
fn leasehold_is_killed() {
    as_root("supervision::two_holders::leasehold_is_killed", || {
        under_each_wrapper(|_, leasehold| leasehold.signal("KILL"));
    });
}

#[test]
fn leasehold_is_paused() {
    as_root("supervision::two_holders::leasehold_is_paused", || {
        under_each_wrapper(|_, leasehold| leasehold.signal("STOP"));
    });
}

#[test]
fn leasehold_is_killed_for_its_memory() {
    as_root("supervision::two_holders::leasehold_is_killed_for_its_memory", || {
        under_each_wrapper(|_, leasehold| leave_no_memory_to(leasehold));
    });
}

#[test]
fn the_guardian_is_killed() {
    as_root("supervision::two_holders::the_guardian_is_killed", || {
        under_each_wrapper(|home, leasehold| {
            send(home, "KILL", &[helper(leasehold, "lease-guardian")]);
        });
    });
}

/// Moves a process into a control group that may use no memory, so that the kernel kills it.
///
/// Where no such group can be created, as in many containers, sends the signal that the kernel would send.
fn leave_no_memory_to(leasehold: &Running) {
    let id = leasehold.id().to_string();
    for (limit, group) in memory_groups(&id) {
        // No file is created: the directory may be an ordinary one.
        let set = |file: &str, value: &str| {
            let opened = fs::File::options().write(true).open(group.join(file));
            opened.and_then(|mut opened| opened.write_all(value.as_bytes()))
        };
        let is_group = fs::create_dir(&group).and_then(|()| set(limit, "0"));
        if is_group.and_then(|()| set("cgroup.procs", &id)).is_ok() {
            until("the kernel kills it", || is_gone(&id));
            return;
        }
        drop(fs::remove_dir(&group));
    }
    leasehold.signal("KILL");
}

/// The control groups of both versions that limit the memory of a process, each with the name of its limit.
fn memory_groups(id: &str) -> [(&'static str, PathBuf); 2] {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let first = own.lines().find_map(|line| line.split_once(":memory:/")).map_or("", |it| it.1);
    let name = format!("leasehold-test-{id}");
    [
        ("memory.max", Path::new("/sys/fs/cgroup").join(&name)),
        ("memory.limit_in_bytes", Path::new("/sys/fs/cgroup/memory").join(first).join(name)),
    ]
}
