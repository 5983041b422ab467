//! The command on a terminal.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::support::{Home, Running, is_gone, until};

/// A shell's line on a terminal of its own.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Lines<BufReader<ChildStdout>>,
}

impl Terminal {
    fn start(home: &Home, line: &str) -> Self {
        // The first command of a user says where its file is.
        home.verb(&["status"]);
        let mut command = home.on_path("script");
        command.args(["--quiet", "--return", "--echo", "never", "--command", line, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, keys, screen: BufReader::new(screen).lines() }
    }

    fn line(&mut self) -> String {
        self.screen.next().expect("it says more").unwrap().trim_end().to_owned()
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Waits until it ends: the rest of its output, and its exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let rest: Vec<String> = self.screen.by_ref().map(Result::unwrap).collect();
        (rest.join("\n"), self.child.wait().unwrap().code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn loss_ends_all_that_the_command_has_started() {
    let home = Home::new();
    let line = "leasehold run job -- sh -c 'sleep 600 & echo $!; wait'; echo ended: $?; read end";
    let mut terminal = Terminal::start(&home, line);
    let sleep = terminal.line();
    assert!(!is_gone(&sleep));

    home.verb(&["release", "--force"]);

    while terminal.line() != "ended: 76" {}
    assert!(is_gone(&sleep), "it goes on without the lock");
}

#[test]
fn signal_ends_all_that_the_command_has_started() {
    let home = Home::new();
    let line = "leasehold run job -- sh -c 'sleep 600 & echo $! $(ps -o ppid= $PPID); wait'; echo ended: $?; read end";
    let mut terminal = Terminal::start(&home, line);
    let said = terminal.line();
    let (sleep, leasehold) = said.split_once(' ').unwrap();

    home.on_path("kill").args(["-s", "TERM", leasehold]).status().unwrap();

    while terminal.line() != "ended: 143" {}
    until("the other process ends", || is_gone(sleep));
}

#[test]
fn command_behind_a_pipe_reads_from_the_terminal() {
    let home = Home::new();
    let line = "echo x | leasehold run job -- sh -c 'echo ready; read answer < /dev/tty; echo got $answer'";
    let mut terminal = Terminal::start(&home, line);
    assert_eq!(terminal.line(), "ready");

    terminal.press(b"yes\n");

    assert_eq!(terminal.line(), "got yes");
    assert_eq!(terminal.end().1, Some(0));
}

#[test]
fn key_of_the_terminal_ends_a_command_behind_a_pipe() {
    let home = Home::new();
    let script = "trap \"echo interrupted; exit 5\" INT; echo in; while true; do sleep 0.01; done";
    let line = format!("echo x | leasehold run job -- sh -c '{script}'");
    let mut terminal = Terminal::start(&home, &line);
    assert_eq!(terminal.line(), "in");

    terminal.press(b"\x03");

    let (said, _) = terminal.end();
    assert_eq!(said.matches("interrupted").count(), 1, "{said}");
    assert_eq!(home.verb(&["status"]).status.code(), Some(1), "the lock is free");
}

#[test]
fn neighbour_in_a_pipe_keeps_the_terminal() {
    let home = Home::new();
    let line =
        "leasehold run job -- echo x | sh -c 'read x; read answer < /dev/tty; echo $x $answer'";
    let mut terminal = Terminal::start(&home, line);

    terminal.press(b"yes\n");

    assert_eq!(terminal.line(), "x yes");
    assert_eq!(terminal.end().1, Some(0));
}

#[test]
fn live_view_ends_by_its_keys_although_stdin_is_not_the_terminal() {
    let home = Home::new();
    for (keys, code) in [(&b"q"[..], Some(0)), (b"\x03", Some(130))] {
        let mut terminal = Terminal::start(&home, "leasehold top < /dev/null");
        while !terminal.line().contains("KEY") {}

        terminal.press(keys);

        assert_eq!(terminal.end().1, code);
    }
}

#[test]
fn command_in_the_background_does_not_write_where_the_user_types() {
    let home = Home::new();
    let mut holder = Running::start(home.leasehold().args(["hold", "job"]));
    holder.line();
    // An interactive shell gives its jobs process groups of their own.
    let line =
        "bash --norc -i -c 'set -m; leasehold run --wait 4s job true & wait $!; echo ended: $?'";
    let mut terminal = Terminal::start(&home, line);

    let mut said = String::new();
    while !said.contains("ended: 75") {
        said += &terminal.line();
    }

    assert!(said.contains("still locked after"), "{said}");
    assert!(!said.contains("\x1b[K"), "{said:?}");
}
