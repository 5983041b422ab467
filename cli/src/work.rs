//! A command that runs while a lock is held for it.

use std::ffi::OsString;
use std::future::pending;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use leasehold::{Error, LockClient, LossReason};
use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout};

use crate::exit::{self, Failure};
use crate::held::Held;
use crate::job::{Cutoff, Job, Reach, Report, Survivor};
use crate::key::Key;
use crate::lease::LeaseArgs;
use crate::obtain::GOODBYE;
use crate::out;
use crate::signals::Signals;
use crate::time::{self, Time};

/// The default of `--kill-after`.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Why a lock was released after `--max-hold`.
pub(crate) const AT_ITS_LIMIT: &str = "the time limit set by --max-hold has expired";

/// How long to try to release a lock if the store has stopped responding. Enough for one request that succeeds after all.
const FAREWELL: Duration = Duration::from_millis(100);

/// The longest time between a renewal and the message about it to the guardian.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// How the command is started, and how it ends if its lock is lost or requested.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Command")]
pub(crate) struct StopArgs {
    /// What to do if the lock is lost.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// What to do if `leasehold release --ask` requests the lock.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnAsked::Term)]
    pub(crate) on_asked: OnAsked,

    /// Time between SIGTERM and SIGKILL when the lock is about to be lost. The time is limited to one third of the TTL or of --max-hold,
    /// whichever is shorter.
    ///
    /// [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) kill_after: Option<Time>,

    /// When to release the lock: when the command exits, or when all processes that it started have exited.
    #[arg(long, value_name = "EVENT", value_enum, default_value_t = Until::Command)]
    pub(crate) until: Until,

    /// Remove LEASEHOLD_BACKEND, the URL of the store, from the environment of the command.
    ///
    /// Use this option if the URL contains a password that the command should not see. If the command itself calls `leasehold`, that call
    /// then needs a --backend option.
    #[arg(long)]
    pub(crate) hide_backend: bool,
}

/// When the lock is released.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Until {
    /// When the command exits. Background processes of the command continue without the lock.
    Command,
    /// When all processes that the command started have exited, including background processes.
    All,
}

/// What to do with a command whose lock is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnLost {
    /// If the lease is about to expire, send SIGTERM, and send SIGKILL before it expires. If the lease has already ended, for example after
    /// a forced release, send SIGKILL immediately.
    Term,
    /// Let the command continue without the lock.
    Ignore,
}

/// What to do with a command whose lock is requested.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnAsked {
    /// Send SIGTERM and wait for the command to exit.
    Term,
    /// Let the command continue.
    Ignore,
}

/// A command without the `--` in front of it. Clap passes it on if there is another `--` in front of the key.
pub(crate) fn without_dashes(command: &[OsString]) -> &[OsString] {
    match command {
        [dashes, command @ ..] if dashes == "--" && !command.is_empty() => command,
        command => command,
    }
}

/// A command and its lock.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    client: &'a LockClient,
    keys: &'a [Key],
    held: Held,
    stop: &'a StopArgs,
    ttl: Duration,
    /// The value of `--max-hold`, and when it ends.
    limit: Option<(Duration, Instant)>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    Itself(ExitStatus),
    /// The guardian ended the command because the lease was lost or about to expire, or because of `--max-hold`.
    Stopped {
        is_at_its_limit: bool,
    },
    /// The command was ended because its guardian was killed.
    Unguarded,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        client: &'a LockClient,
        keys: &'a [Key],
        held: Held,
        lease: &LeaseArgs,
        stop: &'a StopArgs,
    ) -> Self {
        let limit = lease.max_hold().map(|limit| (limit, Instant::now() + limit));
        Self { client, keys, held, stop, ttl: lease.ttl(client), limit }
    }

    /// Runs the command, and then releases the lock.
    pub(crate) async fn run(
        self,
        command: &[OsString],
        signals: &mut Signals,
    ) -> Result<ExitCode, Failure> {
        self.warn_of_a_short_end();
        let env = environment(self.keys, &self.held);
        let removed: &[&str] = if self.stop.hide_backend { &["LEASEHOLD_BACKEND"] } else { &[] };
        let mut job = match Job::start(command, (&env, removed), self.cutoff()).await {
            Ok(job) => job,
            Err(failure) => {
                drop(self.held.release().await);
                drop(self.client.shutdown(GOODBYE).await);
                return Err(failure);
            }
        };
        let ended = Watch::new(&self).run(&mut job, command, signals).await?;
        job.leave();
        self.end(ended).await
    }

    /// When the guardian must end the command unless the lease is renewed. `None` if the command may continue without the lock.
    fn cutoff(&self) -> Option<Cutoff> {
        (self.stop.on_lost == OnLost::Term).then(|| {
            let left = || self.lease_left().min(self.limit_left());
            Cutoff::after(left, self.kill_after())
        })
    }

    /// The reason for ending the command when its cutoff passes.
    fn stopped(&self) -> Ended {
        Ended::Stopped { is_at_its_limit: self.limit_left() < self.lease_left() }
    }

    fn lease_left(&self) -> Duration {
        self.held.remaining().saturating_sub(self.margin())
    }

    fn limit_left(&self) -> Duration {
        self.limit.map_or(Duration::MAX, |(_, end)| end.saturating_duration_since(Instant::now()))
    }

    /// Releases the lock if it is still held. Returns the exit code of the command, or an error that says why the command was ended.
    async fn end(self, ended: Ended) -> Result<ExitCode, Failure> {
        let lost = self.held.lost_for();
        let patience = match (ended, lost) {
            // The lease has expired, so there is nothing to release.
            (_, Some(LossReason::Expired)) => Duration::ZERO,
            // The store has not responded for a long time, and the lease expires soon.
            (Ended::Stopped { is_at_its_limit: false }, None) => FAREWELL,
            (Ended::Stopped { .. } | Ended::Unguarded, _) => GOODBYE,
            // The release has its own time limits.
            (Ended::Itself(_), _) => Duration::MAX,
        };
        let Self { client, keys, held, stop, .. } = self;
        let goodbye = async {
            let released = held.release().await;
            // In some stores, the client's session would outlive this process.
            drop(client.shutdown(GOODBYE).await);
            released
        };
        let released = timeout(patience, goodbye).await.unwrap_or(Ok(()));
        let (key, failed) = (keys[0].quoted(), released.err());
        // The release may report a loss that was not known before.
        let lost = lost.or_else(|| failed.as_ref().and_then(Error::loss));
        let status = match (ended, lost) {
            (Ended::Itself(status), _) => exit::of_child(status),
            (Ended::Unguarded, None) => {
                let message = format!(
                    "lock {key} was released because the command's guardian process was killed. The command was stopped"
                );
                return Err(Failure::new(exit::UNSUPERVISED, message));
            }
            (Ended::Stopped { is_at_its_limit: true }, None) => {
                let message =
                    format!("lock {key} was released: {AT_ITS_LIMIT}. The command was stopped");
                return Err(lost_failure(&keys[0], message));
            }
            (Ended::Stopped { .. } | Ended::Unguarded, lost) => {
                let message =
                    format!("lock {key} was lost: {}. The command was stopped", why(lost));
                return Err(lost_failure(&keys[0], message));
            }
        };
        match (lost, failed) {
            (None, None) => {}
            (None, Some(error)) => {
                out::warn(format!("{}; the lock expires after its TTL", exit::with_causes(&error)));
            }
            (Some(_), _) if stop.on_lost == OnLost::Term => {
                let message = format!("lock {key} was lost while the command ran: {}", why(lost));
                return Err(lost_failure(&keys[0], message));
            }
            (Some(_), _) => {
                let why = why(lost);
                out::insist(format!(
                    "lock {key} was lost: {why}. The command continued without the lock"
                ));
            }
        }
        Ok(status)
    }

    /// Warns if the command has less time to end than `--kill-after` says.
    fn warn_of_a_short_end(&self) {
        // Rounded to milliseconds, because a third of a TTL can have many digits.
        let real =
            Duration::from_millis(self.kill_after().as_millis().try_into().unwrap_or(u64::MAX));
        if let Some(wanted) = self.stop.kill_after.as_ref().filter(|wanted| wanted.span > real)
            && self.stop.on_lost == OnLost::Term
        {
            let (limit, remedy) = match self.limit {
                Some((limit, _)) if limit < self.ttl => ("--max-hold", "--max-hold"),
                _ => ("the TTL", "--ttl"),
            };
            out::warn(format!(
                "--kill-after reduced from {wanted} to {}, one third of {limit}; use a longer {remedy} to allow more",
                time::show(real)
            ));
        }
    }

    /// The time between SIGTERM and SIGKILL. At most one third of the lease, so that two renewals have failed before SIGTERM.
    fn kill_after(&self) -> Duration {
        let wanted = self.stop.kill_after.as_ref().map_or(KILL_AFTER, |wanted| wanted.span);
        wanted.min(self.shortest() / 3)
    }

    /// The time between SIGKILL and the end of the lease.
    fn margin(&self) -> Duration {
        (self.shortest() / 20).min(Duration::from_millis(500))
    }

    /// The shorter of the TTL and `--max-hold`.
    fn shortest(&self) -> Duration {
        self.limit.map_or(self.ttl, |(limit, _)| self.ttl.min(limit))
    }
}

/// The state while the command runs.
#[derive(Debug)]
struct Watch<'w, 'a> {
    work: &'w Work<'a>,
    was_asked: bool,
    is_lost: bool,
    status: Option<ExitStatus>,
    /// The reason for ending the command, once the guardian has begun to end it.
    stopped: Option<Ended>,
    survivors: Vec<Survivor>,
}

impl<'w, 'a> Watch<'w, 'a> {
    fn new(work: &'w Work<'a>) -> Self {
        let (status, stopped, survivors) = (None, None, Vec::new());
        Self { work, was_asked: false, is_lost: false, status, stopped, survivors }
    }

    /// Waits until the command ends. Passes on signals, and informs the guardian about renewals and losses of the lease.
    ///
    /// # Errors
    ///
    /// Fails if the lease is lost and a process of the command cannot be ended.
    async fn run(
        mut self,
        job: &mut Job,
        command: &[OsString],
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        loop {
            tokio::select! {
                report = job.report() => match report {
                    Some(report) => if let Some(ended) = self.consider(report) {
                        return Ok(ended);
                    },
                    None => return self.end_without_guardian(job).await,
                },
                () = self.asked(), if !self.was_asked => {
                    self.was_asked = true;
                    job.signal(Signal::TERM, Reach::All);
                }
                (signal, reach) = signals.next_for(command) => job.signal(signal, reach),
                () = self.work.held.lost(), if !self.is_lost => {
                    self.is_lost = true;
                    if self.work.stop.on_lost == OnLost::Term {
                        job.set_cutoff(Cutoff::NOW);
                    }
                }
                () = sleep(LONGEST_TICK.min(self.work.shortest() / 20)) => {
                    if let (false, None, Some(cutoff)) = (self.is_lost, self.stopped, self.work.cutoff()) {
                        job.set_cutoff(cutoff);
                    }
                }
            }
            self.give_up_on_survivors()?;
        }
    }

    /// Handles a report. Returns how the command ended if it has ended.
    fn consider(&mut self, report: Report) -> Option<Ended> {
        match report {
            Report::Exited(status) => {
                let status = ExitStatus::from_raw(status);
                self.status = Some(status);
                let is_over = self.stopped.is_none() && self.work.stop.until == Until::Command;
                return is_over.then_some(Ended::Itself(status));
            }
            Report::Empty => return self.stopped.or(self.status.map(Ended::Itself)),
            Report::Ending => self.stopped = Some(self.work.stopped()),
            Report::Unreached(processes) => {
                out::insist(format!("cannot send the signal to {}", list(&processes)));
            }
            Report::Survivors(processes) => self.keep_for(processes),
            Report::Started | Report::NotStarted(_) => {}
        }
        None
    }

    /// Waits for a revocation request, if the command should react to one.
    async fn asked(&self) {
        match self.work.stop.on_asked {
            OnAsked::Term => self.work.held.asked().await,
            OnAsked::Ignore => pending().await,
        }
    }

    /// Ends the command if its guardian was killed or did not end it in time.
    async fn end_without_guardian(mut self, job: &mut Job) -> Result<Ended, Failure> {
        loop {
            let survivors = job.end_without_guardian().await;
            if survivors.is_empty() {
                return Ok(if job.is_overdue() { self.work.stopped() } else { Ended::Unguarded });
            }
            self.keep_for(survivors);
            self.is_lost = self.work.held.lost_for().is_some();
            self.give_up_on_survivors()?;
        }
    }

    /// Warns that the lock is kept until processes exit that cannot be ended.
    fn keep_for(&mut self, survivors: Vec<Survivor>) {
        if survivors != self.survivors && !self.is_lost {
            let processes = list(&survivors);
            out::insist(format!("cannot end {processes}; the lock is kept until they exit"));
        }
        self.survivors = survivors;
    }

    /// Fails if processes that cannot be ended are running without the lock.
    fn give_up_on_survivors(&self) -> Result<(), Failure> {
        if !self.is_lost || self.survivors.is_empty() {
            return Ok(());
        }
        let key = &self.work.keys[0];
        let (why, processes) = (why(self.work.held.lost_for()), list(&self.survivors));
        let message = format!(
            "lock {} was lost: {why}. The command cannot be killed and continues without the lock: {processes}",
            key.quoted()
        );
        Err(Failure::new(exit::STILL_RUNNING, message).with_details(out::json_of(key)))
    }
}

/// Describes processes, as in `process 17 (sleep), process 18 (cat): permission denied`.
fn list(processes: &[Survivor]) -> String {
    let said = processes.iter().map(|Survivor { pid, name, refused }| match refused {
        Some(why) => format!("process {pid} ({name}): {why}"),
        None => format!("process {pid} ({name})"),
    });
    said.collect::<Vec<_>>().join(", ")
}

/// Why the lock was lost, or is about to be.
fn why(lost: Option<LossReason>) -> String {
    match lost {
        None => "no renewal succeeded in time".to_owned(),
        Some(LossReason::Vanished) => {
            "another client, an operator or a failover removed the lock from the store".to_owned()
        }
        Some(reason) => reason.to_string(),
    }
}

fn lost_failure(key: &Key, message: String) -> Failure {
    Failure::new(exit::LOST, message).with_details(out::json_of(key))
}

/// The environment variables that describe the locks to the command.
fn environment(keys: &[Key], held: &Held) -> Vec<(OsString, OsString)> {
    let mut env = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let token = OsString::from(held.guard_of(key).token().to_string());
        let number = match (index, keys.len()) {
            (0, _) => {
                env.push(("LEASEHOLD_KEY".into(), key.name().to_owned()));
                env.push(("LEASEHOLD_TOKEN".into(), token.clone()));
                if keys.len() == 1 {
                    continue;
                }
                1
            }
            (index, _) => index + 1,
        };
        env.push((format!("LEASEHOLD_KEY_{number}").into(), key.name().to_owned()));
        env.push((format!("LEASEHOLD_TOKEN_{number}").into(), token));
    }
    env
}
