//! Delivers all of a client's events to the observers and the log.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
// An atomic from `std` is sufficient, because no thread waits for this flag. The flag only avoids
// locking a mutex on the hot path.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::event::{AskedKind, Event, Store, StoreChange, StoreError, Subject};
use super::{Observer, log};
use crate::clock::{Clock, Instant};
use crate::contract::backend::Operation;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

/// The minimum time between two reports that the store is down. Without a limit, a store that fails
/// every other request would flood the log.
const BETWEEN_OUTAGES: Duration = Duration::from_secs(1);

/// The observers of a client, and its limits for long waits and long holds.
pub(crate) struct Settings {
    pub(crate) observers: Vec<Box<dyn Observer>>,
    pub(crate) long_wait: Duration,
    pub(crate) long_hold: Duration,
}

/// Receives all events of a client. Clones share the same state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Point>);

struct Point {
    store: &'static str,
    settings: Settings,
    /// Whether the store responded to its last request.
    is_up: AtomicBool,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    is_down: bool,
    /// Whether the store rejects new locks, but may still renew and release existing locks. For
    /// example, a Redis server rejects new locks when its memory is full.
    is_refusing: bool,
    /// When the store last went down.
    down_since: Option<Instant>,
}

impl Settings {
    /// The default TTL.
    pub(crate) const DEFAULT_LONG_WAIT: Duration = Duration::from_secs(30);

    /// Ten times the default TTL. Few programs hold a lock for longer than this on purpose.
    pub(crate) const DEFAULT_LONG_HOLD: Duration = Duration::from_secs(300);
}

impl Events {
    pub(crate) fn new(store: &'static str, settings: Settings) -> Self {
        for observer in &settings.observers {
            // A panic is ignored here, because the log entry for a panic contains an event, and
            // there is no event yet.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| observer.on_start(store)));
        }
        let (is_up, health) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(Point { store, settings, is_up, health }))
    }

    /// Delivers an event to the log and to all observers. The caller must not hold a mutex of this
    /// crate.
    pub(crate) fn emit(&self, event: Event<'_>) {
        log::write(&event);
        for observer in &self.0.settings.observers {
            let told = panic::catch_unwind(AssertUnwindSafe(|| tell(&**observer, &event)));
            if told.is_err() {
                log::observer_panicked(&event);
            }
        }
    }

    pub(crate) fn subject<'a>(&self, key: &'a LockKey, kind: AskedKind) -> Subject<'a> {
        Subject { store: self.0.store, key, kind }
    }

    /// Returns the name of the backend.
    pub(crate) fn store(&self) -> &'static str {
        self.0.store
    }

    /// Returns the time after which a wait is reported as long, or `None` if nothing receives
    /// events.
    pub(crate) fn long_wait(&self) -> Option<Duration> {
        self.are_heard().then_some(self.0.settings.long_wait)
    }

    /// Returns whether anything receives the events of calls. Callers check this result first,
    /// because finding the holder that a call waits for takes as long as a hand-off.
    pub(crate) fn are_heard(&self) -> bool {
        !self.0.settings.observers.is_empty() || log::is_written()
    }

    pub(crate) fn long_hold(&self) -> Duration {
        self.0.settings.long_hold
    }

    /// Records the reply to a request, or the lack of a reply, to determine whether the store
    /// responds.
    pub(crate) fn heard<T>(
        &self,
        operation: Operation,
        reply: Option<&Result<T, Error>>,
        clock: &dyn Clock,
    ) {
        let silence;
        let error = match reply {
            Some(Ok(_)) => return self.answered(operation, clock),
            // No request was sent, so the error does not show whether the store responds.
            Some(Err(error))
                if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Invalid) =>
            {
                return;
            }
            Some(Err(error)) => error,
            None => {
                silence = Error::no_reply();
                &silence
            }
        };
        self.emit(Event::StoreError(StoreError { store: self.0.store, operation, error }));
        if error.is_retryable() || error.kind() == ErrorKind::Refused {
            self.missed(operation, error, clock.now());
        } else {
            self.answered(operation, clock);
        }
    }

    fn answered(&self, operation: Operation, clock: &dyn Clock) {
        if self.0.is_up.load(Ordering::Relaxed) {
            return;
        }
        let mut health = lock(&self.0.health);
        if health.is_refusing && operation != Operation::Acquire {
            return;
        }
        if self.0.is_up.swap(true, Ordering::Relaxed) {
            return;
        }
        let since = if health.is_down { health.down_since } else { None };
        (health.is_down, health.is_refusing) = (false, false);
        drop(health);
        self.change(StoreChange::Up { after: since.map(|since| clock.now().since(since)) });
    }

    fn missed(&self, operation: Operation, error: &Error, now: Instant) {
        let mut health = lock(&self.0.health);
        let is_soon = health.down_since.is_some_and(|since| now.since(since) < BETWEEN_OUTAGES);
        if health.is_down || is_soon {
            return;
        }
        let is_refusing = error.kind() == ErrorKind::Refused;
        *health = Health { is_down: true, is_refusing, down_since: Some(now) };
        self.0.is_up.store(false, Ordering::Relaxed);
        drop(health);
        self.change(StoreChange::Down { operation, error });
    }

    fn change(&self, change: StoreChange<'_>) {
        self.emit(Event::Store(Store { store: self.0.store, change }));
    }
}

fn tell(observer: &dyn Observer, event: &Event<'_>) {
    match event {
        Event::Waiting(event) => observer.on_waiting(event),
        Event::LongWait(event) => observer.on_long_wait(event),
        Event::Woken(event) => observer.on_woken(event),
        Event::Acquired(event) => observer.on_acquired(event),
        Event::Refused(event) => observer.on_refused(event),
        Event::HandedOver(event) => observer.on_handed_over(event),
        Event::LongHold(event) => observer.on_long_hold(event),
        Event::Renewed(event) => observer.on_renewed(event),
        Event::RenewalFailed(event) => observer.on_renewal_failed(event),
        Event::Unconfirmed(event) => observer.on_unconfirmed(event),
        Event::Lost(event) => observer.on_lost(event),
        Event::Released(event) => observer.on_released(event),
        Event::ReleaseFailed(event) => observer.on_release_failed(event),
        Event::Forced(event) => observer.on_forced(event),
        Event::StoreError(event) => observer.on_store_error(event),
        Event::Store(event) => observer.on_store(event),
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            observers: Vec::new(),
            long_wait: Self::DEFAULT_LONG_WAIT,
            long_hold: Self::DEFAULT_LONG_HOLD,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("observers", &self.observers.len())
            .field("long_wait", &self.long_wait)
            .field("long_hold", &self.long_hold)
            .finish()
    }
}

impl Default for Point {
    fn default() -> Self {
        Self {
            store: "none",
            settings: Settings::default(),
            is_up: AtomicBool::default(),
            health: Mutex::default(),
        }
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Point")
            .field("store", &self.store)
            .field("settings", &self.settings)
            .finish()
    }
}
