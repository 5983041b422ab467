//! Connects, waits for a lock, and names the holder that the lock is waiting for.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use clap::Args as ClapArgs;
use leasehold::{Busy, Error, Holder, LockClient, LockKind, TryLockError};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::exit::{self, Failure};
use crate::key::Key;
use crate::out;
use crate::signals::Signals;
use crate::store::{Backend, Patience};
use crate::time::{self, Time};

/// How long the process tries to leave a queue, or to release a lock that may just have been granted, before it exits.
pub(crate) const GOODBYE: Duration = Duration::from_secs(1);

/// The options for waiting.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitArgs {
    /// How long to wait for the lock, and for a store that is down. By default, leasehold waits indefinitely for a busy lock, and 10s for a
    /// store that is down.
    #[arg(long, short, value_name = "TIME", value_parser = time::parse_wait, env = "LEASEHOLD_WAIT")]
    wait: Option<Time>,

    /// Exit with status 75 if the lock is busy, instead of waiting.
    #[arg(long, short)]
    pub(crate) no_wait: bool,

    /// Queue for the lock, so that waiting commands on all machines acquire it in order of arrival.
    #[arg(long)]
    pub(crate) fair: bool,
}

impl WaitArgs {
    /// How long to wait, if the user has limited it. `--no-wait` overrides a variable and the configuration file.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.wait.as_ref().filter(|_| !self.no_wait).map(|wait| wait.span)
    }
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    None,
    For(Duration),
    Forever,
}

/// A caller that waits, first for the store and then for the lock, within one time limit.
#[derive(Debug)]
pub(crate) struct Seeker<'a> {
    args: &'a WaitArgs,
    keys: &'a [Key],
    began: Instant,
}

impl<'a> Seeker<'a> {
    pub(crate) fn new(args: &'a WaitArgs, keys: &'a [Key]) -> Self {
        Self { args, keys, began: Instant::now() }
    }

    /// Connects, and waits for a store that is down.
    pub(crate) async fn connect(
        &self,
        backend: &Backend,
        signals: &mut Signals,
    ) -> Result<LockClient, Failure> {
        backend.announce_local()?;
        let patience = match (self.args.no_wait, self.args.limit()) {
            (true, _) => Patience::None,
            (false, Some(wait)) => Patience::For(wait),
            (false, None) => Patience::Usual,
        };
        tokio::select! {
            client = backend.connect_patiently(patience) => client,
            signal = signals.next() => Err(Failure::signal(signal)),
        }
    }

    /// How much of the wait is left for the lock.
    pub(crate) fn wait(&self) -> Wait {
        match (self.args.no_wait, self.args.limit()) {
            (true, _) => Wait::None,
            (false, Some(wait)) => Wait::For(wait.saturating_sub(self.began.elapsed())),
            (false, None) => Wait::Forever,
        }
    }

    /// Waits for `attempt`. Names the holder of the lock in the meantime and in the error.
    pub(crate) async fn obtain<T>(
        &self,
        client: &LockClient,
        signals: &mut Signals,
        attempt: impl Future<Output = Result<T, TryLockError>>,
    ) -> Result<T, Failure> {
        let obtained = tokio::select! {
            obtained = attempt => obtained.map_err(|error| error.into_busy().map_err(Failure::from)),
            signal = signals.next() => Err(Err(Failure::signal(signal))),
            never = self.show_waiting(client) => match never {},
        };
        let failure = match obtained {
            Ok(obtained) => return Ok(obtained),
            Err(Ok(busy)) => self.refusal(client, &busy).await,
            Err(Err(failure)) => failure,
        };
        // A queue entry, or a lock that was just granted, would block other callers after this process has exited.
        drop(client.shutdown(GOODBYE).await);
        Err(failure)
    }

    /// Names the busy lock and its holder, as the store reports now, or as it reported in its refusal.
    async fn refusal(&self, client: &LockClient, busy: &Busy) -> Failure {
        let key = self.keys.iter().find(|key| key.as_lock_key() == busy.key());
        let key = key.unwrap_or(&self.keys[0]);
        let admin = client.admin();
        let now = match timeout(GOODBYE, admin.inspect(busy.key())).await {
            Ok(Ok(inspection)) => inspection.holders().to_vec(),
            _ => Vec::new(),
        };
        let holders =
            if now.is_empty() { busy.holder().cloned().into_iter().collect() } else { now };
        let still = match self.args.limit() {
            Some(wait) => format!("still locked after {}", time::show(wait)),
            None => "locked".to_owned(),
        };
        let by = match &holders[..] {
            [] => String::new(),
            [holder] => format!(" by {}", holder),
            [holder, rest @ ..] => format!(" by {} and {} more", holder, rest.len()),
        };
        let message = format!("{} is {still}{by}", key.quoted());
        let mut details = out::json_of(key);
        details["holders"] = holders_to_json(&holders);
        Failure::new(exit::BUSY, message).with_details(details)
    }

    /// The first key that is held, and its holders.
    async fn in_the_way(&self, client: &LockClient) -> Result<Option<(&Key, Vec<Holder>)>, Error> {
        for key in self.keys {
            let inspection = client.admin().inspect(key.as_lock_key()).await?;
            if inspection.is_held() {
                return Ok(Some((key, inspection.holders().to_vec())));
            }
        }
        Ok(None)
    }

    /// On a terminal, shows the holder of the lock during the wait.
    async fn show_waiting(&self, client: &LockClient) -> Infallible {
        let style = out::style();
        if style.quiet || style.json || !stderr().is_terminal() {
            return pending().await;
        }
        let mut line = Line::default();
        loop {
            sleep(Duration::from_secs(1)).await;
            if !is_in_foreground() {
                continue;
            }
            match self.in_the_way(client).await {
                Ok(Some((key, holders))) => {
                    line.show(&format!("{} is locked by {}", key.quoted(), holders[0]));
                }
                Ok(None) => {}
                Err(error) => line.show(&error.to_string()),
            }
        }
    }
}

/// Whether this process is in the foreground of its terminal. In the background, a line would appear where the user types.
fn is_in_foreground() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The process group is the third field after the name, and the foreground group of the terminal is the sixth.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    fields.len() > 5 && fields[2] == fields[5]
}

pub(crate) fn holders_to_json(holders: &[Holder]) -> Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).ok();
    let holder = |holder: &Holder| {
        json!({
            "lease": holder.fingerprint().to_string(),
            "description": holder.description().map(ToString::to_string),
            "kind": holder.kind().map(LockKind::name),
            "units": holder.units(),
            "token": holder.token(),
            "held_for_ms": holder.held_for().map(millis),
            "remaining_ms": holder.remaining().map(millis),
        })
    };
    holders.iter().map(holder).collect()
}

/// A line on the terminal that each new text overwrites, and that is erased in the end.
#[derive(Default)]
struct Line {
    shown: bool,
}

impl Line {
    fn show(&mut self, text: &str) {
        self.shown = true;
        out::raw(&format!("\r\x1b[K{}", out::cut(text, out::columns(stderr()))));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown {
            out::raw("\r\x1b[K");
        }
    }
}
