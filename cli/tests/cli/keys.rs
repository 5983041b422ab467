//! Names of locks: those that look like options, and those that are no text.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::support::{Home, Running, code, text};

#[test]
fn command_finds_the_name_that_it_may_give_back() {
    let home = Home::new();
    for name in [OsString::from("a b/{ü}%20"), OsString::from_vec(b"a\xff\nb".to_vec())] {
        let mut run = home.on_path(env!("CARGO_BIN_EXE_leasehold"));
        run.arg("run").arg(&name);
        run.args([
            "--",
            "sh",
            "-c",
            "leasehold status --quiet \"$LEASEHOLD_KEY\" && printf %s \"$LEASEHOLD_KEY\" >&2",
        ]);

        let output = run.output().unwrap();

        assert_eq!(code(&output), 0, "it is held: {}", text(&output.stderr));
        assert_eq!(OsStr::from_bytes(&output.stderr), name);
        assert!(output.stdout.starts_with(name.as_bytes()), "{}", text(&output.stdout));
    }
}

#[test]
fn json_has_the_name_itself() {
    let home = Home::new();
    let status = |name: &OsStr| {
        let output = home.leasehold().args(["status", "--json"]).arg(name).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };

    assert_eq!(status(OsStr::new("a b"))["key"], "a b");
    let binary = status(OsStr::from_bytes(b"a\xff"));
    assert_eq!(binary["key_bytes"], serde_json::json!([97, 255]));
}

#[test]
fn name_may_begin_with_a_dash() {
    let home = Home::new();
    for command in [&["--", "-job", "echo", "ran"][..], &["--", "-job", "--", "echo", "ran"]] {
        let output = home.leasehold().arg("run").args(command).output().unwrap();
        assert_eq!((code(&output), text(&output.stdout).trim()), (0, "ran"), "{command:?}");
    }
    let status = home.leasehold().args(["status", "--", "-job"]).output().unwrap();
    assert_eq!(code(&status), 1);
    assert!(text(&status.stdout).starts_with("-job: free\n"), "{}", text(&status.stdout));
}

#[test]
fn refusal_escapes_what_a_terminal_would_act_upon() {
    let home = Home::new();
    let name = "red\x1b[31m";
    let mut holder = home.leasehold();
    let mut holder =
        Running::start(holder.args(["run", name, "--", "sh", "-c", "echo in; sleep 60"]));
    assert_eq!(holder.line(), "in");

    let refused = home.leasehold().args(["run", "--no-wait", name, "--", "true"]).output().unwrap();

    let said = text(&refused.stderr);
    assert_eq!(code(&refused), 75);
    assert!(said.starts_with("leasehold: \"red\\u{1b}[31m\" is locked by"), "{said}");
    assert!(said.contains(&format!("/{} (lease ", holder.id())), "it names the holder: {said}");
}
