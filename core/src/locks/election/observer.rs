//! An observer of the leader, and of each change that it sees.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};

use super::Leader;
use crate::clock::{self, Instant};
use crate::contract::backend::{KeyWatch, Operation};
use crate::contract::error::{Error, ErrorKind};
use crate::locks::face::Face;
use crate::retry::{Pauses, Retry};

/// How often the observer looks if no news comes, as waiters for a lock do.
const POLL: Duration = Duration::from_secs(1);

/// How much later than a leader's lease ends to look: stores expire keys to the millisecond.
const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

/// How far apart looks are at least, so that a flood of news costs the store no more than that.
const LOOK_SPACING: Duration = Duration::from_millis(10);

/// How long a look may take: longer than a connection takes that must be made anew.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// Observes the leader of an [`Election`](crate::election::Election) and its proclamations.
///
/// The observer looks when the store has news, when the leader's lease ends, and every second in any case. It
/// tells the latest state and no history: of changes that follow each other quickly it may leave some out,
/// such as a moment without a leader, or a leader that came and went.
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
    face: Face,
    watch: KeyWatch,
    /// The state that the caller was told last, if any.
    told: Option<Option<Leader>>,
    /// When to look next, unless there is news before.
    look_at: Instant,
    /// When news may be followed at the earliest.
    spaced: Instant,
    /// Since when the store has not answered, unless the caller was told.
    silent_since: Option<Instant>,
    pauses: Pauses,
}

impl Observer {
    pub(super) fn new(face: Face) -> Self {
        let engine = face.engine();
        // Before the first look, so that nothing between it and the waiting is missed.
        let (watch, now) = (engine.backend().watch(face.key()), engine.now());
        Self {
            face,
            watch,
            told: None,
            look_at: now,
            spaced: now,
            silent_since: None,
            pauses: Retry::default().pauses(),
        }
    }

    /// Returns the leader: on the first call at once, and from then on after the next change.
    ///
    /// A change is another leader, another value, or no leader. The observer never returns the same
    /// state twice in a row.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] each time that the store has not answered for another
    /// [`LockOptions::outage_wait`](crate::LockOptions::outage_wait), and at once an error that no retry can mend. The state
    /// returned last is then the last that is known, and the next call goes on from there, after a pause.
    /// [`ErrorKind::Closed`] when the client was shut down.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the next call returns the change that this one did not.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        let engine = Arc::clone(self.face.engine());
        let told = engine.while_open(pin!(self.changed())).await;
        told.map_err(|error| {
            error
                .with_operation(Operation::Inspect)
                .with_key(self.face.key())
                .with_backend(engine.backend().capabilities().name())
        })
    }

    /// The same as a stream, which ends after [`ErrorKind::Closed`].
    ///
    /// A stream that is not polled keeps a request under way, so its first item may then be out of date;
    /// the next one follows at once.
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

    /// Waits until a look is due, or there is news. To know that outlives being dropped.
    async fn wait_to_look(&mut self) {
        let clock = self.face.engine().clock();
        while clock.now() < self.look_at {
            let news = clock::until(clock, self.look_at, self.watch.changed()).await;
            if news.is_some() {
                self.look_at = self.look_at.min(self.spaced);
            }
        }
    }

    /// Looks. Until the store has answered, a look remains due.
    async fn look(&mut self) -> Result<Option<Leader>, Error> {
        let clock = self.face.engine().clock();
        let sent_at = clock.now();
        let reply = clock::until(clock, sent_at + LOOK_LIMIT, Leader::of(&self.face)).await;
        let now = clock.now();
        self.spaced = sent_at + LOOK_SPACING;
        let seen =
            reply.unwrap_or_else(|| Err(Error::new(ErrorKind::Indeterminate, "no reply in time")));
        match &seen {
            Ok(leader) => {
                let ends = leader.as_ref().and_then(Leader::remaining);
                self.look_at =
                    now + ends.map_or(POLL, |ends| POLL.min(ends.saturating_add(EXPIRY_MARGIN)));
                self.silent_since = None;
                self.pauses = Retry::default().pauses();
            }
            Err(_) => {
                self.look_at = now + self.pauses.next().unwrap_or(POLL);
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
        let engine = self.face.engine();
        self.silent_since
            .is_some_and(|since| engine.now() >= since + self.face.options().outage_wait)
    }
}
