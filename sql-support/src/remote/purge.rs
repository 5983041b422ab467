//! Deletes the rows of keys that nobody uses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::unpoisoned;

use crate::remote::Urgency;
use crate::remote::runner::Runner;
use crate::request::micros;

/// A row is deleted if its key was not locked for this time.
const PURGE_AGE: Duration = Duration::from_secs(60);

/// One purge follows after the acquisition of this number of keys. A purge visits twice as many keys,
/// so the table has at most about twice as many rows as keys were locked in the last minute.
const ACQUISITIONS_PER_PURGE: usize = 256;

/// The purges by this client. Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct Purge(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The acquisitions since the last purge. The first value is random, so that processes that acquire
    /// only a few locks also purge sometimes.
    acquisitions: usize,
    /// The last key that a purge has visited. The next purge continues there. The first purge starts
    /// with a key that this client has locked.
    after: Option<String>,
}

impl Purge {
    pub(super) fn new() -> Self {
        let acquisitions = fastrand::usize(..ACQUISITIONS_PER_PURGE);
        Self(Arc::new(Mutex::new(State { acquisitions, after: None })))
    }

    /// Counts the acquisitions of these keys, and starts the next purge if it is due.
    pub(super) fn count(&self, keys: &[LockKey], runner: &Runner) {
        let after = {
            let mut state = unpoisoned(&self.0);
            state.acquisitions += keys.len();
            if state.acquisitions < ACQUISITIONS_PER_PURGE {
                return;
            }
            state.acquisitions = 0;
            state.after.clone().or_else(|| Some(keys.first()?.as_str().to_owned()))
        };
        let (purge, runner) = (self.clone(), runner.clone());
        tokio::spawn(async move { purge.run(&runner, after.unwrap_or_default()).await });
    }

    /// Deletes the rows of some keys after the key `after` that were not locked for some time.
    async fn run(&self, runner: &Runner, after: String) {
        let running = runner.within_limit(Urgency::Asks);
        let mut purged = runner.table.purge(&running, &after, micros(PURGE_AGE)).await;
        if purged.as_ref().is_ok_and(|purged| purged.last.is_none()) {
            // No key follows, so the purge starts again with the first one.
            purged = runner.table.purge(&running, "", micros(PURGE_AGE)).await;
        }
        match purged {
            Ok(purged) => unpoisoned(&self.0).after = Some(purged.last.unwrap_or_default()),
            Err(error) => tracing::debug!(%error, "old rows were not deleted"),
        }
    }
}
