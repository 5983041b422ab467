//! A command that runs while a lock is held for it.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use leasehold::{Error, LockClient, LossReason};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::args::LeaseArgs;
use crate::exit::{self, Failure};
use crate::held::Held;
use crate::key::Key;
use crate::obtain::GOODBYE;
use crate::signals::Signals;
use crate::supervised::{self, Orphan, Supervised};
use crate::{out, time};

/// How long a command has to end after it was asked to, unless the command line says.
const KILL_AFTER: Duration = Duration::from_secs(5);

const AT_ITS_LIMIT: &str = "it was held for as long as --max-hold allows";

/// How long to try to release a lock whose store does not answer: time for one request that gets through after all.
const FAREWELL: Duration = Duration::from_millis(100);

/// How the command ends if its lock does.
#[derive(ClapArgs, Clone, Copy, Debug)]
#[command(next_help_heading = "Command")]
pub(crate) struct StopArgs {
    /// The end of the command if the lease is lost, or about to be.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    /// The end of the command if `leasehold release --ask` asks for its lock.
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnAsked::Term)]
    pub(crate) on_asked: OnAsked,

    /// How long the command has to end after it was asked to, before it is killed. Without it: 5 s.
    ///
    /// The command is asked early enough that this is over before the lease is. A third of the TTL (or of --max-hold) is the most that
    /// there is: renewals have failed twice by then.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(crate) kill_after: Option<Duration>,
}

/// The end of a command whose lease is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnLost {
    /// If the lease is about to end, ask the command to end (SIGTERM) and kill it before the lease does. If the lease has ended
    /// already, as after a release by force, kill it at once.
    Term,
    /// Let it run on, unprotected.
    Ignore,
}

/// The end of a command whose lock is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum OnAsked {
    /// Ask it to end (SIGTERM), and leave it all the time it needs.
    Term,
    /// Let it run on.
    Ignore,
}

/// The variables by which a command learns of the locks that are held for it.
pub(crate) fn environment(keys: &[Key], held: &Held) -> Vec<(OsString, OsString)> {
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

/// A command without the `--` before it: after one before the key, that is a word like any other.
pub(crate) fn without_dashes(command: &[OsString]) -> &[OsString] {
    match command {
        [dashes, command @ ..] if dashes == "--" && !command.is_empty() => command,
        command => command,
    }
}

/// A command, and the lock that it runs under.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub(crate) client: &'a LockClient,
    pub(crate) keys: &'a [Key],
    pub(crate) held: Held,
    pub(crate) lease: &'a LeaseArgs,
    pub(crate) stop: &'a StopArgs,
}

/// How the command ended.
#[derive(Clone, Copy, Debug)]
enum Ended {
    Itself(ExitStatus),
    Stopped,
}

impl Work<'_> {
    /// Runs the command, and releases the lock when it has ended.
    pub(crate) async fn run(
        self,
        command: &[OsString],
        env: &[(OsString, OsString)],
        signals: &mut Signals,
    ) -> Result<ExitCode, Failure> {
        self.warn_of_a_short_end();
        let orphan = match self.stop.on_lost {
            OnLost::Term => Orphan::Dies,
            OnLost::Ignore => Orphan::GoesOn,
        };
        let mut started = match Supervised::start(command, env, orphan) {
            Ok(started) => started,
            Err(error) => {
                drop(self.held.release().await);
                drop(self.client.shutdown(GOODBYE).await);
                return Err(supervised::not_started(&command[0], &error));
            }
        };
        let ended = self.watch(&mut started, signals).await;
        let ended = ended.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;
        self.end(ended).await
    }

    /// Waits until the command ends, passing on signals, and ends it if the lease does.
    async fn watch(&self, command: &mut Supervised, signals: &mut Signals) -> io::Result<Ended> {
        let mut was_asked = false;
        loop {
            tokio::select! {
                status = command.ended() => return status.map(Ended::Itself),
                () = self.asked(), if !was_asked => {
                    was_asked = true;
                    command.signal(Signal::TERM)?;
                }
                signal = signals.next() => command.pass_on(signal)?,
                () = self.time_to_stop(), if self.stop.on_lost == OnLost::Term => {
                    self.stop(command).await?;
                    return Ok(Ended::Stopped);
                }
            }
        }
    }

    /// Waits until the holder is asked to finish early, if the command is to know.
    async fn asked(&self) {
        match self.stop.on_asked {
            OnAsked::Term => self.held.asked().await,
            OnAsked::Ignore => pending().await,
        }
    }

    /// Waits until the lease is lost, or until there is just enough left of it to stop the command.
    async fn time_to_stop(&self) {
        let lead = self.kill_after() + self.margin();
        loop {
            let left = self.held.remaining();
            if left <= lead {
                return;
            }
            tokio::select! {
                () = self.held.lost() => return,
                () = sleep(left - lead) => {}
            }
        }
    }

    /// Ends the command and all that it has started: by asking for it, while there is time, and then by force.
    async fn stop(&self, command: &mut Supervised) -> io::Result<()> {
        if self.held.lost_for().is_none() {
            let patience = self.held.remaining().saturating_sub(self.margin());
            command.signal(Signal::TERM)?;
            tokio::select! {
                ended = command.all_ended() => return ended,
                // The lease may be lost for good meanwhile.
                () = self.held.lost() => {}
                () = sleep(patience.min(self.kill_after())) => {}
            }
        }
        match timeout(GOODBYE, command.kill()).await {
            Ok(killed) => killed,
            Err(_elapsed) => {
                out::complain("some processes that the command has started cannot be killed");
                Ok(())
            }
        }
    }

    /// Releases the lock if it is still held, and says how command and lock ended.
    async fn end(self, ended: Ended) -> Result<ExitCode, Failure> {
        let lost = self.held.lost_for();
        // A lease that was renewed to the last ends by its own limit alone.
        let is_at_its_limit = self.lease.max_hold.is_some() && !self.held.is_unsure();
        let patience = match (ended, lost) {
            // Nothing is left to release, and the store has not answered for long.
            (_, Some(LossReason::Expired)) => Duration::ZERO,
            // The store has not answered for long: the rest of the lease ends soon by itself.
            (Ended::Stopped, None) if !is_at_its_limit => FAREWELL,
            (Ended::Stopped, _) => GOODBYE,
            // A release has limits of its own.
            (Ended::Itself(_), _) => Duration::MAX,
        };
        let Self { client, keys, held, stop, .. } = self;
        let goodbye = async {
            let released = held.release().await;
            // Some stores have leases of their own, which would outlast this process.
            drop(client.shutdown(GOODBYE).await);
            released
        };
        let released = timeout(patience, goodbye).await.unwrap_or(Ok(()));
        let (key, failed) = (keys[0].escaped(), released.err());
        // The store may have known of a loss before we did.
        let lost = lost.or_else(|| failed.as_ref().and_then(Error::loss));
        let why = why(lost, is_at_its_limit);
        let status = match ended {
            Ended::Stopped => {
                let message = format!("{key}: lock lost, {why}; the command was stopped");
                return Err(lost_failure(&keys[0], message));
            }
            Ended::Itself(status) => exit::of_child(status),
        };
        match (lost, failed) {
            (None, None) => {}
            (None, Some(error)) => {
                out::note(format!("{}; the lock is free after its TTL", exit::with_causes(&error)));
            }
            (Some(_), _) if stop.on_lost == OnLost::Term => {
                let message = format!("{key}: lock lost while the command ran, {why}");
                return Err(lost_failure(&keys[0], message));
            }
            (Some(_), _) => {
                out::complain(format!("{key}: lock lost, {why}; the command ran on without it"));
            }
        }
        Ok(status)
    }

    /// Says that the command has less time to end than was wanted for it.
    fn warn_of_a_short_end(&self) {
        // Thirds of a TTL have digits that say nothing.
        let real =
            Duration::from_millis(self.kill_after().as_millis().try_into().unwrap_or(u64::MAX));
        if let Some(wanted) = self.stop.kill_after.filter(|wanted| *wanted > real)
            && self.stop.on_lost == OnLost::Term
        {
            out::note(format!(
                "--kill-after {} is cut to {}, a third of the TTL: take a longer --ttl",
                time::show(wanted),
                time::show(real)
            ));
        }
    }

    /// How long the command has to end in: no more than a third of the lease, so that renewals have failed twice before it is asked.
    fn kill_after(&self) -> Duration {
        self.stop.kill_after.unwrap_or(KILL_AFTER).min(self.lease.shortest(self.client) / 3)
    }

    /// The rest of the lease after the command was killed.
    fn margin(&self) -> Duration {
        (self.lease.shortest(self.client) / 20).min(Duration::from_millis(500))
    }
}

/// Why the lock was lost, or is about to be.
fn why(lost: Option<LossReason>, is_at_its_limit: bool) -> String {
    match lost {
        Some(LossReason::MaxHold) => AT_ITS_LIMIT.to_owned(),
        None if is_at_its_limit => AT_ITS_LIMIT.to_owned(),
        None => "it could not be renewed in time".to_owned(),
        Some(LossReason::Vanished) => {
            "it was ended in the store: by an operator, a flush, an eviction or a failover"
                .to_owned()
        }
        Some(reason) => reason.to_string(),
    }
}

fn lost_failure(key: &Key, message: String) -> Failure {
    Failure::new(exit::LOST, message).with_details(out::json_of(key))
}
