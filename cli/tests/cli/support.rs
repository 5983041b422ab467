//! The tools of all tests of the command.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_conformance::stalls::{Measured, measure};
use leasehold_testbed::{Folder, patiently};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The time for a process to start, and for its first step, on a machine that does not stall.
pub(crate) const PROMPT: Duration = Duration::from_millis(500);

/// Takes a measurement by [`measure`].
pub(crate) fn measured(measurement: impl Fn() -> Measured) {
    let measured = pin!(measure(async || measurement()));
    assert!(measured.poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

/// `leasehold`, with the store at `url`.
pub(crate) fn leasehold_on(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env("LEASEHOLD_BACKEND", patiently(url)).stdin(Stdio::null());
    command
}

/// `leasehold run`, with the shell script `script` as its command.
pub(crate) fn run_on(url: &str, options: &[&str], script: &str) -> Command {
    let mut command = leasehold_on(url);
    command.arg("run").args(options).args(["job", "--", "sh", "-c", script]);
    command
}

/// The home folder of a user without any locks yet.
pub(crate) struct Home(pub(crate) Folder);

impl Home {
    pub(crate) fn new() -> Self {
        Self(Folder::in_memory("home-"))
    }

    /// Where programs can have permission bits, unlike in memory.
    pub(crate) fn on_disk() -> Self {
        Self(Folder::on_disk("home-"))
    }

    pub(crate) fn leasehold(&self) -> Command {
        self.on_path(env!("CARGO_BIN_EXE_leasehold"))
    }

    /// Another program of this user's, which finds `leasehold`.
    pub(crate) fn on_path(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let bin = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("HOME", self.0.path()).env("PATH", path).stdin(Stdio::null());
        // Without this, each command would say that its lock is local.
        command.env("LEASEHOLD_BACKEND", "local").env_remove("XDG_STATE_HOME");
        command.env_remove("XDG_CONFIG_HOME");
        command
    }

    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.leasehold();
        command.arg("run").args(options).args(["job", "--", "sh", "-c", script]);
        command
    }

    /// Another verb about the lock of [`run`](Self::run).
    pub(crate) fn verb(&self, verb: &[&str]) -> Output {
        self.leasehold().args(verb).arg("job").output().unwrap()
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.0.path().join(".local/state/leasehold/locks.db")
    }
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command that is killed when the test ends, and its output.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        if self.lines.buffer().is_empty() {
            let mut output = [PollFd::new(self.lines.get_ref(), PollFlags::IN)];
            let ready = poll(&mut output, Some(&Timespec::try_from(SOON).unwrap())).unwrap();
            assert_eq!(ready, 1, "it says nothing more");
        }
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits until all processes have ended that write to its output, and expects nothing more of them.
    pub(crate) fn falls_silent(mut self) {
        let (sender, said) = mpsc::channel();
        thread::spawn(move || sender.send(self.line()));
        assert_eq!(said.recv_timeout(SOON), Ok(String::new()));
    }

    /// Waits until it ends: its exit code and its complaints.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let process = Pid::from_child(&self.child);
        let process = pidfd_open(process, PidfdFlags::empty()).unwrap();
        let limit = Timespec::try_from(SOON).unwrap();
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "it does not end");
        let status = self.child.wait().unwrap();
        let mut complaint = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        (status.code(), complaint)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Waits until `condition` holds.
pub(crate) fn until(event: &str, mut condition: impl FnMut() -> bool) {
    let give_up = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < give_up, "it does not come: {event}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has ended, though its parent may not know yet.
pub(crate) fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

pub(crate) fn file(folder: &Folder, name: &str) -> PathBuf {
    folder.path().join(name)
}

/// Runs a command that is to end with this code, and to say why without telling a secret.
pub(crate) fn fails(command: &mut Command, expected: i32, says: &str) {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(code(&output), expected, "{command:?}: {said}");
    assert!(said.contains(says), "{command:?}: {said}");
    assert!(!said.contains("S3CR3T"), "{said}");
    assert_eq!(text(&output.stdout), "");
}
