//! Clients that contend for one lock while servers fail, and their records.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Error, LockClient, LockOptions};
use leasehold_testbed::until_some;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::connect_by_default;

/// How long each client holds the lock: as long as it takes to increment a number in another store.
const HELD: Duration = Duration::from_millis(3);

/// Clients at work, each with connections of its own.
pub(crate) struct Contention {
    clients: JoinSet<()>,
    count: usize,
    over: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// The last failure of each client, and its time.
    failures: Arc<Mutex<HashMap<usize, (Instant, Error)>>>,
}

/// A client believed to hold the lock from here to there.
#[derive(Clone, Copy, Debug)]
struct Seen {
    client: usize,
    token: u64,
    from: Instant,
    to: Instant,
}

impl Contention {
    /// Lets so many clients contend for the lock `name`, and returns when all take turns.
    pub(crate) async fn start(url: &str, name: &str, count: usize, ttl: Duration) -> Self {
        let mut contention = Self {
            clients: JoinSet::new(),
            count,
            over: Arc::default(),
            seen: Arc::default(),
            failures: Arc::default(),
        };
        for client in 0..count {
            let backend = connect_by_default(url).await;
            let options = LockOptions::new().ttl(ttl).outage_wait(Duration::from_secs(30));
            let locks = LockClient::builder(backend).options(options).build().unwrap();
            let mutex = locks.mutex(name).unwrap();
            let (over, seen) = (Arc::clone(&contention.over), Arc::clone(&contention.seen));
            let failures = Arc::clone(&contention.failures);
            let note = move |error: &Error| {
                failures.lock().unwrap().insert(client, (Instant::now(), error.repeated()));
            };
            contention.clients.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = mutex.lock().await.inspect_err(&note).unwrap();
                    let from = Instant::now();
                    let token = guard.token().number();
                    tokio::select! {
                        () = sleep(HELD) => {}
                        _ = guard.lost() => {}
                    }
                    let to = Instant::now();
                    match guard.release().await.inspect_err(&note) {
                        Err(error) if error.is_retryable() || error.loss().is_some() => {}
                        released => released.unwrap(),
                    }
                    seen.lock().unwrap().push(Seen { client, token, from, to });
                    // The client that releases an unfair lock would take it again before the others hear of it; and
                    // clients that all keep the same time might leave one of them out for ever.
                    sleep(HELD * fastrand::u32(2..8)).await;
                }
                drop(locks.shutdown(Duration::from_secs(5)).await);
            });
        }
        contention.until_all_have_held_since(Instant::now()).await;
        contention
    }

    /// Waits until each of them has got the lock after `since`, and says when the last did so first.
    pub(crate) async fn until_all_have_held_since(&self, since: Instant) -> Instant {
        until_some(Served { contention: self, since }, async || self.all_have_held_since(since))
            .await
    }

    fn all_have_held_since(&self, since: Instant) -> Option<Instant> {
        let seen = self.seen.lock().unwrap();
        let first = |client: usize| {
            let own = seen.iter().filter(|seen| seen.client == client && seen.from > since);
            own.map(|seen| seen.from).min()
        };
        (0..self.count).map(first).try_fold(since, |last, first| Some(last.max(first?)))
    }

    /// Ends it.
    pub(crate) async fn history(self) -> History {
        self.over.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        let mut seen = self.seen.lock().unwrap().clone();
        seen.sort_by_key(|seen| seen.from);
        History(seen)
    }
}

/// That all clients are served, and how far that is so at the moment.
struct Served<'a> {
    contention: &'a Contention,
    since: Instant,
}

impl fmt::Display for Served<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contention, since } = *self;
        let (seen, failures) =
            (contention.seen.lock().unwrap(), contention.failures.lock().unwrap());
        write!(f, "each client is served within {:?}", since.elapsed())?;
        for client in 0..contention.count {
            let own = seen.iter().filter(|seen| seen.client == client);
            let (all, late) = (own.clone().count(), own.filter(|seen| seen.from > since).count());
            write!(f, "\nclient {client}: {late} times, {all} with those before")?;
            if let Some((at, error)) = failures.get(&client) {
                write!(f, "; failed {:?} ago: {error}", at.elapsed())?;
            }
        }
        Ok(())
    }
}

/// The clients' beliefs to hold the lock, in order of time.
pub(crate) struct History(Vec<Seen>);

impl History {
    /// When two believed to hold the lock at once: from when to when.
    pub(crate) fn overlaps(&self) -> Vec<(Instant, Instant)> {
        let mut overlaps = Vec::new();
        let mut held_until: Option<Instant> = None;
        for seen in &self.0 {
            if let Some(until) = held_until.filter(|until| *until > seen.from) {
                overlaps.push((seen.from, until.min(seen.to)));
            }
            held_until = held_until.max(Some(seen.to));
        }
        overlaps
    }

    /// That overlaps lie between these instants, if there are any, and that tokens came in the order of the grants otherwise.
    pub(crate) fn assert_exclusive_but_for(&self, window: (Instant, Instant)) {
        let overlaps = self.overlaps();
        for (from, to) in &overlaps {
            println!("two held the lock for {:?}", *to - *from);
            assert!(window.0 <= *from && *to <= window.1, "{:?} after", *from - window.0);
        }
        if overlaps.is_empty() {
            assert!(self.0.is_sorted_by_key(|seen| seen.token), "{self}");
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.0.first().map(|seen| seen.from);
        for seen in &self.0 {
            let since = |at: Instant| at.saturating_duration_since(start.unwrap_or(at)).as_millis();
            let Seen { client, token, from, to } = *seen;
            writeln!(
                f,
                "{:>6} to {:>6} ms: client {client}, token {token}",
                since(from),
                since(to)
            )?;
        }
        Ok(())
    }
}
