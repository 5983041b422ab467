//! Manages etcd leases. All renewed leases with the same TTL share one etcd lease. Every lease that
//! is not renewed uses a separate etcd lease.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use etcd_client::LeaseGrantOptions;
use futures_util::future::join_all;
use leasehold_core::backend::unpoisoned;
use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, ErrorKind};
use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::timeout;
use uuid::Uuid;

use crate::connection::Connection;
use crate::error::{self, Failure};

/// The part of a session's TTL that may have elapsed before an acquisition renews the session. With
/// one twelfth, a new lease has nearly all of its TTL left, and busy clients do not renew
/// constantly.
const REUSE_WITHIN: u32 = 12;

/// The part of a session's TTL that must remain. A session with less time is renewed before an
/// entry is attached to it.
const MIN_LEFT: u32 = 3;

/// The maximum number of unused etcd leases that are kept for each TTL. Locks without renewal reuse
/// these leases instead of creating and revoking an etcd lease each time.
const SPARES: usize = 8;

/// The sessions of a client.
///
/// A session is kept alive only by the renewals of the leases that are attached to it. After a lost
/// reply, a failed release or a missing renewal, a lease that no caller will renew may be attached
/// to the session. The client then stops keeping this session alive. The next renewal creates a new
/// session, and all renewed leases move to it. Abandoned leases expire with the old session.
///
/// The client also creates new sessions after an election. A former leader that was paused may
/// expire leases based on outdated records, although the next leader has renewed these leases
/// (etcd-io/etcd#15247). The outdated records do not contain sessions that were created after the
/// election.
///
/// The client also creates new sessions after a reconnection, because this process may be a copy of
/// the process that created the old sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    /// The sessions, by use and TTL.
    current: StdMutex<HashMap<(Use, i64), Slot>>,
    /// All etcd leases that this client has created and that may still exist.
    known: StdMutex<HashMap<i64, Known>>,
    /// Unused etcd leases, by TTL.
    spares: StdMutex<HashMap<i64, Vec<i64>>>,
    /// Counts the events that may have left an abandoned lease behind.
    doubts: AtomicU64,
}

/// An optional session. The call that creates or renews the session locks the slot.
type Slot = Arc<Mutex<Option<Session>>>;

/// An etcd lease that this client has created.
#[derive(Clone, Copy, Debug)]
struct Known {
    until: Instant,
    /// The TTL in seconds.
    seconds: i64,
    of: Use,
    /// The epoch in which the etcd lease was created.
    epochs: u64,
}

/// The use of an etcd lease.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Use {
    /// A session for holders, which only their renewals keep alive.
    Locks,
    /// A session for waiters.
    Places,
    /// A session for [marks](crate::late_entries), which expire after a fixed time.
    Marks,
    /// An etcd lease for a single entry.
    Own,
}

/// An etcd lease that several entries share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub(crate) id: i64,
    pub(crate) of: Use,
    /// The TTL that etcd uses, which is at least the requested TTL.
    granted: Duration,
    /// The time just before the last successful renewal was sent.
    kept_at: Instant,
    /// The number of doubts when the session was created.
    doubts: u64,
    /// The epoch in which the session was created.
    epochs: u64,
}

impl Session {
    /// Returns the time when the session expires without a further renewal.
    pub(crate) fn good_until(&self) -> Instant {
        self.kept_at + self.granted
    }

    fn has_left(&self, now: Instant, parts: u32, of: u32) -> bool {
        self.good_until().since(now) >= self.granted / of * parts
    }
}

/// Converts a TTL to etcd's unit, rounded up to whole seconds.
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

    /// Returns the session for leases with this TTL, so that an entry can be attached now.
    ///
    /// A part of the session's TTL may have elapsed. If so, the caller must also call
    /// [`Self::renewed`], which may run concurrently.
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
            Some(session) if session.has_left(now, 1, MIN_LEFT) && is_safe(connection, session) => {
                Ok(*session)
            }
            _ => self.renew(connection, of, ttl, &mut slot).await,
        }
    }

    /// Returns whether an acquisition can use the session without renewing it.
    pub(crate) fn is_fresh(&self, session: &Session) -> bool {
        session.has_left(self.clock.now(), REUSE_WITHIN - 1, REUSE_WITHIN)
    }

    /// Returns the session for leases with this TTL, renewed by a request that was sent after this
    /// call started.
    ///
    /// Calls that arrive while such a request is in progress share the next request.
    pub(crate) async fn renewed(
        &self,
        connection: &Connection,
        of: Use,
        ttl: Duration,
    ) -> Result<Session, Failure> {
        let since = self.clock.now();
        // All calls in the same turn, for example the calls of a batch, share the request.
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
        // A session for marks is never renewed here, because later marks would keep earlier marks
        // alive.
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
        // A server without space cannot create a session but can still renew the current session.
        // Keeping an abandoned lease alive for some time is better than losing all remaining
        // leases.
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

    /// Records that a lease may be attached to a session that no caller will renew.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets etcd leases that have expired according to the server. The next call creates a new
    /// session.
    pub(crate) async fn forget(&self, ids: &[i64]) {
        for &id in ids {
            let known = unpoisoned(&self.known).get(&id).copied();
            let Some(Known { of, seconds, .. }) = known else { continue };
            let slot = unpoisoned(&self.current).get(&(of, seconds)).map(Arc::clone);
            if let Some(slot) = slot {
                let mut slot = slot.lock().await;
                slot.take_if(|current| current.id == id);
            }
        }
    }

    /// Creates an etcd lease for a single lock lease, or reuses an unused etcd lease.
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

    /// Creates an etcd lease. The lease is recorded before the request is sent, so that
    /// [`end_all`](Self::end_all) revokes it even if the caller is dropped.
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
            unpoisoned(&self.known).remove(&id);
        }
        Ok((id, granted?))
    }

    /// Renews an etcd lease that a single lock lease uses. Returns `false` if the etcd lease has a
    /// different TTL, has expired, or was created by a different client or in an earlier epoch.
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
        if !unpoisoned(&self.known).get(&id).is_some_and(fits) {
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

    /// Keeps an etcd lease without attached entries for later use. Returns `false` if the etcd
    /// lease is not needed.
    pub(crate) fn spare(&self, id: i64) -> bool {
        let Some(known) = unpoisoned(&self.known).get(&id).copied() else {
            return false;
        };
        if known.of != Use::Own {
            return false;
        }
        let mut spares = unpoisoned(&self.spares);
        let spares = spares.entry(known.seconds).or_default();
        let useful = spares.len() < SPARES;
        if useful {
            spares.push(id);
        }
        useful
    }

    fn take_spare(&self, ttl: Duration) -> Option<i64> {
        let mut spares = unpoisoned(&self.spares);
        let of_this_ttl = spares.get_mut(&seconds(ttl))?;
        let spare = of_this_ttl.pop();
        if of_this_ttl.is_empty() {
            spares.remove(&seconds(ttl));
        }
        spare
    }

    /// Returns whether this client created the etcd lease for a single lock lease.
    pub(crate) fn is_own(&self, id: i64) -> bool {
        unpoisoned(&self.known).get(&id).is_some_and(|known| known.of == Use::Own)
    }

    /// Revokes all etcd leases of this client, except those to which a needed entry is attached.
    /// Sessions for marks are kept, because a transaction may still arrive late.
    ///
    /// If revoking them takes longer than the time limit for a reply, the remaining etcd leases
    /// expire after their TTL.
    pub(crate) async fn end_all(&self, connection: &Connection) {
        let of_no_use: Vec<i64> = {
            let mut known = unpoisoned(&self.known);
            known.extract_if(|_, known| known.of != Use::Marks).map(|(id, _)| id).collect()
        };
        let ended = of_no_use.into_iter().map(|id| revoke(connection, id));
        drop(timeout(connection.timeout(), join_all(ended)).await);
    }

    fn note(&self, id: i64, ttl: Duration, until: Instant, of: Use, epochs: u64) {
        let now = self.clock.now();
        let mut known = unpoisoned(&self.known);
        // An etcd lease is remembered for twice its TTL, because the server may restart the TTL,
        // for example after an election.
        known.retain(|_, known| now < known.until);
        known.insert(id, Known { until: until + ttl, seconds: seconds(ttl), of, epochs });
    }

    fn slot(&self, of: Use, ttl: Duration) -> Slot {
        let now = self.clock.now();
        let mut current = unpoisoned(&self.current);
        // Sessions whose TTLs are no longer in use are dropped.
        current.retain(|_, slot| {
            Arc::strong_count(slot) > 1
                || slot
                    .try_lock()
                    .is_ok_and(|session| session.is_some_and(|session| now < session.good_until()))
        });
        Arc::clone(current.entry((of, seconds(ttl))).or_default())
    }
}

/// Returns whether the session was created in the current epoch.
pub(crate) fn is_safe(connection: &Connection, session: &Session) -> bool {
    session.epochs == connection.epochs()
}

/// Waits while concurrent calls use the session, but not longer than the time limit for a reply.
/// With this limit, all waiting calls fail at the same time if the cluster does not reply.
async fn in_time<T>(
    connection: &Connection,
    waiting: impl Future<Output = T>,
) -> Result<T, Failure> {
    let waited = timeout(connection.timeout(), waiting).await;
    waited.map_err(|elapsed| Failure::MemberDown(error::unreachable(elapsed)))
}

/// Returns a random ID for an etcd lease.
pub(crate) fn new_id() -> i64 {
    i64::try_from(Uuid::new_v4().as_u128() >> 65).expect("63 bits are left")
}

/// Creates an etcd lease with this ID and returns its TTL.
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

/// Renews an etcd lease for a further TTL.
pub(crate) async fn keep_alive(connection: &Connection, id: i64) -> Result<(), Failure> {
    // Every request uses a separate stream to a member that replies, because an earlier stream may
    // be broken. The client crate waits for the first reply and reports a missing lease.
    let kept = connection.call(|client| {
        let mut leases = client.lease_client();
        async move { leases.keep_alive(id).await }
    });
    kept.await.map(drop)
}

/// Returns the remaining time of an etcd lease, or `None` if it has expired.
pub(crate) async fn left(connection: &Connection, id: i64) -> Result<Option<Duration>, Failure> {
    let left = connection
        .call(|client| {
            let mut leases = client.lease_client();
            async move { leases.time_to_live(id, None).await }
        })
        .await?;
    // The server rounds the remaining time down to whole seconds.
    let seconds = u64::try_from(left.ttl()).ok();
    Ok(seconds.map(|seconds| Duration::from_secs(seconds + 1)))
}

/// Revokes an etcd lease whose attached entries, if any, are no longer needed.
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
        Failure::LeaseGone(Error::new(ErrorKind::Unavailable, "the etcd lease has expired"))
    })
}
