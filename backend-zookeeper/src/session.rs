//! ZooKeeper's sessions: one of each TTL for all leases of ours that are kept, and own ones for the others.
//!
//! A session lasts from when the leader has heard of it last, and a reply of another server does not tell when that was: servers
//! pass on their news every half tick. So Leasehold renews a session by connecting to it again, which the leader has to allow: from then on
//! the leader counts the session's time anew. A write on the same connection shows that the leader still leads. A connection is closed
//! soon, because servers limit the connections of an address, and the renewals of other clients need them too. The client crate sends no
//! pings on one that young: nothing but renewals keeps a session alive.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use leasehold_core::clock::{Clock, Instant};
use tokio::sync::{Mutex, OwnedRwLockReadGuard, RwLock};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use zookeeper_client::SessionInfo;

use crate::connection::{Link, MIN_TTL, Servers};
use crate::error::{self, Failure};
use crate::sync::locked;

/// Which part of its TTL a session may have used up before an acquisition connects to it again: a lease begins with nearly all of its TTL.
/// The client crate pings after three twentieths.
const FRESH: u32 = 12;

/// The same of waiters: a place is kept for less time than was asked for, and no holder believes in it.
const FRESH_PLACE: u32 = 3;

/// How long a connection to a session of holders lasts at most: acquisitions one after the other share it.
const SHARED: Duration = Duration::from_millis(250);

/// How long a connection to a session of waiters lasts at most: the places of many that come together are made on it.
const SHARED_PLACE: Duration = Duration::from_millis(5);

/// The sessions of a client.
///
/// A session is kept alive only by the renewals of those that hang on it. If something may hang on it that will not be
/// renewed, since a reply was lost, a release failed or a renewal is missing, it is not connected to any more: the next renewal
/// begins another, to which all renewed leases move, and the leftovers end with the old one.
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    /// By use and by TTL.
    current: StdMutex<HashMap<(Use, Duration), Slot>>,
    /// Counts the events that may have left something behind.
    doubts: AtomicU64,
}

/// A session, if there is one, locked by the caller that begins it or connects to it.
type Slot = Arc<Mutex<Option<Arc<Session>>>>;

/// The use of a session.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Use {
    /// Holders: their renewals keep nothing alive but each other.
    Locks,
    /// Waiters.
    Places,
}

/// One of ZooKeeper's sessions.
pub(crate) struct Session {
    pub(crate) id: i64,
    of: Use,
    ttl: Duration,
    /// How many doubts there were when it began.
    doubts: u64,
    state: Mutex<Attached>,
    /// Read-locked by requests under way: a newer connection ends the one before, so it waits for them.
    uses: Arc<RwLock<()>>,
}

/// How a session is connected to.
struct Attached {
    info: SessionInfo,
    /// `None` once it is closed, so that nothing keeps the session alive.
    link: Option<Arc<Link>>,
    /// The clock before the last connection was asked for that was made.
    kept_at: Instant,
}

/// A session to hang something on, and the connection on which that is done.
pub(crate) struct Hook {
    pub(crate) session: Arc<Session>,
    pub(crate) link: Arc<Link>,
    /// Until when it is good without being kept alive.
    pub(crate) good_until: Instant,
    /// Keeps others from connecting to the session again meanwhile.
    _used: Option<OwnedRwLockReadGuard<()>>,
}

impl Hook {
    pub(crate) fn id(&self) -> i64 {
        self.session.id
    }
}

impl Sessions {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, current: StdMutex::default(), doubts: AtomicU64::default() }
    }

    /// The session for leases with this TTL, with nearly all of it left.
    pub(crate) async fn current(
        &self,
        servers: &Servers,
        of: Use,
        ttl: Duration,
    ) -> Result<Hook, Failure> {
        let fresh = match of {
            Use::Locks => ttl / FRESH,
            Use::Places => ttl / FRESH_PLACE,
        };
        self.kept(servers, of, ttl, |now, kept_at| now.since(kept_at) <= fresh).await
    }

    /// The session for leases with this TTL, connected to no earlier than this call.
    ///
    /// Calls that come in while such a connection is made share the next one.
    pub(crate) async fn renewed(
        &self,
        servers: &Servers,
        of: Use,
        ttl: Duration,
    ) -> Result<Hook, Failure> {
        let since = self.clock.now();
        // Others that are called in the same turn, as for batches, share it.
        yield_now().await;
        self.kept(servers, of, ttl, |_, kept_at| kept_at >= since).await
    }

    async fn kept(
        &self,
        servers: &Servers,
        of: Use,
        ttl: Duration,
        is_fresh: impl Fn(Instant, Instant) -> bool,
    ) -> Result<Hook, Failure> {
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
        let hook = self.begin(servers, of, ttl).await?;
        *slot = Some(Arc::clone(&hook.session));
        Ok(hook)
    }

    /// A session for one lease of ours.
    pub(crate) async fn own(&self, servers: &Servers, ttl: Duration) -> Result<Hook, Failure> {
        self.begin(servers, Use::Locks, ttl).await
    }

    /// Until when the place of a waiter is kept that hangs on this session. `None` if it is to hang on another, or to be kept alive now.
    pub(crate) async fn keeps_place(&self, session: &Session, ttl: Duration) -> Option<Instant> {
        let is_right = (session.of, session.ttl) == (Use::Places, counted(ttl));
        if !is_right || session.doubts != self.doubts.load(Ordering::Relaxed) {
            return None;
        }
        let kept_at = session.state.lock().await.kept_at;
        (self.clock.now().since(kept_at) <= ttl / FRESH_PLACE).then(|| kept_at + session.ttl)
    }

    /// Makes sure that the servers take no more requests that were sent by `sent_at`.
    ///
    /// The servers refuse requests on a connection once there is a newer one. All requests before it share that one: where a server was slow,
    /// hundreds of them may be in doubt.
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

    async fn begin(&self, servers: &Servers, of: Use, ttl: Duration) -> Result<Hook, Failure> {
        let doubts = self.doubts.load(Ordering::Relaxed);
        let kept_at = self.clock.now();
        let ttl = counted(ttl);
        let link = Arc::new(servers.begin(of, ttl).await?);
        let info = link.client().session().clone();
        let attached = Attached { info, link: Some(Arc::clone(&link)), kept_at };
        let id = link.client().session_id().0;
        let (state, uses) = (Mutex::new(attached), Arc::default());
        let session = Arc::new(Session { id, of, ttl, doubts, state, uses });
        session.close_later(servers, &link);
        Ok(session.hook(link, kept_at))
    }

    async fn attached(
        &self,
        servers: &Servers,
        session: &Arc<Session>,
        is_fresh: impl Fn(Instant, Instant) -> bool,
    ) -> Result<Hook, Failure> {
        let mut state = in_time(servers, session.state.lock()).await?;
        let now = self.clock.now();
        if let Some(link) = &state.link
            && link.is_alive()
            && is_fresh(now, state.kept_at)
        {
            return Ok(session.hook(Arc::clone(link), state.kept_at));
        }
        // Requests that do not end in that time get no reply.
        let unused = timeout(servers.timeout(), Arc::clone(&session.uses).write_owned()).await;
        if let Some(link) = state.link.take() {
            link.give_up();
        }
        let now = self.clock.now();
        let link = Arc::new(servers.attach(session.of, &state.info, session.ttl).await?);
        state.info = link.client().session().clone();
        state.kept_at = now;
        state.link = Some(Arc::clone(&link));
        session.close_later(servers, &link);
        drop(unused);
        Ok(session.hook(link, now))
    }

    /// Something may hang on any of the sessions that will not be renewed.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    fn slot(&self, of: Use, ttl: Duration) -> Slot {
        let now = self.clock.now();
        let mut current = locked(&self.current);
        // Sessions of TTLs that are not in use any more.
        current.retain(|_, slot| Arc::strong_count(slot) > 1 || is_in_use(slot, now));
        Arc::clone(current.entry((of, counted(ttl))).or_default())
    }
}

impl Session {
    /// Must be called with the state locked, or before others know of the session, so that it is not connected to meanwhile.
    fn hook(self: &Arc<Self>, link: Arc<Link>, kept_at: Instant) -> Hook {
        let used = Arc::clone(&self.uses).try_read_owned().ok();
        let good_until = kept_at + self.ttl;
        Hook { session: Arc::clone(self), link, good_until, _used: used }
    }

    /// Closes the connection. The session lasts for its TTL from when it was made.
    pub(crate) async fn close(&self) {
        self.state.lock().await.link = None;
    }

    /// Closes a connection before the client crate pings on it.
    fn close_later(self: &Arc<Self>, servers: &Servers, link: &Arc<Link>) {
        let (session, link) = (Arc::downgrade(self), Arc::downgrade(link));
        let shared = match self.of {
            Use::Locks => SHARED,
            Use::Places => SHARED_PLACE,
        };
        let age = shared.min(self.ttl / FRESH);
        servers.tasks().spawn(async move {
            sleep(age).await;
            if let (Some(session), Some(link)) = (session.upgrade(), link.upgrade()) {
                let mut state = session.state.lock().await;
                state.link.take_if(|current| Arc::ptr_eq(current, &link));
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

/// The timeout of a session for leases with this TTL: servers count milliseconds.
fn counted(ttl: Duration) -> Duration {
    let millis = ttl.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)).max(MIN_TTL)
}

fn is_in_use(slot: &Slot, now: Instant) -> bool {
    let Ok(session) = slot.try_lock() else { return true };
    let Some(session) = &*session else { return false };
    session.state.try_lock().map_or(true, |state| now < state.kept_at + session.ttl)
}

/// Waits while others speak to the ensemble, and no longer than for the ensemble itself: where it does not answer, all
/// waiting callers learn of it together.
async fn in_time<T>(servers: &Servers, waiting: impl Future<Output = T>) -> Result<T, Failure> {
    let waited = timeout(servers.timeout(), waiting).await;
    waited.map_err(|_| Failure::ServerDown(error::unreachable()))
}
