//! The `tracing` events and spans.

use std::fmt;

use tracing::field::display;
use tracing::{Level, Span, debug_span, enabled, event, info_span};

use super::event::{
    Acquired, AskedKind, Event, Forced, HandedOver, LongHold, LongWait, Lost, Refused,
    ReleaseFailed, Released, RenewalFailed, Renewed, Store, StoreChange, StoreError, Unconfirmed,
    Waiting, Woken,
};
use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::contract::token::FencingToken;

/// The target of all events and spans.
const TARGET: &str = "leasehold";

/// Returns whether the log accepts events at the level of long waits. If the log does not accept
/// these events, it does not accept events at more verbose levels either.
pub(super) fn is_written() -> bool {
    enabled!(target: TARGET, Level::INFO)
}

pub(super) fn write(event: &Event<'_>) {
    match event {
        Event::Waiting(it) => waiting(it),
        Event::LongWait(it) => long_wait(it),
        Event::Woken(it) => woken(it),
        Event::Acquired(it) => acquired(it),
        Event::Refused(it) => refused(it),
        Event::HandedOver(it) => handed_over(it),
        Event::LongHold(it) => long_hold(it),
        Event::Renewed(it) => renewed(it),
        Event::RenewalFailed(it) => renewal_failed(it),
        Event::Unconfirmed(it) => unconfirmed(it),
        Event::Lost(it) => lost(it),
        Event::Released(it) => released(it),
        Event::ReleaseFailed(it) => release_failed(it),
        Event::Forced(it) => forced(it),
        Event::StoreError(it) => store_error(it),
        Event::Store(it) => store(it),
    }
}

/// Returns the span of a call for a lock, from the request to its outcome.
pub(super) fn acquire_span(key: &LockKey, kind: AskedKind) -> Span {
    debug_span!(target: TARGET, "leasehold.acquire", %key, %kind)
}

/// Returns the span of work that is done under a lock.
pub(crate) fn hold_span(parent: Option<&Span>, token: &FencingToken, kind: AskedKind) -> Span {
    let (key, token) = (token.key(), token.number());
    match parent {
        None => info_span!(target: TARGET, "leasehold.hold", %key, %kind, token),
        Some(parent) => {
            info_span!(target: TARGET, parent: parent, "leasehold.hold", %key, %kind, token)
        }
    }
}

/// Returns the span of a request that renews this many leases.
pub(crate) fn renew_span(leases: usize) -> Span {
    debug_span!(target: TARGET, "leasehold.renew", leases)
}

/// Returns the span of the wait until the store confirms a release.
pub(crate) fn release_span(key: &LockKey) -> Span {
    debug_span!(target: TARGET, "leasehold.release", %key)
}

fn waiting(Waiting { lock, holder }: &Waiting<'_>) {
    let holder = holder.map(|holder| display(Named(holder)));
    event!(name: "leasehold.waiting", target: TARGET, Level::DEBUG,
        key = %lock.key, kind = %lock.kind, holder, "waits");
}

fn long_wait(LongWait { lock, holder, by_caller, waited }: &LongWait<'_>) {
    let by = holder.map_or_else(String::new, |holder| format!(", held by {}", Named(holder)));
    let itself =
        if *by_caller { "; this task acquired it and may be waiting for itself" } else { "" };
    let (key, holder) = (lock.key, holder.map(|holder| display(Named(holder))));
    event!(name: "leasehold.long_wait", target: TARGET, Level::INFO,
        %key, kind = %lock.kind, holder, by_caller, ?waited, "a call has waited {waited:.0?} for {key}{by}{itself}");
}

fn woken(Woken { lock, by }: &Woken<'_>) {
    event!(name: "leasehold.woken", target: TARGET, Level::TRACE,
        key = %lock.key, kind = %lock.kind, by = by.name(), "asks the store again");
}

fn acquired(Acquired { lock, token, path, took, waited }: &Acquired<'_>) {
    event!(name: "leasehold.acquired", target: TARGET, Level::DEBUG,
        key = %lock.key, kind = %lock.kind, token, path = path.name(), ?took, waited, "acquired");
}

fn refused(Refused { lock, why, holder, took, waited }: &Refused<'_>) {
    let (holder, error) = (holder.map(|holder| display(Named(holder))), why.error().map(display));
    event!(name: "leasehold.refused", target: TARGET, Level::DEBUG,
        key = %lock.key, kind = %lock.kind, why = why.name(), holder, error, ?took, waited, "not acquired");
}

fn handed_over(HandedOver { lock, token, next_token, held }: &HandedOver<'_>) {
    event!(name: "leasehold.handed_over", target: TARGET, Level::DEBUG,
        key = %lock.key, kind = %lock.kind, token, next_token, ?held, "handed over");
}

fn long_hold(LongHold { lock, token, held }: &LongHold<'_>) {
    let key = lock.key;
    event!(name: "leasehold.long_hold", target: TARGET, Level::WARN,
        %key, kind = %lock.kind, token, ?held, "a holder has held {key} for {held:.0?}");
}

fn renewed(Renewed { lock, token, lag, remaining }: &Renewed<'_>) {
    event!(name: "leasehold.renewed", target: TARGET, Level::TRACE,
        key = %lock.key, kind = %lock.kind, token, ?lag, ?remaining, "renewed");
}

fn renewal_failed(RenewalFailed { lock, token, error, remaining }: &RenewalFailed<'_>) {
    event!(name: "leasehold.renewal_failed", target: TARGET, Level::DEBUG,
        key = %lock.key, kind = %lock.kind, token, %error, ?remaining, "renewal failed, will try again");
}

fn unconfirmed(Unconfirmed { lock, token, error, remaining }: &Unconfirmed<'_>) {
    let error = error.map(display);
    event!(name: "leasehold.unconfirmed", target: TARGET, Level::WARN,
        key = %lock.key, kind = %lock.kind, token, error, ?remaining, "the lease renewal is overdue; retrying until the deadline");
}

fn lost(Lost { lock, token, lease, reason, held }: &Lost<'_>) {
    event!(name: "leasehold.lost", target: TARGET, Level::WARN,
        key = %lock.key, kind = %lock.kind, token, %lease, %reason, ?held, "lease lost");
}

fn released(Released { lock, token, held }: &Released<'_>) {
    event!(name: "leasehold.released", target: TARGET, Level::DEBUG,
        key = %lock.key, kind = %lock.kind, token, ?held, "released");
}

fn release_failed(ReleaseFailed { key, error, retried, .. }: &ReleaseFailed<'_>) {
    if *retried {
        event!(name: "leasehold.release_failed", target: TARGET, Level::DEBUG,
            %key, %error, "release failed, will try again");
    } else {
        event!(name: "leasehold.release_given_up", target: TARGET, Level::WARN,
            %key, %error, "release failed; the lock expires after its TTL");
    }
}

fn forced(Forced { key, holder, why, .. }: &Forced<'_>) {
    event!(name: "leasehold.forced", target: TARGET, Level::WARN,
        %key, lease = %holder.fingerprint(), why, "lease ended by an operator");
}

fn store_error(StoreError { store, operation, error }: &StoreError<'_>) {
    event!(name: "leasehold.store_error", target: TARGET, Level::DEBUG,
        store, %operation, kind = ?error.kind(), %error, "request failed");
}

fn store(Store { store, change }: &Store<'_>) {
    match change {
        StoreChange::Down { operation, error } => {
            event!(name: "leasehold.store_down", target: TARGET, Level::WARN,
                store, %operation, %error, "requests to the store are failing");
        }
        StoreChange::Up { after: Some(after) } => {
            event!(name: "leasehold.store_up", target: TARGET, Level::INFO,
                store, ?after, "requests to the store succeed again");
        }
        StoreChange::Up { after: None } => {
            event!(name: "leasehold.store_found", target: TARGET, Level::DEBUG, store, "requests to the store succeed");
        }
    }
}

/// Logs that an observer panicked when it received `event`.
pub(super) fn observer_panicked(event: &Event<'_>) {
    event!(name: "leasehold.observer_panicked", target: TARGET, Level::ERROR,
        ?event, "an observer panicked");
}

/// A short name of a holder. The name does not include the state of the lease, because that state
/// would be outdated.
struct Named<'a>(&'a Holder);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.description() {
            Some(description) => fmt::Display::fmt(description, f),
            None => fmt::Display::fmt(&self.0.fingerprint(), f),
        }
    }
}
