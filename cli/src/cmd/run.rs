//! `leasehold run`

use std::future::pending;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::time::Duration;

use leasehold::{
    Busy, Error, ErrorKind, LeaseState, LockClient, LockGuard, LockKey, Mutex, RwLock, Semaphore,
    WriteGuard,
};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::args::{OnAsked, OnLost, Run};
use crate::exit::{self, Failure};
use crate::supervised::{self, Supervised};

/// How long a place in line, a lock that may just have been granted, or one that could not be renewed, is given back for, before we go.
const GOODBYE: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: Run) -> Result<ExitCode, Failure> {
    let key = super::key(&args.key)?;
    let mut signals = Signals::catch()?;
    let client = args.backend.connect().await?;
    let lock = Lock::of(&client, &key, &args)?;

    let guard = tokio::select! {
        guard = lock.obtain(&args) => guard,
        Some(signal) = signals.next() => {
            // The wait was dropped; what the store may have granted to it is given back.
            drop(client.shutdown(GOODBYE).await);
            return Ok(ExitCode::from(128 + u8::try_from(signal.as_raw()).unwrap_or(0)));
        }
        never = show_waiting(&client, &key) => match never {},
    };
    let guard = match guard {
        Ok(guard) => guard,
        Err(failure) => {
            // A place in line would hold up others after we are gone.
            drop(client.shutdown(GOODBYE).await);
            return Err(failure);
        }
    };

    let env = [("LEASEHOLD_KEY", key.to_string()), ("LEASEHOLD_TOKEN", guard.token().to_string())];
    let mut command = match Supervised::start(&args.command, &env, args.on_lost) {
        Ok(command) => command,
        Err(error) => {
            drop(guard.release().await);
            return Err(supervised::not_started(&args.command[0], &error));
        }
    };
    let watch = Watch { client: &client, guard: &guard, args: &args };
    let status = watch.over(&mut command, &mut signals).await;
    let status = status.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;

    let lost = match guard.state() {
        LeaseState::Lost(reason) => Some(reason.to_string()),
        LeaseState::Held | LeaseState::Unsure => None,
    };
    let released = match status {
        // The store does not answer, or no longer has the lease: the release is only an attempt.
        Ended::Stopped => timeout(GOODBYE, guard.release()).await.unwrap_or(Ok(())),
        Ended::Itself(_) => guard.release().await,
    };
    // Some stores have leases of their own, which would outlast this process.
    drop(client.shutdown(GOODBYE).await);
    end(&args, status, lost, released)
}

/// How it all ended.
fn end(
    args: &Run,
    status: Ended,
    lost: Option<String>,
    released: Result<(), Error>,
) -> Result<ExitCode, Failure> {
    let lost = lost.or_else(|| match &released {
        Err(error) if error.kind() == ErrorKind::LeaseLost => Some(error.to_string()),
        _ => None,
    });
    let ended = match status {
        Ended::Stopped => {
            let why = lost.unwrap_or_else(|| "it could not be renewed in time".to_owned());
            return Err(Failure::new(exit::LOST, format!("the command was stopped: {why}")));
        }
        Ended::Itself(status) => exit::of_child(status),
    };
    match (lost, released) {
        (Some(why), _) if args.on_lost == OnLost::Term => Err(Failure::new(
            exit::LOST,
            format!("the lease was lost while the command ran: {why}"),
        )),
        (Some(why), _) => {
            eprintln!("leasehold: the command ran on without the lock: {why}");
            Ok(ended)
        }
        (None, Err(error)) => {
            eprintln!("leasehold: {error}; it is free after its TTL");
            Ok(ended)
        }
        (None, Ok(())) => Ok(ended),
    }
}

/// The lock that the command is to run under.
enum Lock {
    Mutex(Mutex),
    Permit(Semaphore),
    Read(RwLock),
    Write(RwLock),
}

impl Lock {
    fn of(client: &LockClient, key: &LockKey, args: &Run) -> Result<Self, Error> {
        let mut options =
            client.options().ttl(args.ttl).fair(args.fair).lock_delay(args.lock_delay);
        if let Some(time) = args.min_hold {
            options = options.min_hold(time);
        }
        if let Some(permits) = args.permits {
            let semaphore = client.semaphore(key, permits)?;
            return Ok(Self::Permit(semaphore.with_options(options)?));
        }
        if args.read || args.write {
            let lock = client.rw_lock(key)?.with_options(options)?;
            return Ok(if args.read { Self::Read(lock) } else { Self::Write(lock) });
        }
        Ok(Self::Mutex(client.mutex(key)?.with_options(options)?))
    }

    /// Obtains it, as long as the wait says.
    async fn obtain(&self, args: &Run) -> Result<LockGuard, Failure> {
        let (guard, wait) = match (args.no_wait, args.wait) {
            (true, _) => (self.try_lock().await?, "at once".to_owned()),
            (false, Some(wait)) => {
                let within = format!("within {}", humantime::format_duration(wait));
                (self.try_lock_for(wait).await?, within)
            }
            (false, None) => return Ok(self.lock().await?),
        };
        guard.map_err(|busy| {
            let key = args.key.display();
            let by = busy.holder().map(|holder| format!(", held by {holder}")).unwrap_or_default();
            Failure::new(exit::NOT_OBTAINED, format!("{key}: not obtained {wait}{by}"))
        })
    }

    async fn lock(&self) -> Result<LockGuard, Error> {
        match self {
            Self::Mutex(mutex) => mutex.lock().await,
            Self::Permit(semaphore) => semaphore.acquire(1).await,
            Self::Read(lock) => lock.read().await,
            Self::Write(lock) => lock.write().await.map(WriteGuard::into_guard),
        }
    }

    async fn try_lock(&self) -> Result<Result<LockGuard, Busy>, Error> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock().await,
            Self::Permit(semaphore) => semaphore.try_acquire(1).await,
            Self::Read(lock) => lock.try_read().await,
            Self::Write(lock) => Ok(lock.try_write().await?.map(WriteGuard::into_guard)),
        }
    }

    async fn try_lock_for(&self, wait: Duration) -> Result<Result<LockGuard, Busy>, Error> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock_for(wait).await,
            Self::Permit(semaphore) => semaphore.try_acquire_for(1, wait).await,
            Self::Read(lock) => lock.try_read_for(wait).await,
            Self::Write(lock) => Ok(lock.try_write_for(wait).await?.map(WriteGuard::into_guard)),
        }
    }
}

/// On a terminal, shows who holds the lock for as long as we wait for it.
async fn show_waiting(client: &LockClient, key: &LockKey) -> std::convert::Infallible {
    if !stderr().is_terminal() {
        return pending().await;
    }
    let mut line = Line::default();
    loop {
        sleep(Duration::from_secs(1)).await;
        let text = match client.admin().inspect(key).await {
            Ok(inspection) => match inspection.holders().first() {
                Some(holder) => format!("{key}: held by {holder}"),
                None => continue,
            },
            Err(error) => error.to_string(),
        };
        line.show(&text);
    }
}

/// A line on the terminal that is written over, and wiped in the end.
#[derive(Default)]
struct Line {
    shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        self.shown = true;
        // Not being able to show it is no reason to stop waiting.
        drop(write!(stderr(), "\r\x1b[K{text}").and_then(|()| stderr().flush()));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            drop(write!(stderr(), "\r\x1b[K"));
        }
    }
}

/// How the command ended.
enum Ended {
    Itself(std::process::ExitStatus),
    Stopped,
}

/// Watches over a command while a guard is held for it.
struct Watch<'a> {
    client: &'a LockClient,
    guard: &'a LockGuard,
    args: &'a Run,
}

impl Watch<'_> {
    /// Waits until the command ends, passing on signals, and ends it if the lease does.
    async fn over(
        &self,
        command: &mut Supervised,
        signals: &mut Signals,
    ) -> std::io::Result<Ended> {
        let mut was_asked = false;
        loop {
            tokio::select! {
                status = command.ended() => return status.map(Ended::Itself),
                true = self.asked(), if !was_asked => {
                    was_asked = true;
                    command.signal(Signal::TERM);
                }
                Some(signal) = signals.next() => command.pass_on(signal),
                () = self.time_to_stop(), if self.args.on_lost == OnLost::Term => {
                    self.stop(command).await?;
                    return Ok(Ended::Stopped);
                }
            }
        }
    }

    /// Whether the holder is asked to finish early. Ends when it is, if the command is to know.
    async fn asked(&self) -> bool {
        match self.args.on_asked {
            OnAsked::Term => self.guard.revocation_requested().await,
            OnAsked::Ignore => pending().await,
        }
    }

    /// Ends when the lease is lost, or when there is just enough left of it to stop the command.
    async fn time_to_stop(&self) {
        let lead = self.kill_after() + self.margin();
        loop {
            let left = self.guard.remaining();
            if left <= lead {
                return;
            }
            tokio::select! {
                _ = self.guard.lost() => return,
                () = sleep(left - lead) => {}
            }
        }
    }

    /// Asks the command to end, and kills it if it does not, before the lease's deadline.
    async fn stop(&self, command: &mut Supervised) -> std::io::Result<()> {
        let left = self.guard.deadline().since(self.client.now());
        let patience = self.kill_after().min(left.saturating_sub(self.margin()));
        let kill_at = Instant::now() + patience;
        command.signal(Signal::TERM);
        tokio::select! {
            ended = command.ended() => return ended.map(|_status| ()),
            () = sleep_until(kill_at) => {}
        }
        command.signal(Signal::KILL);
        command.ended().await.map(|_status| ())
    }

    /// What the command gets to end in: no more than a third of the TTL, so that renewals have
    /// failed twice before it is asked.
    fn kill_after(&self) -> Duration {
        self.args.kill_after.min(self.args.ttl / 3)
    }

    /// What is left of the lease after the command was killed.
    fn margin(&self) -> Duration {
        (self.args.ttl / 20).min(Duration::from_millis(500))
    }
}

/// The signals that are passed on.
struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    const PASSED_ON: [Signal; 6] =
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];

    fn catch() -> Result<Self, Failure> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for caught in Self::PASSED_ON {
            let stream = signal(SignalKind::from_raw(caught.as_raw()));
            let mut stream =
                stream.map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && sender.send(caught).is_ok() {}
            });
        }
        Ok(Self(receiver))
    }

    async fn next(&mut self) -> Option<Signal> {
        self.0.recv().await
    }
}
