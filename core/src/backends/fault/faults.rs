//! Faults, and scripts that change requests and replies.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::backend::{
    KeyWatch, KeyWatches, LeaseId, LockBackend, Operation, Reply, Request, Subject,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::key::LockKey;
use crate::sync::{Mutex, lock};

/// Controls the faults of a [`FaultBackend`](crate::fault::FaultBackend). Clones control the same
/// faults.
///
/// See [`FaultBackend`](crate::fault::FaultBackend) for an example of a backend that loses a reply.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Switches>);

#[derive(Debug, Default)]
struct Switches {
    pending: Mutex<HashMap<Calls, VecDeque<(Fault, usize)>>>,
    lasting: Mutex<Option<Fault>>,
    calls: Mutex<HashMap<Operation, usize>>,
    asked_for: Mutex<HashSet<LeaseId>>,
    notifications: Mutex<Notifications>,
    scripted: KeyWatches,
    scripts: Mutex<Scripts>,
}

#[derive(Clone, Default)]
struct Scripts {
    requests: Vec<Arc<OnRequest>>,
    replies: Vec<Arc<OnReply>>,
}

type OnRequest = dyn for<'a> Fn(Request<'a>) -> Result<Request<'a>, Error> + Send + Sync;
type OnReply = dyn Fn(&Request<'_>, Reply) -> Result<Reply, Error> + Send + Sync;

impl fmt::Debug for Scripts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripts").finish_non_exhaustive()
    }
}

/// The calls that a fault affects, which are all calls of an operation or only its calls on one
/// key.
type Calls = (Operation, Option<LockKey>);

/// A fault that affects a call.
///
/// See [`FaultBackend`](crate::fault::FaultBackend) for an example of a backend that loses a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The request reaches the store after this delay.
    DelayRequest(Duration),
    /// The store applies the request immediately, and the reply arrives after this delay.
    DelayReply(Duration),
    /// The call fails with an error of this kind. The request never reaches the store.
    Fail(ErrorKind),
    /// The call never returns. The request reaches the store after this delay, even if the caller
    /// has given up by then.
    Late(Duration),
    /// The store applies the request, and the call fails with [`ErrorKind::Indeterminate`].
    LoseReply,
    /// The call panics. The request never reaches the store.
    Panic,
    /// The request never reaches the store, and the call never returns.
    SwallowRequest,
    /// The store applies the request, and the call never returns.
    SwallowReply,
}

/// The notifications that the watches of a [`FaultBackend`](crate::fault::FaultBackend) report.
///
/// ```
/// use leasehold_core::fault::{FaultBackend, Notifications};
/// use leasehold_core::memory::MemoryBackend;
///
/// let store = FaultBackend::new(MemoryBackend::new());
/// store.faults().set_notifications(Notifications::Muted);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Notifications {
    /// The store's own notifications.
    #[default]
    True,
    /// No notifications at all.
    Muted,
    /// Only the notifications that [`Faults::notify_falsely`] sends.
    Scripted,
}

impl Faults {
    /// Injects `fault` into the next `times` calls of `operation`. Faults that were injected
    /// earlier take effect first.
    pub fn inject(&self, operation: Operation, fault: Fault, times: usize) {
        self.add(operation, None, fault, times);
    }

    /// Injects `fault` into the next `times` calls of `operation` on `key`. Faults for a single key
    /// take precedence over faults for all keys.
    pub fn inject_on(&self, key: &LockKey, operation: Operation, fault: Fault, times: usize) {
        self.add(operation, Some(key.clone()), fault, times);
    }

    fn add(&self, operation: Operation, key: Option<LockKey>, fault: Fault, times: usize) {
        if times > 0 {
            let mut pending = lock(&self.0.pending);
            pending.entry((operation, key)).or_default().push_back((fault, times));
        }
    }

    /// Injects `fault` into every call for which no other fault was injected. To stop injecting
    /// this fault, pass `None` or call [`heal`](Self::heal).
    pub fn set_lasting(&self, fault: Option<Fault>) {
        *lock(&self.0.lasting) = fault;
    }

    /// Removes all faults that have not occurred yet, including a fault that applies to every call.
    pub fn heal(&self) {
        lock(&self.0.pending).clear();
        self.set_lasting(None);
    }

    /// Runs `script` on each request that arrives at the store, which receives the returned request
    /// instead. If `script` returns an error, the call fails with this error, and the request does
    /// not reach the store.
    ///
    /// Scripts run in the order in which they were added, and cannot be removed. A request that an
    /// injected fault drops does not arrive at the store. All leases that are renewed in one batch
    /// arrive as one [`Request::RenewAll`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    ///
    /// use leasehold_core::backend::Request;
    /// use leasehold_core::fault::FaultBackend;
    /// use leasehold_core::memory::MemoryBackend;
    /// use leasehold_core::{Error, ErrorKind, LockClient};
    ///
    /// let store = FaultBackend::new(MemoryBackend::new());
    /// store.faults().on_request(|request| match &request {
    ///     Request::Acquire(claim) if claim.lease().ttl() > Duration::from_secs(10) => {
    ///         Err(Error::new(ErrorKind::Refused, "the TTL is too long"))
    ///     }
    ///     _ => Ok(request),
    /// });
    ///
    /// let refused = LockClient::new(store).mutex("k")?.lock().await.unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Refused);
    /// # Ok::<(), Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_request(
        &self,
        script: impl for<'a> Fn(Request<'a>) -> Result<Request<'a>, Error> + Send + Sync + 'static,
    ) {
        lock(&self.0.scripts).requests.push(Arc::new(script));
    }

    /// Runs `script` on each reply of the store. The client receives the returned reply instead. If
    /// `script` returns an error, the call fails with this error after the store has applied the
    /// request.
    ///
    /// Scripts run in the order in which they were added, and cannot be removed.
    ///
    /// The call fails with [`ErrorKind::Unexpected`] if `script` returns the reply to a different
    /// type of request.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use std::time::Duration;
    ///
    /// use leasehold_core::LockClient;
    /// use leasehold_core::backend::{Attempt, Reply};
    /// use leasehold_core::fault::FaultBackend;
    /// use leasehold_core::memory::MemoryBackend;
    ///
    /// // This store grants each lease for one second, whatever the client asks for.
    /// let store = FaultBackend::new(MemoryBackend::new());
    /// store.faults().on_reply(|_request, reply| {
    ///     Ok(match reply {
    ///         Reply::Attempt(Attempt::Granted(grant)) => {
    ///             Reply::Attempt(Attempt::Granted(grant.with_ttl(Duration::from_secs(1))))
    ///         }
    ///         reply => reply,
    ///     })
    /// });
    ///
    /// let guard = LockClient::new(store).mutex("k")?.lock().await?;
    /// assert!(guard.remaining() < Duration::from_secs(1));
    /// # Ok::<(), leasehold_core::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_reply(
        &self,
        script: impl Fn(&Request<'_>, Reply) -> Result<Reply, Error> + Send + Sync + 'static,
    ) {
        lock(&self.0.scripts).replies.push(Arc::new(script));
    }

    /// Sets which notifications are reported by watches that are created after this call. Existing
    /// watches are not affected.
    pub fn set_notifications(&self, notifications: Notifications) {
        *lock(&self.0.notifications) = notifications;
    }

    /// Notifies all watches of `key` that were created with [`Notifications::Scripted`].
    pub fn notify_falsely(&self, key: &LockKey) {
        self.0.scripted.notify(key.as_str());
    }

    /// Returns the number of calls to `operation`, including failed calls.
    pub fn calls(&self, operation: Operation) -> usize {
        lock(&self.0.calls).get(&operation).copied().unwrap_or_default()
    }

    /// Returns the number of distinct leases for which at least one attempt has completed,
    /// regardless of its outcome.
    pub fn asked_for(&self) -> usize {
        lock(&self.0.asked_for).len()
    }

    pub(super) fn next(&self, operation: Operation, key: Option<&LockKey>) -> Option<Fault> {
        *lock(&self.0.calls).entry(operation).or_default() += 1;
        let mut pending = lock(&self.0.pending);
        let mut take = |key| {
            let faults = pending.get_mut(&(operation, key))?;
            let (fault, times) = faults.front_mut()?;
            *times -= 1;
            let (fault, is_last) = (*fault, *times == 0);
            if is_last {
                faults.pop_front();
            }
            Some(fault)
        };
        let injected = key.and_then(|key| take(Some(key.clone()))).or_else(|| take(None));
        injected.or(*lock(&self.0.lasting))
    }

    /// Applies `request` as the scripts require.
    pub(super) async fn apply(
        &self,
        request: Request<'_>,
        store: &impl LockBackend,
    ) -> Result<Reply, Error> {
        let scripts = lock(&self.0.scripts).clone();
        let request =
            scripts.requests.iter().try_fold(request, |request, script| script(request))?;
        let reply = request.send(store).await?;
        scripts.replies.iter().try_fold(reply, |reply, script| script(&request, reply))
    }

    /// Records that an attempt to acquire these leases has completed.
    pub(super) fn attempted(&self, leases: impl IntoIterator<Item = LeaseId>) {
        lock(&self.0.asked_for).extend(leases);
    }

    /// Returns the watch of `subject` in `store`, unless the faults replace it.
    pub(super) fn watch(&self, subject: Subject<'_>, store: &impl LockBackend) -> KeyWatch {
        match *lock(&self.0.notifications) {
            Notifications::True => store.watch(subject),
            Notifications::Muted => KeyWatch::silent(),
            Notifications::Scripted => self.0.scripted.watch(subject.key()),
        }
    }
}
