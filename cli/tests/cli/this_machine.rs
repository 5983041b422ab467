//! The command without a named store: a file of the user's, for the processes of this machine.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use leasehold_conformance::stalls::Stalls;
use leasehold_testbed::Folder;

use crate::support::{Home, PROMPT, Running, code, fails, file, measured, text};

#[test]
fn the_first_command_creates_a_file_for_its_user_alone() {
    let home = Home::new();

    let output = home.run(&[], "echo $LEASEHOLD_TOKEN").output().unwrap();

    assert_eq!((code(&output), text(&output.stderr)), (0, String::new()));
    assert!(text(&output.stdout).trim().parse::<u64>().unwrap() > 1_000_000_000_000_000);
    let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.locks()), 0o600);
    assert_eq!(mode(home.locks().parent().unwrap().to_owned()), 0o700);
}

#[test]
fn two_shells_exclude_each_other() {
    let home = Home::new();
    let go = file(&home.0, "go");
    let script = format!("echo in; while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let mut first = Running::start(&mut home.run(&[], &script));
    assert_eq!(first.line(), "in");

    assert_eq!(code(&home.run(&["--no-wait"], "true").output().unwrap()), 75);
    let status = home.leasehold().args(["status", "job"]).output().unwrap();
    assert_eq!(code(&status), 0, "{}", text(&status.stdout));
    let mut second = Running::start(&mut home.run(&[], "echo in"));
    std::fs::write(go, "").unwrap();

    assert_eq!(first.end().0, Some(0));
    assert_eq!(second.line(), "in");
    assert_eq!(second.end().0, Some(0));
}

#[test]
fn list_shows_locks_with_their_holders() {
    let home = Home::new();
    let list = |args: &[&str]| home.leasehold().arg("list").args(args).output().unwrap();
    assert_eq!(code(&list(&[])), 1, "none is held");
    let mut holder = Running::start(&mut home.run(&[], "echo $LEASEHOLD_TOKEN; sleep 60"));
    let token = holder.line();

    let shown = list(&[]);
    let json: serde_json::Value = serde_json::from_slice(&list(&["--json", "jo"]).stdout).unwrap();

    assert_eq!(code(&shown), 0);
    let said = text(&shown.stdout);
    assert!(said.starts_with("job: held by ") && said.contains(&holder.id().to_string()), "{said}");
    assert_eq!((&json["key"], &json["kind"]), (&"job".into(), &"mutex".into()));
    assert_eq!(json["holders"][0]["token"].to_string(), token);
    assert_eq!(code(&list(&["other"])), 1);

    // Without a terminal, `top` shows one view and ends.
    let view = home.leasehold().arg("top").output().unwrap();
    assert_eq!(code(&view), 0);
    assert!(text(&view.stdout).lines().nth(1).unwrap().starts_with("job "), "{view:?}");
}

#[test]
fn a_killed_command_frees_its_key_within_the_ttl() {
    measured(|| {
        let home = Home::new();
        let ttl = Duration::from_secs(2);
        let mut first = Running::start(&mut home.run(&["--ttl", "2s"], "echo in; sleep 60"));
        assert_eq!(first.line(), "in");

        let (stalls, killed_at) = (Stalls::watch(), Instant::now());
        first.signal("KILL");

        let next = home.run(&[], "true").output().unwrap();
        assert_eq!(code(&next), 0, "{}", text(&next.stderr));
        stalls.in_time("the next command", killed_at.elapsed(), ttl + PROMPT)
    });
}

#[test]
fn a_job_that_is_over_keeps_the_lock_closed_for_its_minimum() {
    let home = Home::new();
    let log = file(&home.0, "log");
    let script = format!("echo ran >> {}", log.display());
    let options = ["--no-wait", "--min-hold", "1h"];

    let codes: Vec<_> =
        (0..3).map(|_| code(&home.run(&options, &script).output().unwrap())).collect();

    assert_eq!(codes, [0, 75, 75], "as cron runs it on three machines");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "ran\n");
}

#[test]
fn the_state_folder_may_be_another_one() {
    let (home, state) = (Home::new(), Folder::in_memory("test-"));

    let mut command = home.run(&[], "true");
    assert_eq!(code(&command.env("XDG_STATE_HOME", state.path()).output().unwrap()), 0);

    assert!(state.path().join("leasehold/locks.db").exists());
    assert!(!home.locks().exists());
}

#[test]
fn a_user_without_a_home_names_a_store() {
    let home = Home::new();

    let mut command = home.run(&[], "true");

    fails(command.env_remove("HOME"), 64, "--backend");
}

#[test]
fn the_help_says_that_the_file_does_not_exclude_other_users() {
    let home = Home::new();

    for args in [&["status", "--help"][..], &["run", "--help"], &["elect", "--help"]] {
        let help = home.leasehold().args(args).output().unwrap().stdout;
        let words: Vec<_> = text(&help).split_whitespace().map(ToOwned::to_owned).collect();
        let notice = "Other users, including root, have separate lock files";
        assert!(words.join(" ").contains(notice), "{args:?}");
    }
}

#[test]
fn doctor_looks_at_the_file_that_commands_use_whatever_the_home_is_called() {
    for name in [&b"a%41b"[..], b"a?b", b"a#b", b"a b", b"\xff"] {
        let home = Home::new();
        let name = home.0.path().join(OsString::from_vec(name.to_vec()));
        fs::create_dir(&name).unwrap();
        let ran = home.run(&[], "true").env("HOME", &name).output().unwrap();
        assert_eq!(code(&ran), 0, "{}", text(&ran.stderr));

        let doctor = home.leasehold().arg("doctor").env("HOME", &name).output().unwrap();

        assert_eq!(code(&doctor), 0, "{name:?}: {}", text(&doctor.stderr));
        assert_eq!(fs::read_dir(home.0.path()).unwrap().count(), 1, "{name:?}: another file");
    }
}

#[test]
fn a_path_that_names_another_file_in_each_directory_is_refused() {
    let home = Home::new();
    let config = file(&home.0, "config");
    fs::write(&config, "backend = sqlite:locks.db").unwrap();
    for url in
        ["sqlite:~/locks.db", "sqlite:locks.db", "sqlite://locks.db", "sqlite:$HOME/locks.db"]
    {
        fails(home.run(&[], "true").env("LEASEHOLD_BACKEND", url), 64, "use an absolute path");
    }
    fails(
        home.run(&[], "true").env("LEASEHOLD_CONFIG", config).env_remove("LEASEHOLD_BACKEND"),
        64,
        "the configuration file",
    );
    for url in ["sqlite:~/locks.db", "sqlite:$HOME/locks.db"] {
        fails(&mut home.run(&["--backend", url], "true"), 64, "use an absolute path");
    }

    // A path on the command line starts at the directory of the command line.
    let mut typed = home.run(&["--backend", "sqlite:locks.db"], "true");
    assert_eq!(code(&typed.current_dir(home.0.path()).output().unwrap()), 0);

    assert!(file(&home.0, "locks.db").exists());
}

#[test]
fn files_that_cannot_be_used_have_a_reason_and_an_exit_code() {
    let home = Home::new();
    let [text, directory, linked] = ["text", "directory", "linked"].map(|it| file(&home.0, it));
    fs::write(&text, "dear diary, ".repeat(1000)).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(&linked, "").unwrap();
    fs::hard_link(&linked, file(&home.0, "link")).unwrap();

    for (path, exit, says) in [
        (text, 65, "not a SQLite database; choose another path"),
        (directory, 73, "not a regular file; choose another path"),
        (linked, 73, "remove one of the names"),
        ("/proc/nowhere/locks.db".into(), 73, "cannot create directory /proc/nowhere"),
    ] {
        let url = format!("sqlite:{}", path.display());
        fails(&mut home.run(&["--backend", &url], "true"), exit, says);
    }
}

#[test]
fn a_user_whose_file_cannot_be_used_is_told_of_other_ones() {
    let home = Home::new();
    fs::create_dir_all(home.locks()).unwrap();

    fails(&mut home.run(&[], "true"), 73, "XDG_STATE_HOME");
}

#[test]
fn another_user_may_not_lock_in_a_file_that_is_not_shared() {
    let home = Home::new();
    assert_eq!(code(&home.run(&[], "true").output().unwrap()), 0);
    fs::set_permissions(home.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for directory in home.locks().ancestors().skip(1).take(3) {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }

    // By its descriptor, as this user may not reach it by its path. A test that does not run as root has other users in a namespace.
    let script = r#"exec 9<"$0"; exec setpriv --reuid 1 --regid 1 --clear-groups /proc/self/fd/9 run job true"#;
    let mut command = home.on_path("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-auto", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_leasehold")]);

    fails(&mut command, 77, "user 1 is not allowed to write");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_ends_commands_as_it_does_without_a_lock() {
    let home = Home::new();
    // In units of 512 bytes or of a KiB.
    let limited = |blocks: u32, job: &str| {
        let script = format!("ulimit -f {blocks}; exec \"$0\" run job sh -c '{job}'");
        let mut command = home.on_path("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_leasehold")]);
        command
    };

    fails(&mut limited(1, "true"), 73, "File too large");
    let large = file(&home.0, "large");
    let job = format!("exec head -c 2000000 /dev/zero >{}", large.display());
    assert_eq!(code(&limited(1000, &job).output().unwrap()), 128 + 25, "SIGXFSZ");
}
