//! Reports to observers, under a driven clock.

mod calls;
mod holds;
mod observers;
mod store;

use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::backend::{LockBackend, Operation};
use leasehold_core::fault::{Fault, Faults, Notifications};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::observe::{
    Acquired, Forced, HandedOver, LongHold, LongWait, Lost, Observer, Refused, ReleaseFailed,
    Released, RenewalFailed, Renewed, Store, StoreChange, StoreError, Unconfirmed, Waiting, Woken,
};
use leasehold_core::{
    Error, ErrorKind, Holder, LockClient, LockGuard, LockOptions, OwnerId, TryLockError,
};

use crate::fixture::{Client, ClientBuilder, Fixture, TTL, ms, options, pass};

/// A third of the TTL, from where a renewal falls due.
const RENEWAL: Duration = ms(10_000);

/// A client with an observer, another client of the same store, and the faults of the first client.
struct Observed {
    client: Client,
    other: LockClient<MemoryBackend>,
    faults: Faults,
    log: EventLog,
}

impl Observed {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let log = EventLog::default();
        let Fixture { client, faults, store, clock, .. } =
            Fixture::building(MemoryBackend::new().capabilities(), |builder| {
                change(builder.observer(log.clone()).options(described("us/1")))
            });
        // Without spare tokens, each grant has the next number.
        let options = described("vm/5422").hand_over(false);
        let other = LockClient::builder(store).clock(clock).options(options).build().unwrap();
        Self { client, other, faults, log }
    }

    /// The events since the last call.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.0.lock().unwrap())
    }
}

fn described(holder: &str) -> LockOptions {
    options().description(holder.try_into().unwrap())
}

/// All that an observer is told, a line each. The tokens of a new memory store count from 1.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn note(&self, line: impl Display) {
        self.0.lock().unwrap().push(line.to_string());
    }
}

fn name(holder: Option<&Holder>) -> &str {
    holder.and_then(Holder::description).map_or("-", |description| description.as_str())
}

impl Observer for EventLog {
    fn on_waiting(&self, it: &Waiting<'_>) {
        self.note(format_args!("waiting {} behind {}", it.lock.key, name(it.holder)));
    }

    fn on_long_wait(&self, it: &LongWait<'_>) {
        let itself = if it.by_caller { ", perhaps itself" } else { "" };
        let holder = name(it.holder);
        self.note(format_args!("long wait of {:?} behind {holder}{itself}", it.waited));
    }

    fn on_woken(&self, it: &Woken<'_>) {
        self.note(format_args!("woken by {}", it.by.name()));
    }

    fn on_acquired(&self, it: &Acquired<'_>) {
        let Acquired { lock, token, path, took, waited, .. } = it;
        let (kind, path) = (lock.kind, path.name());
        let waited = if *waited { format!(" after {took:?}") } else { String::new() };
        self.note(format_args!("{path} {kind} {}#{token}{waited}", lock.key));
    }

    fn on_refused(&self, it: &Refused<'_>) {
        let waited = if it.waited { format!(" after {:?}", it.took) } else { String::new() };
        let holder = name(it.holder);
        self.note(format_args!("{} {} behind {holder}{waited}", it.why.name(), it.lock.key));
    }

    fn on_handed_over(&self, it: &HandedOver<'_>) {
        self.note(format_args!(
            "#{} handed over to #{} after {:?}",
            it.token, it.next_token, it.held
        ));
    }

    fn on_long_hold(&self, it: &LongHold<'_>) {
        self.note(format_args!("long hold #{} of {:?}", it.token, it.held.as_secs()));
    }

    fn on_renewed(&self, it: &Renewed<'_>) {
        self.note(format_args!("renewed #{}, lag {:?}", it.token, it.lag));
    }

    fn on_renewal_failed(&self, it: &RenewalFailed<'_>) {
        self.note(format_args!("not renewed #{}: {:?}", it.token, it.error.kind()));
    }

    fn on_unconfirmed(&self, it: &Unconfirmed<'_>) {
        let error = it.error.map(Error::kind);
        self.note(format_args!(
            "unconfirmed #{}: {error:?}, {:?} left",
            it.token,
            it.remaining.as_secs()
        ));
    }

    fn on_lost(&self, it: &Lost<'_>) {
        self.note(format_args!("lost #{}: {:?} after {:?}", it.token, it.reason, it.held));
    }

    fn on_released(&self, it: &Released<'_>) {
        self.note(format_args!("released #{} after {:?}", it.token, it.held));
    }

    fn on_release_failed(&self, it: &ReleaseFailed<'_>) {
        let verdict = if it.retried { "tries again" } else { "gives up" };
        self.note(format_args!("not released {}: {:?}, {verdict}", it.key, it.error.kind()));
    }

    fn on_forced(&self, it: &Forced<'_>) {
        self.note(format_args!("forced {} of {}: {}", it.key, name(Some(it.holder)), it.why));
    }

    fn on_store_error(&self, it: &StoreError<'_>) {
        self.note(format_args!("{} failed: {:?}", it.operation, it.error.kind()));
    }

    fn on_store(&self, it: &Store<'_>) {
        match it.change {
            StoreChange::Down { operation, .. } => self.note(format_args!("down at {operation}")),
            StoreChange::Up { after: None } => self.note("up"),
            StoreChange::Up { after: Some(after) } => self.note(format_args!("up after {after:?}")),
            _ => unreachable!("the store is up or down"),
        }
    }
}
