//! State that all connections of a backend share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, ErrorKind};

use crate::address::Address;
use crate::driver::{Access, Driver, Protocol};
use crate::watch::News;

/// State that all connections of a backend share.
pub(crate) struct Context<D> {
    pub(crate) driver: D,
    pub(crate) timeout: Duration,
    clock: Arc<dyn Clock>,
    pub(crate) news: Arc<News>,
    /// Whether servers are asked to tell of changes.
    push: AtomicBool,
    /// Whether servers can be told of which requests they need tell no changes.
    forgoes_news: AtomicBool,
    /// Whether this client receives offers to its waiters.
    hears_offers: AtomicBool,
    /// Where we do.
    channel: String,
    /// A key that nothing is ever stored under.
    nothing: String,
    /// The protocol that servers are to be spoken to in.
    pub(crate) protocol: Protocol,
    /// How often there was reason to doubt which servers are in charge.
    suspicions: AtomicU64,
    closed: AtomicBool,
    /// Whether it was said that a password crosses a network in the clear.
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
        let (forgoes_news, hears_offers) = (AtomicBool::new(true), AtomicBool::new(false));
        let (push, channel, nothing) = (AtomicBool::new(push), news.channel(), news.nothing());
        Arc::new(Self {
            driver,
            timeout,
            clock,
            news,
            push,
            forgoes_news,
            hears_offers,
            channel,
            nothing,
            protocol,
            suspicions: AtomicU64::new(0),
            closed,
            has_warned,
        })
    }

    /// The time on the clock of the configuration, by which a server is believed: it goes on while the machine is suspended.
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Whether servers tell of changes, as far as is known.
    pub(crate) fn has_push(&self) -> bool {
        self.push.load(Ordering::Relaxed) && self.protocol == Protocol::Resp3
    }

    /// Whether servers can be told of which requests they need tell no changes, as far as is known.
    pub(crate) fn may_forgo_news(&self) -> bool {
        self.forgoes_news.load(Ordering::Relaxed) && self.has_push()
    }

    /// A server does not let itself be told that.
    pub(crate) fn take_all_news(&self) {
        if self.forgoes_news.swap(false, Ordering::Relaxed) {
            tracing::info!(
                "the server does not let us forgo news: many locks at a time take longer"
            );
        }
    }

    /// From now on, connections subscribe to offers to this client's waiters.
    pub(crate) fn hear_offers(&self) {
        self.hears_offers.store(true, Ordering::Relaxed);
    }

    /// A server refused the subscription to offers.
    pub(crate) fn stop_offers(&self) {
        self.hears_offers.store(false, Ordering::Relaxed);
    }

    /// The channel of offers to this client's waiters, if it is subscribed, as far as is known.
    pub(crate) fn channel(&self) -> Option<&str> {
        let hears = self.hears_offers.load(Ordering::Relaxed) && self.has_push();
        hears.then_some(&*self.channel)
    }

    /// A key that nothing is ever stored under.
    pub(crate) fn nothing(&self) -> &str {
        &self.nothing
    }

    /// There is reason to ask again which servers are in charge.
    pub(crate) fn suspect(&self) {
        self.suspicions.fetch_add(1, Ordering::Relaxed);
    }

    /// How often there was.
    pub(crate) fn suspicions(&self) -> u64 {
        self.suspicions.load(Ordering::Relaxed)
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

    /// A server tells of no changes.
    pub(crate) fn stop_push(&self) {
        self.push.store(false, Ordering::Relaxed);
    }

    /// Warns, once, of a password that is about to cross a network in the clear.
    pub(crate) fn warn_if_exposed(&self, access: &Access, address: &Address) {
        let is_exposed =
            access.password.is_some() && !self.driver.is_encrypted() && !address.is_local();
        if is_exposed && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%address, "the password crosses the network in the clear: use TLS");
        }
    }

    /// The error of a connection that took too long to make, or to come by.
    pub(crate) fn no_connection(&self) -> Error {
        let message = format!(
            "no connection within {:?}: a server that is farther away needs a longer timeout-ms",
            self.timeout
        );
        Error::new(ErrorKind::Unavailable, message)
    }
}
