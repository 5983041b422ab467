//! A command that runs under a lock, with all processes that it starts.
//!
//! ```text
//! leasehold ── guardian ── command ── …     the guardian ends the command if leasehold is killed or paused
//!          └── canary                       shows whether a signal was sent to leasehold alone
//! ```

mod canary;
mod cgroup;
mod clock;
mod command;
mod guardian;
mod helper;
mod link;
mod tree;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

use rustix::process::{Signal, WaitOptions, geteuid, wait};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::exit::{self, Failure};
use cgroup::Cgroup;
use helper::Helper;
use link::{Begin, Link, Order};
use tree::Tree;

pub(crate) use canary::Canary;
pub(crate) use clock::{Cutoff, boot_clock};
pub(crate) use link::{Reach, Report, Survivor};

/// If the guardian has not ended the command this long after the cutoff, this process does. The guardian usually needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program with this permission bit runs as the owner of its file.
const SET_USER_ID: u32 = 0o4000;

/// Runs the helper if this process was started as one. Returns `None` if it was not.
pub(crate) fn run_helper() -> Option<Result<(), Failure>> {
    let helper = Helper::of_this_process()?;
    let words: Vec<OsString> = env::args_os().skip(2).collect();
    Some(match helper {
        Helper::Guardian => guardian::run(&words).map_err(|error| unsupervised(&error)),
        Helper::Canary => canary::run(&words),
        Helper::Command => Err(command::run(&words)),
    })
}

/// Prepares this process for supervising commands.
///
/// # Errors
///
/// Fails if the operating system refuses what supervision needs.
pub(crate) fn prepare() -> Result<(), Failure> {
    let prepared = Tree::plant().and_then(|_| reap_others());
    prepared.map_err(|error| unsupervised(&error))
}

/// A command and its guardian.
#[derive(Debug)]
pub(crate) struct Job {
    link: Link,
    tree: Tree,
    cgroup: Option<Cgroup>,
    /// The cutoff by which the guardian must have ended the command or reported survivors.
    answer_due: Option<Cutoff>,
}

impl Job {
    /// Starts `command`, with variables that are added to its environment and others that are removed. If `cutoff` is `None`, the command
    /// may outlive this process.
    pub(crate) async fn start(
        command: &[OsString],
        env: (&[(OsString, OsString)], &[&str]),
        cutoff: Option<Cutoff>,
    ) -> Result<Self, Failure> {
        let cgroup = cutoff.and_then(|_| Cgroup::create());
        if cutoff.is_some() && cgroup.is_none() {
            warn_of_another_user(&command[0]);
        }
        let started = async {
            let tree = Tree::plant()?;
            let path = cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
            let supervisor = i32::try_from(process::id()).map_err(io::Error::other)?;
            let begin = Begin { supervisor, cutoff, cgroup: path };
            let link = Link::new(start_guardian(command, env, &begin)?)?;
            io::Result::Ok(Self { link, tree, cgroup, answer_due: cutoff })
        };
        let mut job = started.await.map_err(|error| unsupervised(&error))?;
        match job.link.next().await {
            Some(Report::Started) => Ok(job),
            Some(Report::NotStarted(why)) => Err(unsupervised(&io::Error::other(why))),
            _ => Err(unsupervised(&io::Error::other("its guardian exited immediately"))),
        }
    }

    /// Waits for the next report of the guardian. Returns `None` if the guardian has exited, or has not ended the command in time.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(crate) async fn report(&mut self) -> Option<Report> {
        let answer = self.answer_due.map(|cutoff| cutoff.remaining() + PATIENCE);
        let report = tokio::select! {
            biased;
            report = self.link.next() => report,
            () = sleep(answer.unwrap_or_default()), if answer.is_some() => None,
        };
        if let Some(Report::Survivors(_)) = report {
            self.answer_due = None;
        }
        report
    }

    /// Whether the guardian should have ended the command by now.
    pub(crate) fn is_overdue(&self) -> bool {
        self.answer_due.is_some_and(|cutoff| cutoff.remaining().is_zero())
    }

    /// Sets a new cutoff. If the old one has passed, the new one can only be earlier.
    pub(crate) fn set_cutoff(&mut self, cutoff: Cutoff) {
        self.answer_due = Some(cutoff);
        self.link.send(&Order::Until(cutoff));
    }

    pub(crate) fn signal(&self, signal: Signal, reach: Reach) {
        self.link.send(&Order::Signal(signal.as_raw(), reach));
    }

    /// Dismisses the guardian. Processes that the command has left behind continue to run.
    pub(crate) fn leave(&self) {
        self.link.send(&Order::Leave);
    }

    /// Ends all processes after the guardian has exited or stopped responding. Returns the processes that are still running.
    pub(crate) async fn end_without_guardian(&mut self) -> Vec<Survivor> {
        let began = Instant::now();
        loop {
            if let Some(cgroup) = &mut self.cgroup {
                cgroup.kill();
            }
            let unreached = self.tree.signal(Signal::KILL).unwrap_or_default();
            reap();
            let running = self.tree.running().unwrap_or_default();
            if running.is_empty() || began.elapsed() > PATIENCE {
                let is_known = |pid| unreached.iter().any(|known: &Survivor| known.pid == pid);
                let reached = running.into_iter().filter(|it| !is_known(it.pid)).collect();
                return [unreached, reached].concat();
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Starts the guardian, which starts the command.
fn start_guardian(
    command: &[OsString],
    (added, removed): (&[(OsString, OsString)], &[&str]),
    begin: &Begin,
) -> io::Result<StdStream> {
    let (ours, theirs) = StdStream::pair()?;
    let mut start = Helper::Guardian.start();
    start.args(command).stdin(OwnedFd::from(theirs));
    // In a nested run, the variables of the outer lock would be mistaken for variables of the inner lock.
    for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name)) {
        start.env_remove(name);
    }
    for name in removed {
        start.env_remove(name);
    }
    start.envs(added.iter().map(|(name, value)| (name, value)));
    start.spawn()?;
    link::send_begin(&ours, begin, io::stdin())?;
    Ok(ours)
}

/// Warns if the command will run as another user because of its permission bits, like `sudo`. This process cannot end such a command.
fn warn_of_another_user(command: &OsStr) {
    let uid = geteuid();
    let folders = env::var_os("PATH").unwrap_or_default();
    let program = match command.as_encoded_bytes().contains(&b'/') {
        true => Some(PathBuf::from(command)),
        false => env::split_paths(&folders).map(|it| it.join(command)).find(|it| it.is_file()),
    };
    let Some(file) = program.and_then(|program| program.metadata().ok()) else { return };
    if !uid.is_root() && file.mode() & SET_USER_ID != 0 && file.uid() != uid.as_raw() {
        let name = crate::key::escape(command.as_encoded_bytes());
        crate::out::warn(format!(
            "{name} runs as a different user, so leasehold cannot stop it; the lock is kept as long as {name} runs"
        ));
    }
}

/// Whether a variable describes a lock to the command that runs under it.
fn is_ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"LEASEHOLD_KEY") || name.starts_with(b"LEASEHOLD_TOKEN")
}

/// Starts a task that reaps children, including orphans that this process has adopted.
///
/// The task waits for a second after each exit, because [`Canary::died`] needs the exit status of the canary.
fn reap_others() -> io::Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    tokio::spawn(async move {
        loop {
            deaths.recv().await;
            sleep(Duration::from_secs(1)).await;
            reap();
        }
    });
    Ok(())
}

fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn unsupervised(error: &io::Error) -> Failure {
    Failure::new(exit::UNSUPERVISED, format!("cannot supervise the command: {error}"))
}
