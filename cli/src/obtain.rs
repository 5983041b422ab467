//! The way to a lock: connecting, waiting, and naming the holder in the way.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use leasehold::backend::Fingerprint;
use leasehold::{Busy, Description, Error, Holder, LockClient, LockKind, TryLockError};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::args::{Backend, WaitArgs};
use crate::exit::{self, Failure};
use crate::key::Key;
use crate::signals::Signals;
use crate::store::Patience;
use crate::{out, time};

/// How long a place in line, or a lock that may just have been granted, is given back for before the process ends.
pub(crate) const GOODBYE: Duration = Duration::from_secs(1);

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    None,
    For(Duration),
    Forever,
}

/// A caller that waits, first for the store and then for the lock, in one span of time.
#[derive(Debug)]
pub(crate) struct Seeker<'a> {
    args: WaitArgs,
    keys: &'a [Key],
    began: Instant,
}

impl<'a> Seeker<'a> {
    pub(crate) fn new(args: WaitArgs, keys: &'a [Key]) -> Self {
        Self { args, keys, began: Instant::now() }
    }

    /// Connects, also to a store that starts later.
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

    /// Waits for `attempt`, and names the holder in the way meanwhile and in the end.
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
        // A place in line would hold up others after we are gone, and so would a lock that was granted just now.
        drop(client.shutdown(GOODBYE).await);
        Err(failure)
    }

    /// Names the busy lock and its holder: as the store tells now, or as it told when it refused.
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
        let limit = match self.args.limit() {
            Some(wait) => format!("within {}", time::show(wait)),
            None => "at once".to_owned(),
        };
        let held_by = match &holders[..] {
            [] => String::new(),
            [holder] => format!(": held by {}", describe(holder)),
            [holder, rest @ ..] => {
                format!(": held by {} and {} more", describe(holder), rest.len())
            }
        };
        let message = format!("{}: not obtained {limit}{held_by}", key.escaped());
        let mut details = out::json_of(key);
        details["holders"] = holders_to_json(&holders);
        Failure::new(exit::NOT_OBTAINED, message).with_details(details)
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
                    line.show(&format!("{}: held by {}", key.escaped(), describe(&holders[0])));
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

/// A holder in words: its description, how much it holds, since when, and for how long.
pub(crate) fn describe(holder: &Holder) -> String {
    let mut said = name(holder.description(), holder.fingerprint());
    match (holder.kind(), holder.units()) {
        (Some(LockKind::Reader), _) => said += ", reading",
        (_, 1) => {}
        (_, u32::MAX) => said += ", writing",
        (_, units) => said += &format!(", {units} units"),
    }
    if let Some(time) = holder.held_for() {
        said += &format!(", for {} so far", time::rough(time));
    }
    if let Some(token) = holder.token() {
        said += &format!(", token {token}");
    }
    match holder.remaining() {
        Some(left) => said += &format!(", {:.1}s left unless renewed", left.as_secs_f64()),
        None => said += ", for ever",
    }
    said
}

/// A description, and the lease or the claim that is meant.
pub(crate) fn name(description: Option<&Description>, fingerprint: Fingerprint) -> String {
    match description {
        Some(description) => format!("{description} (lease {fingerprint})"),
        None => format!("lease {fingerprint}"),
    }
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

/// A line on the terminal that is written over, and wiped in the end.
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
