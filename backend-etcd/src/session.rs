//! etcd's leases: one of each TTL for all leases of ours that are kept, and own ones for the others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use etcd_client::LeaseGrantOptions;
use futures_util::future::join_all;
use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, ErrorKind};
use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::timeout;
use uuid::Uuid;

use crate::connection::Connection;
use crate::error::{self, Failure};
use crate::sync::locked;

/// How much of its TTL a session may have used up before an acquisition has it kept alive again: one twelfth, so that a
/// lease begins with nearly all of its TTL and busy clients do not do it all the time.
const FRESH: u32 = 12;

/// With less than this part of its TTL left, a session is kept alive before anything is hung on it.
const TIRED: u32 = 3;

/// How many own leases are kept to spare, of each TTL, so that locks without renewal need not begin and end one each
/// time.
const SPARES: usize = 8;

/// The sessions of a client.
///
/// Only the renewals of the leases attached to a session keep it alive. After a lost reply, a failed release or a missing renewal, a
/// session may have a lease attached that no caller will renew. Then the client no longer keeps that session alive: the next renewal
/// begins another one, all renewed leases move to it, and abandoned ones end with the old session.
///
/// So it is after an election. A leader that was stopped and goes on may have the leases ended that seem to have expired in its own books,
/// though they were kept alive with the next leader meanwhile (etcd-io/etcd#15247). One that was begun after the election is not in them.
///
/// The client also leaves its sessions behind when it has connected again, because it may be a copy of the process that began them.
#[derive(Debug)]
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    /// The sessions by use and TTL.
    current: StdMutex<HashMap<(Use, i64), Slot>>,
    /// All leases of etcd's that we began and that may not have ended yet.
    known: StdMutex<HashMap<i64, Known>>,
    /// Own ones that nothing hangs on any more, by TTL.
    spares: StdMutex<HashMap<i64, Vec<i64>>>,
    /// Counts the events that may have left a lease behind.
    doubts: AtomicU64,
}

/// A session, if there is one, locked by the call that begins it or keeps it alive.
type Slot = Arc<Mutex<Option<Session>>>;

/// A lease of etcd's that we began.
#[derive(Clone, Copy, Debug)]
struct Known {
    until: Instant,
    /// Its TTL.
    seconds: i64,
    of: Use,
    /// The epoch in which it began.
    epochs: u64,
}

/// The use of an etcd lease.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Use {
    /// A session of those that hold: their renewals keep nothing alive but each other.
    Locks,
    /// One of those that wait.
    Places,
    /// One of [marks](crate::doubt), which are to go when their time is over.
    Marks,
    /// No session: one lease of ours.
    Own,
}

/// One of etcd's leases, which many share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) id: i64,
    pub(crate) of: Use,
    /// The TTL that etcd counts: no less than the requested one.
    granted: Duration,
    /// The clock before the last request that is known to have kept it alive was sent.
    kept_at: Instant,
    /// How many doubts there were when it began.
    doubts: u64,
    /// The epoch in which it began.
    epochs: u64,
}

impl Session {
    /// Until when it is good without being kept alive.
    pub(crate) fn good_until(&self) -> Instant {
        self.kept_at + self.granted
    }

    fn has_left(&self, now: Instant, parts: u32, of: u32) -> bool {
        self.good_until().since(now) >= self.granted / of * parts
    }
}

/// The unit in which etcd counts.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(seconds.max(1)).unwrap_or(i64::MAX)
}

impl Sessions {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            current: StdMutex::default(),
            known: StdMutex::default(),
            spares: StdMutex::default(),
            doubts: AtomicU64::default(),
        }
    }

    /// The session for leases with this TTL, to hang something on now.
    ///
    /// It may be less than fresh: then [`Self::renewed`] is to be called as well, and may be at the same time.
    pub(crate) async fn current(
        &self,
        connection: &Connection,
        of: Use,
        ttl: Duration,
    ) -> Result<Session, Failure> {
        let slot = self.slot(of, ttl);
        let mut slot = in_time(connection, slot.lock()).await?;
        let now = self.clock.now();
        match &*slot {
            Some(session) if session.has_left(now, 1, TIRED) && is_safe(connection, session) => {
                Ok(*session)
            }
            _ => self.renew(connection, of, ttl, &mut slot).await,
        }
    }

    /// Whether an acquisition need not have it kept alive.
    pub(crate) fn is_fresh(&self, session: &Session) -> bool {
        session.has_left(self.clock.now(), FRESH - 1, FRESH)
    }

    /// The session for leases with this TTL, kept alive by a request sent no earlier than this call.
    ///
    /// Calls that come in while such a request is under way share the next one.
    pub(crate) async fn renewed(
        &self,
        connection: &Connection,
        of: Use,
        ttl: Duration,
    ) -> Result<Session, Failure> {
        let since = self.clock.now();
        // Others that are called in the same turn, as for batches, share the request.
        yield_now().await;
        let slot = self.slot(of, ttl);
        let mut slot = in_time(connection, slot.lock()).await?;
        match &*slot {
            Some(session) if session.kept_at >= since && is_safe(connection, session) => {
                Ok(*session)
            }
            _ => self.renew(connection, of, ttl, &mut slot).await,
        }
    }

    async fn renew(
        &self,
        connection: &Connection,
        of: Use,
        ttl: Duration,
        slot: &mut Option<Session>,
    ) -> Result<Session, Failure> {
        let (doubts, epochs) = (self.doubts.load(Ordering::Relaxed), connection.epochs());
        // Marks would last for as long as others are made.
        if let Some(session) = slot
            && of != Use::Marks
            && session.doubts == doubts
            && session.epochs == epochs
            && self.clock.now() < session.good_until()
        {
            match self.keep(connection, of, ttl, session).await {
                Ok(()) => return Ok(*session),
                Err(Failure::LeaseGone(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        let kept_at = self.clock.now();
        let granted = self.begin(connection, of, ttl, epochs).await;
        // A server without space begins no session, and still keeps the present one alive: an abandoned lease that lives on
        // for a while is better than the end of all the others.
        if let Err(Failure::Final(error)) = &granted
            && error.kind() == ErrorKind::Refused
            && let Some(session) = slot
            && self.keep(connection, of, ttl, session).await.is_ok()
        {
            return Ok(*session);
        }
        let (id, granted) = granted?;
        let session = Session { id, of, granted, kept_at, doubts, epochs };
        self.note(id, ttl, session.good_until(), of, epochs);
        *slot = Some(session);
        Ok(session)
    }

    async fn keep(
        &self,
        connection: &Connection,
        of: Use,
        ttl: Duration,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let kept_at = self.clock.now();
        keep_alive(connection, session.id).await?;
        session.kept_at = kept_at;
        self.note(session.id, ttl, session.good_until(), of, session.epochs);
        Ok(())
    }

    /// A session may have a lease attached that no caller will renew.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    /// The server says that one of these leases of etcd's has ended: the next session is another.
    pub(crate) async fn forget(&self, ids: &[i64]) {
        for &id in ids {
            let known = locked(&self.known).get(&id).copied();
            let Some(Known { of, seconds, .. }) = known else { continue };
            let slot = locked(&self.current).get(&(of, seconds)).map(Arc::clone);
            if let Some(slot) = slot {
                let mut slot = slot.lock().await;
                slot.take_if(|current| current.id == id);
            }
        }
    }

    /// Begins a lease of etcd's for one lease of ours, or takes one that is to spare.
    pub(crate) async fn own(&self, connection: &Connection, ttl: Duration) -> Result<i64, Failure> {
        while let Some(id) = self.take_spare(ttl) {
            if self.keep_own(connection, id, ttl).await? {
                return Ok(id);
            }
        }
        let (begun_at, epochs) = (self.clock.now(), connection.epochs());
        let (id, granted) = self.begin(connection, Use::Own, ttl, epochs).await?;
        self.note(id, ttl, begun_at + granted, Use::Own, epochs);
        Ok(id)
    }

    /// Begins a lease of etcd's. It is known before the request is sent: if the caller gives up, [`end_all`](Self::end_all) ends it.
    async fn begin(
        &self,
        connection: &Connection,
        of: Use,
        ttl: Duration,
        epochs: u64,
    ) -> Result<(i64, Duration), Failure> {
        let id = new_id();
        self.note(id, ttl, self.clock.now() + ttl, of, epochs);
        let granted = grant(connection, id, ttl).await;
        if granted.as_ref().is_err_and(|failure| !failure.leaves_doubt()) {
            locked(&self.known).remove(&id);
        }
        Ok((id, granted?))
    }

    /// Gives an own one its whole TTL again; `false` if it has another TTL than this, has ended, is none of ours, or was begun in an
    /// earlier epoch.
    pub(crate) async fn keep_own(
        &self,
        connection: &Connection,
        id: i64,
        ttl: Duration,
    ) -> Result<bool, Failure> {
        let (epochs, seconds) = (connection.epochs(), seconds(ttl));
        let fits = |known: &Known| {
            known.of == Use::Own && known.seconds == seconds && known.epochs == epochs
        };
        if !locked(&self.known).get(&id).is_some_and(fits) {
            return Ok(false);
        }
        let kept_at = self.clock.now();
        match keep_alive(connection, id).await {
            Ok(()) => {
                self.note(id, ttl, kept_at + ttl, Use::Own, epochs);
                Ok(true)
            }
            Err(Failure::LeaseGone(_)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Takes back an own one that nothing hangs on, and nothing will; `false` if there is no use for it.
    pub(crate) fn spare(&self, id: i64) -> bool {
        let Some(known) = locked(&self.known).get(&id).copied() else {
            return false;
        };
        if known.of != Use::Own {
            return false;
        }
        let mut spares = locked(&self.spares);
        let spares = spares.entry(known.seconds).or_default();
        let useful = spares.len() < SPARES;
        if useful {
            spares.push(id);
        }
        useful
    }

    fn take_spare(&self, ttl: Duration) -> Option<i64> {
        let mut spares = locked(&self.spares);
        let of_this_ttl = spares.get_mut(&seconds(ttl))?;
        let spare = of_this_ttl.pop();
        if of_this_ttl.is_empty() {
            spares.remove(&seconds(ttl));
        }
        spare
    }

    /// Whether this lease of etcd's is one of ours, and only one lease hangs on it.
    pub(crate) fn is_own(&self, id: i64) -> bool {
        locked(&self.known).get(&id).is_some_and(|known| known.of == Use::Own)
    }

    /// Ends all etcd leases that we began, unless a lease of worth is attached to them. Sessions of marks go on: a transaction may be
    /// late.
    ///
    /// Where that takes longer than a reply may take, their TTL does it.
    pub(crate) async fn end_all(&self, connection: &Connection) {
        let of_no_use: Vec<i64> = {
            let mut known = locked(&self.known);
            known.extract_if(|_, known| known.of != Use::Marks).map(|(id, _)| id).collect()
        };
        let ended = of_no_use.into_iter().map(|id| revoke(connection, id));
        drop(timeout(connection.timeout(), join_all(ended)).await);
    }

    fn note(&self, id: i64, ttl: Duration, until: Instant, of: Use, epochs: u64) {
        let now = self.clock.now();
        let mut known = locked(&self.known);
        // Twice the time, since the server may count from later on, as after an election.
        known.retain(|_, known| now < known.until);
        known.insert(id, Known { until: until + ttl, seconds: seconds(ttl), of, epochs });
    }

    fn slot(&self, of: Use, ttl: Duration) -> Slot {
        let now = self.clock.now();
        let mut current = locked(&self.current);
        // Drops sessions of TTLs that are no longer in use.
        current.retain(|_, slot| {
            Arc::strong_count(slot) > 1
                || slot
                    .try_lock()
                    .is_ok_and(|session| session.is_some_and(|session| now < session.good_until()))
        });
        Arc::clone(current.entry((of, seconds(ttl))).or_default())
    }
}

/// Whether it began in the present epoch.
pub(crate) fn is_safe(connection: &Connection, session: &Session) -> bool {
    session.epochs == connection.epochs()
}

/// Waits while other calls speak to the cluster, for no longer than the limit of a reply: if the cluster does not
/// answer, all waiting calls learn of it together.
async fn in_time<T>(
    connection: &Connection,
    waiting: impl Future<Output = T>,
) -> Result<T, Failure> {
    let waited = timeout(connection.timeout(), waiting).await;
    waited.map_err(|elapsed| Failure::MemberDown(error::unreachable(elapsed)))
}

/// A name for a lease of etcd's that no other has.
pub(crate) fn new_id() -> i64 {
    i64::try_from(Uuid::new_v4().as_u128() >> 65).expect("63 bits are left")
}

/// Begins the lease of etcd's with this name, and gives back the TTL that it has.
pub(crate) async fn grant(
    connection: &Connection,
    id: i64,
    ttl: Duration,
) -> Result<Duration, Failure> {
    let seconds = seconds(ttl);
    let grant = connection
        .call(|client| {
            let mut leases = client.lease_client();
            let options = LeaseGrantOptions::new().with_id(id);
            async move { leases.grant(seconds, Some(options)).await }
        })
        .await?;
    duration(grant.ttl())
}

/// Keeps one of etcd's leases alive for another TTL.
pub(crate) async fn keep_alive(connection: &Connection, id: i64) -> Result<(), Failure> {
    // Each request has a stream of its own, to a member that answers, even if the last stream broke. The client
    // crate waits for the first reply, and says so if there is no such lease.
    let kept = connection.call(|client| {
        let mut leases = client.lease_client();
        async move { leases.keep_alive(id).await }
    });
    kept.await.map(drop)
}

/// The remaining time of an etcd lease; `None` if it has ended.
pub(crate) async fn left(connection: &Connection, id: i64) -> Result<Option<Duration>, Failure> {
    let left = connection
        .call(|client| {
            let mut leases = client.lease_client();
            async move { leases.time_to_live(id, None).await }
        })
        .await?;
    // The server rounds the remaining time down to a second.
    let seconds = u64::try_from(left.ttl()).ok();
    Ok(seconds.map(|seconds| Duration::from_secs(seconds + 1)))
}

/// Ends an etcd lease without attached leases, or with attached leases that may go.
pub(crate) async fn revoke(connection: &Connection, id: i64) -> Result<(), Failure> {
    connection
        .call(|client| {
            let mut leases = client.lease_client();
            async move { leases.revoke(id).await }
        })
        .await
        .map(drop)
}

fn duration(seconds: i64) -> Result<Duration, Failure> {
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        Failure::LeaseGone(Error::new(ErrorKind::Unavailable, "etcd's lease has ended"))
    })
}
