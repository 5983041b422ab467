//! Processes that nothing can end, and processes that may run on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::{Home, Running, as_root, children, send};
use crate::support::{code, file, is_gone, text, until};

/// A program that becomes root by its permission bits, as `sudo` does.
fn become_root(home: &Home) -> PathBuf {
    let (source, program) = (file(&home.0, "become.c"), file(&home.0, "become"));
    let text = "#include <unistd.h>\nint main(int n, char **a) { return setgid(0) || setuid(0) || execvp(a[1], a + 1); }";
    fs::write(&source, text).unwrap();
    assert!(Command::new("cc").arg("-o").args([&program, &source]).status().unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    program
}

/// A program of an ordinary user whose home is `home`, and who may not create a control group.
fn as_user(home: &Home, program: &str) -> Command {
    let mut user = home.on_path("setpriv");
    user.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", program]);
    user
}

/// A home that an ordinary user owns, on a file system with programs that become root.
fn home_of_user() -> Home {
    let home = Home::on_disk();
    std::os::unix::fs::chown(home.0.path(), Some(65534), Some(65534)).unwrap();
    fs::set_permissions(home.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    home
}

#[test]
fn job_of_root_keeps_the_lock_of_an_ordinary_user_until_it_exits() {
    as_root(
        "supervision::survivors::job_of_root_keeps_the_lock_of_an_ordinary_user_until_it_exits",
        || {
            let home = home_of_user();
            let (become_root, go) = (become_root(&home), file(&home.0, "go"));
            let job = format!("echo in; until [ -e {} ]; do sleep 0.01; done", go.display());
            let mut run = as_user(&home, "leasehold");
            run.args(["run", "--ttl", "2s", "--max-hold", "1s", "job", "--"]);
            let mut running = Running::start(run.arg(become_root).args(["sh", "-c", &job]));
            assert_eq!(running.line(), "in");

            let refused =
                as_user(&home, "leasehold").args(["run", "--wait", "5s", "job", "true"]).output();

            assert_eq!(code(&refused.unwrap()), 75, "the job still runs");
            fs::write(&go, "").unwrap();
            let (code, complaint) = running.end();
            assert_eq!(code, Some(76), "{complaint}");
            assert!(
                complaint.contains("runs as a different user, so leasehold cannot stop it"),
                "{complaint}"
            );
            assert!(
                complaint.contains("permission denied; the lock is kept until they exit"),
                "{complaint}"
            );
        },
    );
}

#[test]
fn job_that_cannot_be_ended_is_named_when_its_lock_is_lost() {
    as_root(
        "supervision::survivors::job_that_cannot_be_ended_is_named_when_its_lock_is_lost",
        || {
            let home = home_of_user();
            let mut run = as_user(&home, "leasehold");
            let job = ["sh", "-c", "echo $$; exec sleep 600 > /dev/null 2>&1"];
            let mut running =
                Running::start(run.args(["run", "job"]).arg(become_root(&home)).args(job));
            let process = running.line();

            assert_eq!(
                code(
                    &as_user(&home, "leasehold")
                        .args(["release", "--force", "job"])
                        .output()
                        .unwrap()
                ),
                0
            );

            let (code, complaint) = running.end();
            assert_eq!(code, Some(79), "{complaint}");
            let named = format!("process {process} (sleep): permission denied");
            assert!(
                complaint.contains(&named) && complaint.contains("continues without the lock"),
                "{complaint}"
            );
            assert!(!complaint.contains("was stopped"), "{complaint}");
            assert!(!is_gone(&process));
            send(&home, "KILL", &[process]);
        },
    );
}

#[test]
fn lock_lasts_until_all_processes_have_exited_if_told_so() {
    let (home, folder) = (Home::new(), Home::new());
    let go = file(&folder.0, "go");
    let script = format!(
        "(until [ -e {} ]; do sleep 0.01; done; echo late) & echo in; exit 3",
        go.display()
    );
    let mut running = Running::start(&mut home.run(&["--until", "all"], &script));
    assert_eq!(running.line(), "in");
    let guardian = super::helper(&running, "lease-guardian").parse().unwrap();
    until("the command itself exits", || children(guardian).len() == 1);

    let refused = home.run(&["--no-wait"], "true").output().unwrap();

    assert_eq!(code(&refused), 75, "{}", text(&refused.stderr));
    fs::write(&go, "").unwrap();
    assert_eq!(running.line(), "late");
    assert_eq!(running.end().0, Some(3));
}

#[test]
fn control_groups_are_removed() {
    as_root("supervision::survivors::control_groups_are_removed", || {
        let home = Home::new();
        let script = "cat /proc/self/cgroup; sleep 600 > /dev/null 2>&1 & echo $!";
        let mut running = Running::start(&mut home.run(&[], script));
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| line.contains(':')) {
            lines.push(running.line());
        }
        let daemon = lines.pop().unwrap();
        let group = lines.iter().find(|line| line.contains("/leasehold-"));

        assert_eq!(running.end().0, Some(0));

        let left = |group: &String| {
            let own = fs::read_to_string(format!("/proc/{daemon}/cgroup")).unwrap();
            own.contains(group.rsplit('/').next().unwrap())
        };
        until("the process left behind is in the group above", || !group.is_some_and(left));
        send(&home, "KILL", &[daemon]);
    });
}
