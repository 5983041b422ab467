//! An observer that reports an election's current leader and every change of leader.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};

use super::Leader;
use crate::clock::{self, Instant};
use crate::contract::backend::{KeyWatch, Operation, Subject};
use crate::contract::error::{Error, ErrorKind};
use crate::locks::handle::LockHandle;
use crate::retry::{Pauses, Retry};

/// The time between two requests if the store does not send a notification. Clients that are
/// waiting for a lock poll at the same interval.
const POLL: Duration = Duration::from_secs(1);

/// How long to wait after the leader's lease should have expired, because stores expire keys with
/// millisecond precision.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// The minimum time between two requests during a flood of notifications.
const ATTEMPT_SPACING: Duration = Duration::from_millis(10);

/// The time limit for one request, which is long enough to open a new connection.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Observes the leader of an [`Election`](crate::election::Election) and the proclaimed value.
///
/// The observer reads the state from the store when the store sends a notification, when the
/// leader's lease expires, and at least once per second. The observer reports the latest state and
/// does not keep a history. If several changes occur in quick succession, the observer may skip
/// some of them, for example a short period without a leader.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
///
/// let client = LockClient::new(MemoryBackend::new());
/// let election = client.election("scheduler")?;
/// let mut observer = election.observe();
/// assert!(observer.next().await?.is_none());
///
/// let term = election.campaign("10.0.0.1:7000").await?;
/// let leader = observer.next().await?.expect("the candidate leads");
/// assert_eq!(leader.value(), &term.value());
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Observer {
    handle: LockHandle,
    watch: KeyWatch,
    /// The state that [`next`](Self::next) returned last, if any.
    told: Option<Option<Leader>>,
    /// When the next request is due, unless a notification arrives first.
    next_attempt: Instant,
    /// The earliest time at which a notification may cause a request.
    spaced: Instant,
    /// When the first request without a reply was sent. `None` if the store has replied since, or
    /// if the missing reply was already reported to the caller as an error.
    silent_since: Option<Instant>,
    pauses: Pauses,
}

impl Observer {
    pub(super) fn new(handle: LockHandle) -> Self {
        let engine = handle.engine();
        // Subscribe before the first request, so that no change between the request and the wait is
        // missed.
        let (watch, now) = (engine.backend().watch(Subject::Key(handle.key())), engine.now());
        Self {
            handle,
            watch,
            told: None,
            next_attempt: now,
            spaced: now,
            silent_since: None,
            pauses: Retry::default().pauses(),
        }
    }

    /// Waits for a change of the leader or its value, and returns the current leader. The first
    /// call returns the current leader without waiting for a change.
    ///
    /// A change is a new leader, a new value, or the end of a leadership. The observer never
    /// returns the same state twice in a row.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the store has not
    /// replied for [`LockOptions::outage_wait`](crate::LockOptions::outage_wait), and returns the
    /// error again each time another `outage_wait` passes without a reply. Returns an error from
    /// the store immediately if a retry cannot succeed. After an error, the next call tries again
    /// after a pause.
    ///
    /// Returns [`ErrorKind::Closed`] if the client was shut down.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If a call is dropped before it returns a change, the next call
    /// returns the change.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        let engine = Arc::clone(self.handle.engine());
        let told = engine.while_open(pin!(self.changed())).await;
        told.map_err(|error| {
            error
                .with_operation(Operation::Inspect)
                .with_key(self.handle.key())
                .with_backend(engine.backend().capabilities().name())
        })
    }

    /// Returns a stream of the results of [`next`](Self::next). The stream ends after
    /// [`ErrorKind::Closed`].
    ///
    /// If the stream has not been polled for a while, its next item may come from an earlier
    /// request and be outdated. After an outdated item, the stream immediately returns the current
    /// state.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use futures_util::TryStreamExt;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{ErrorKind, LockClient};
    ///
    /// let client = LockClient::new(MemoryBackend::new());
    /// let mut changes = pin!(client.election("scheduler")?.observe().into_stream());
    /// assert!(changes.try_next().await?.is_some_and(|leader| leader.is_none()));
    ///
    /// client.shutdown(Duration::ZERO).await?;
    /// assert_eq!(changes.try_next().await.unwrap_err().kind(), ErrorKind::Closed);
    /// assert!(changes.try_next().await?.is_none());
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = Result<Option<Leader>, Error>> + Send + 'static {
        stream::unfold(Some(self), |observer| async move {
            let mut observer = observer?;
            let told = observer.next().await;
            let closed = matches!(&told, Err(error) if error.kind() == ErrorKind::Closed);
            Some((told, (!closed).then_some(observer)))
        })
    }

    async fn changed(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            self.wait_to_look().await;
            match self.look().await {
                Ok(leader) if self.was_told(leader.as_ref()) => {}
                Ok(leader) => {
                    self.told = Some(leader.clone());
                    return Ok(leader);
                }
                Err(error) if error.is_retryable() && !self.is_silent_for_long() => {}
                Err(error) => {
                    self.silent_since = None;
                    return Err(error);
                }
            }
        }
    }

    /// Waits until a request is due, or until a notification arrives. A notification is recorded in
    /// `look_at`, so the notification is not lost if this future is dropped.
    async fn wait_to_look(&mut self) {
        let clock = self.handle.engine().clock();
        while clock.now() < self.next_attempt {
            let news = clock::until(clock, self.next_attempt, self.watch.changed()).await;
            if news.is_some() {
                self.next_attempt = self.next_attempt.min(self.spaced);
            }
        }
    }

    /// Sends one request. If this future is dropped before the reply arrives, a new request is
    /// still due.
    async fn look(&mut self) -> Result<Option<Leader>, Error> {
        let clock = self.handle.engine().clock();
        let sent_at = clock.now();
        let reply = clock::until(clock, sent_at + LOOK_LIMIT, Leader::of(&self.handle)).await;
        let now = clock.now();
        self.spaced = sent_at + ATTEMPT_SPACING;
        let seen =
            reply.unwrap_or_else(|| Err(Error::new(ErrorKind::Indeterminate, "no reply in time")));
        match &seen {
            Ok(leader) => {
                let ends = leader.as_ref().and_then(Leader::remaining);
                self.next_attempt =
                    now + ends.map_or(POLL, |ends| POLL.min(ends.saturating_add(EXPIRY_MARGIN)));
                self.silent_since = None;
                self.pauses = Retry::default().pauses();
            }
            Err(_) => {
                self.next_attempt = now + self.pauses.next().unwrap_or(POLL);
                self.silent_since.get_or_insert(sent_at);
            }
        }
        seen
    }

    fn was_told(&self, leader: Option<&Leader>) -> bool {
        match (&self.told, leader) {
            (None, _) => false,
            (Some(None), None) => true,
            (Some(Some(told)), Some(leader)) => told.says_the_same(leader),
            (Some(_), _) => false,
        }
    }

    fn is_silent_for_long(&self) -> bool {
        let engine = self.handle.engine();
        self.silent_since
            .is_some_and(|since| engine.now() >= since + self.handle.options().outage_wait)
    }
}
