//! Manages ZooKeeper sessions. All renewed leases with the same TTL share one session. Every lease
//! that is not renewed has a separate session.
//!
//! A session expires if ZooKeeper's leader has had no contact with the session's client for the
//! length of the session timeout. If a server other than the leader replies, the reply does not
//! show when the leader last had contact with the client, because servers forward session activity
//! to the leader only every half tick. Leasehold therefore renews a session by reconnecting to it.
//! The leader must confirm the reconnection, which restarts the session timeout. A write on the
//! same connection shows that the leader has not been replaced.
//!
//! A connection is closed soon after its use, because servers limit the number of connections per
//! address, and all clients need connections for their renewals. The client crate does not send
//! pings on such a short-lived connection, so only renewals keep a session alive.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use leasehold_core::clock::{Clock, Instant};
use tokio::sync::{Mutex, OwnedRwLockReadGuard, RwLock};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use zookeeper_client::SessionInfo;

use crate::connection::{Link, MIN_TTL, Servers, Use};
use crate::error::{self, Failure};

/// The part of a session's TTL that may have elapsed before an acquisition reconnects to the
/// session. With one twelfth, a new lease has nearly all of its TTL left. The client crate sends
/// pings after three twentieths of the TTL.
const REUSE_WITHIN: u32 = 12;

/// The corresponding part for waiters. A queue entry may expire earlier than requested, because no
/// holder depends on it.
const REUSE_QUEUED_WITHIN: u32 = 3;

/// The maximum time for which a connection to a holders' session is kept. Consecutive acquisitions
/// share the connection.
const SHARED: Duration = Duration::from_millis(250);

/// The maximum time for which a connection to a waiters' session is kept. Many waiters that arrive
/// together share the connection.
const SHARED_PLACE: Duration = Duration::from_millis(5);

/// The sessions of a client.
///
/// A session is kept alive only by the renewals of the leases that are attached to it. After a lost
/// reply, a failed release or a missing renewal, a lease that no caller will renew may be attached
/// to the session. The client then stops renewing this session. The next renewal creates a new
/// session, and all renewed leases move to it. Abandoned leases expire with the old session.
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    /// The sessions, by use and TTL.
    current: StdMutex<HashMap<(Use, Duration), Slot>>,
    /// Counts the events that may have left an abandoned lease behind.
    doubts: AtomicU64,
}

/// An optional session. The caller that creates or reconnects the session locks the slot.
type Slot = Arc<Mutex<Option<Arc<Session>>>>;

/// A ZooKeeper session.
pub(crate) struct Session {
    pub(crate) id: i64,
    of: Use,
    ttl: Duration,
    /// The number of doubts when the session was created.
    doubts: u64,
    state: Mutex<Attached>,
    /// The current connection, or `None` after it was closed, so that nothing keeps the session
    /// alive.
    link: StdMutex<Option<Arc<Link>>>,
    /// Read-locked by requests in progress. A newer connection ends the previous connection, so
    /// reconnecting waits for these requests.
    uses: Arc<RwLock<()>>,
}

/// The last connection attempt of a session. The caller that reconnects keeps this value locked.
struct Attached {
    info: SessionInfo,
    /// The time just before the last successful connection attempt.
    kept_at: Instant,
}

/// A session to attach a node to, and the connection for this request.
pub(crate) struct Attachment {
    pub(crate) session: Arc<Session>,
    pub(crate) link: Arc<Link>,
    /// The time when the session expires without a further renewal.
    pub(crate) good_until: Instant,
    /// Prevents concurrent callers from reconnecting to the session in the meantime.
    _used: Option<OwnedRwLockReadGuard<()>>,
}

impl Attachment {
    pub(crate) fn id(&self) -> i64 {
        self.session.id
    }
}

impl Sessions {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, current: StdMutex::default(), doubts: AtomicU64::default() }
    }

    /// Returns the session for leases with this TTL, with nearly all of its TTL left.
    pub(crate) async fn current(
        &self,
        servers: &Servers,
        of: Use,
        ttl: Duration,
    ) -> Result<Attachment, Failure> {
        let fresh = match of {
            Use::Locks => ttl / REUSE_WITHIN,
            Use::Places => ttl / REUSE_QUEUED_WITHIN,
        };
        self.kept(servers, of, ttl, |now, kept_at| now.since(kept_at) <= fresh).await
    }

    /// Returns the session for leases with this TTL, after a connection attempt that started after
    /// this call.
    ///
    /// Calls that arrive during a connection attempt share the next attempt.
    pub(crate) async fn renewed(
        &self,
        servers: &Servers,
        of: Use,
        ttl: Duration,
    ) -> Result<Attachment, Failure> {
        let since = self.clock.now();
        // All calls in the same turn, for example the calls of a batch, share the attempt.
        yield_now().await;
        self.kept(servers, of, ttl, |_, kept_at| kept_at >= since).await
    }

    async fn kept(
        &self,
        servers: &Servers,
        of: Use,
        ttl: Duration,
        is_fresh: impl Fn(Instant, Instant) -> bool,
    ) -> Result<Attachment, Failure> {
        let slot = self.slot(of, ttl);
        let mut slot = in_time(servers, slot.lock()).await?;
        if let Some(session) = &*slot
            && session.doubts == self.doubts.load(Ordering::Relaxed)
        {
            match self.attached(servers, session, is_fresh).await {
                Err(Failure::SessionGone(_)) => {}
                attached => return attached,
            }
        }
        let attachment = self.begin(servers, of, ttl).await?;
        *slot = Some(Arc::clone(&attachment.session));
        Ok(attachment)
    }

    /// Creates a session for one lease.
    pub(crate) async fn own(
        &self,
        servers: &Servers,
        ttl: Duration,
    ) -> Result<Attachment, Failure> {
        self.begin(servers, Use::Locks, ttl).await
    }

    /// Returns when a waiter's queue entry on this session expires. Returns `None` if the entry
    /// must move to a different session or must be renewed now.
    pub(crate) async fn keeps_place(&self, session: &Session, ttl: Duration) -> Option<Instant> {
        let is_right = (session.of, session.ttl) == (Use::Places, counted(ttl));
        if !is_right || session.doubts != self.doubts.load(Ordering::Relaxed) {
            return None;
        }
        let kept_at = session.state.lock().await.kept_at;
        (self.clock.now().since(kept_at) <= ttl / REUSE_QUEUED_WITHIN)
            .then(|| kept_at + session.ttl)
    }

    /// Ensures that the servers no longer accept requests that were sent before or at `sent_at`.
    ///
    /// Servers reject requests on a connection if the session has a newer connection. All
    /// unconfirmed requests share one new connection, because a slow server can leave hundreds of
    /// requests unconfirmed.
    pub(crate) async fn settle(
        &self,
        servers: &Servers,
        session: &Arc<Session>,
        sent_at: Instant,
    ) -> Result<(), Failure> {
        let newer = self.attached(servers, session, |_, kept_at| kept_at > sent_at);
        match newer.await {
            Ok(_) | Err(Failure::SessionGone(_)) => Ok(()),
            Err(failure) => Err(failure.of_a_look()),
        }
    }

    async fn begin(
        &self,
        servers: &Servers,
        of: Use,
        ttl: Duration,
    ) -> Result<Attachment, Failure> {
        let doubts = self.doubts.load(Ordering::Relaxed);
        let kept_at = self.clock.now();
        let ttl = counted(ttl);
        let link = Arc::new(servers.begin(of, ttl).await?);
        let info = link.client().session().clone();
        let id = link.client().session_id().0;
        let (state, uses) = (Mutex::new(Attached { info, kept_at }), Arc::default());
        let current = StdMutex::new(Some(Arc::clone(&link)));
        let session = Arc::new(Session { id, of, ttl, doubts, state, link: current, uses });
        session.close_later(servers, &link);
        Ok(session.attachment(link, kept_at))
    }

    async fn attached(
        &self,
        servers: &Servers,
        session: &Arc<Session>,
        is_fresh: impl Fn(Instant, Instant) -> bool,
    ) -> Result<Attachment, Failure> {
        let mut state = in_time(servers, session.state.lock()).await?;
        let now = self.clock.now();
        let current = unpoisoned(&session.link).clone();
        if let Some(link) = current
            && link.is_alive()
            && is_fresh(now, state.kept_at)
        {
            return Ok(session.attachment(link, state.kept_at));
        }
        // Requests that do not complete within this time do not get a reply.
        let unused = timeout(servers.timeout(), Arc::clone(&session.uses).write_owned()).await;
        if let Some(link) = session.take_link() {
            link.give_up();
        }
        let now = self.clock.now();
        let link = Arc::new(servers.attach(session.of, &state.info, session.ttl).await?);
        state.info = link.client().session().clone();
        state.kept_at = now;
        *unpoisoned(&session.link) = Some(Arc::clone(&link));
        session.close_later(servers, &link);
        drop(unused);
        Ok(session.attachment(link, now))
    }

    /// Records that a node may be attached to a session that no caller will renew.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    fn slot(&self, of: Use, ttl: Duration) -> Slot {
        let now = self.clock.now();
        let mut current = unpoisoned(&self.current);
        // Sessions whose TTLs are no longer in use are dropped.
        current.retain(|_, slot| Arc::strong_count(slot) > 1 || is_in_use(slot, now));
        Arc::clone(current.entry((of, counted(ttl))).or_default())
    }
}

impl Session {
    /// The caller must have locked the state, or must be the only user of the session. Otherwise, a
    /// concurrent caller could reconnect in the meantime.
    fn attachment(self: &Arc<Self>, link: Arc<Link>, kept_at: Instant) -> Attachment {
        let used = Arc::clone(&self.uses).try_read_owned().ok();
        let good_until = kept_at + self.ttl;
        Attachment { session: Arc::clone(self), link, good_until, _used: used }
    }

    /// Closes the connection. The session lasts for one TTL after the connection was opened.
    ///
    /// This method does not wait for `state`. A caller that reconnects locks `state` and waits for
    /// the users of the current connection, one of which may be the caller of this method.
    pub(crate) fn close(&self) {
        drop(self.take_link());
    }

    fn take_link(&self) -> Option<Arc<Link>> {
        unpoisoned(&self.link).take()
    }

    /// Closes a connection before the client crate sends a ping on it.
    fn close_later(self: &Arc<Self>, servers: &Servers, link: &Arc<Link>) {
        let (session, link) = (Arc::downgrade(self), Arc::downgrade(link));
        let shared = match self.of {
            Use::Locks => SHARED,
            Use::Places => SHARED_PLACE,
        };
        let age = shared.min(self.ttl / REUSE_WITHIN);
        servers.tasks().spawn(async move {
            sleep(age).await;
            if let (Some(session), Some(link)) = (session.upgrade(), link.upgrade()) {
                unpoisoned(&session.link).take_if(|current| Arc::ptr_eq(current, &link));
            }
        });
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// Returns the session timeout for leases with this TTL. Servers count in milliseconds.
fn counted(ttl: Duration) -> Duration {
    let millis = ttl.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).max(MIN_TTL)
}

fn is_in_use(slot: &Slot, now: Instant) -> bool {
    let Ok(session) = slot.try_lock() else { return true };
    let Some(session) = &*session else { return false };
    session.state.try_lock().map_or(true, |state| now < state.kept_at + session.ttl)
}

/// Waits while concurrent callers use the session, but not longer than the time limit for a reply.
/// With this limit, all waiting callers fail at the same time if the ensemble does not reply.
async fn in_time<T>(servers: &Servers, waiting: impl Future<Output = T>) -> Result<T, Failure> {
    let waited = timeout(servers.timeout(), waiting).await;
    waited.map_err(|_| Failure::ServerDown(error::unreachable()))
}
