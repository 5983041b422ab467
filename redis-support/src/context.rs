//! The state that all connections of a backend share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, ErrorKind};

use crate::address::Address;
use crate::driver::{Access, Driver, Protocol};
use crate::watch::News;

/// The state that all connections of a backend share.
pub(crate) struct Context<D> {
    pub(crate) driver: D,
    pub(crate) timeout: Duration,
    clock: Arc<dyn Clock>,
    pub(crate) news: Arc<News>,
    /// Whether the client requests change notifications from servers.
    push: AtomicBool,
    /// Whether servers support requests without notifications.
    forgoes_news: AtomicBool,
    /// Whether this client receives reservations for its waiters.
    hears_reservations: AtomicBool,
    /// The channel on which this client receives reservations.
    channel: String,
    /// A key that never exists.
    nothing: String,
    /// The protocol for connections to servers.
    pub(crate) protocol: Protocol,
    /// The number of reasons so far to doubt which servers are the primaries.
    failure_reports: AtomicU64,
    closed: AtomicBool,
    /// Whether the warning about an unencrypted password has been logged.
    has_warned: AtomicBool,
}

impl<D: Driver> Context<D> {
    pub(crate) fn new(
        driver: D,
        timeout: Duration,
        clock: Arc<dyn Clock>,
        news: Arc<News>,
        push: bool,
        protocol: Protocol,
    ) -> Arc<Self> {
        let (closed, has_warned) = (AtomicBool::new(false), AtomicBool::new(false));
        let (forgoes_news, hears_reservations) = (AtomicBool::new(true), AtomicBool::new(false));
        let (push, channel, nothing) = (AtomicBool::new(push), news.channel(), news.nothing());
        Arc::new(Self {
            driver,
            timeout,
            clock,
            news,
            push,
            forgoes_news,
            hears_reservations,
            channel,
            nothing,
            protocol,
            failure_reports: AtomicU64::new(0),
            closed,
            has_warned,
        })
    }

    /// Returns the time of the configured clock, which limits how long a server is considered the
    /// primary. This clock keeps running while the machine is suspended.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns whether servers send notifications, according to what the client knows.
    pub(crate) fn has_push(&self) -> bool {
        self.push.load(Ordering::Relaxed) && self.protocol == Protocol::Resp3
    }

    /// Returns whether servers support requests without notifications, according to what the client
    /// knows.
    pub(crate) fn may_forgo_news(&self) -> bool {
        self.forgoes_news.load(Ordering::Relaxed) && self.has_push()
    }

    /// Records that a server does not support requests without notifications.
    pub(crate) fn take_all_news(&self) {
        if self.forgoes_news.swap(false, Ordering::Relaxed) {
            tracing::info!(
                "the server does not accept CLIENT CACHING; acquiring many locks at the same time takes longer"
            );
        }
    }

    /// Makes new connections subscribe to reservations for this client's waiters.
    pub(crate) fn hear_reservations(&self) {
        self.hears_reservations.store(true, Ordering::Relaxed);
    }

    /// Records that a server rejected the subscription to reservations.
    pub(crate) fn stop_reservations(&self) {
        self.hears_reservations.store(false, Ordering::Relaxed);
    }

    /// Returns the channel of reservations for this client's waiters, if the client considers
    /// itself subscribed to the channel.
    pub(crate) fn channel(&self) -> Option<&str> {
        let hears = self.hears_reservations.load(Ordering::Relaxed) && self.has_push();
        hears.then_some(&*self.channel)
    }

    /// Returns a key that never exists.
    pub(crate) fn nothing(&self) -> &str {
        &self.nothing
    }

    /// Records a reason to query the primaries again.
    pub(crate) fn suspect(&self) {
        self.failure_reports.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of calls to [`suspect`](Self::suspect).
    pub(crate) fn failure_reports(&self) -> u64 {
        self.failure_reports.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn ensure_open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the backend was closed"));
        }
        Ok(())
    }

    /// Records that a server does not send notifications.
    pub(crate) fn stop_push(&self) {
        self.push.store(false, Ordering::Relaxed);
    }

    /// Logs a warning, at most once, if a password is about to cross a network without encryption.
    pub(crate) fn warn_if_exposed(&self, access: &Access, address: &Address) {
        let is_exposed =
            access.password.is_some() && !self.driver.is_encrypted() && !address.is_local();
        if is_exposed && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%address, "the password is sent over the network unencrypted; use TLS");
        }
    }

    /// Returns the error for a connection that was not available in time.
    pub(crate) fn no_connection(&self) -> Error {
        let message = format!(
            "could not connect within {:?}; if the server is far away, increase timeout-ms",
            self.timeout
        );
        Error::new(ErrorKind::Unavailable, message)
    }
}
