//! Keeps the acquisitions and releases of a lease in order.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::batch::lane::outside_of_runtime;
use crate::contract::error::{Error, ErrorKind};
use crate::sync::{Handle, Mutex, Notify, lock, timeout};

/// Ensures that a release reaches the store after all acquisitions of its lease, for a store
/// without a single ordered connection.
///
/// A caller may drop an acquisition at any time and then release the lease, in case the lease was
/// granted. If both requests use one connection, the store receives them in order. If they use two
/// connections, the release may overtake the acquisition, and the lock then stays held until the
/// lease expires. With this type, an acquisition that was sent runs to its end even if its caller
/// has left, and a release waits until then.
///
/// If the runtime of the task is shut down, or if the acquisition panics, a release no longer
/// waits, although the request may still arrive. Close the connection of a dropped request, so that
/// the store cannot apply it later.
///
/// `L` is the name of a lease, such as a [`LeaseId`](crate::backend::LeaseId).
///
/// # Example
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// use leasehold_core::Error;
/// use leasehold_core::batch::InOrder;
/// use tokio::time::{sleep, timeout};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Error> {
/// let in_order = InOrder::new();
/// let store = Arc::new(Mutex::new(Vec::new()));
///
/// let requests = Arc::clone(&store);
/// let acquisition = in_order.acquire(["lease"], async move {
///     sleep(Duration::from_millis(20)).await;
///     requests.lock().unwrap().push("acquire");
/// });
/// // The caller leaves before the store replies.
/// assert!(timeout(Duration::from_millis(1), acquisition).await.is_err());
///
/// in_order.wait_for_acquisitions(&"lease", Duration::from_secs(5)).await?;
/// store.lock().unwrap().push("release");
///
/// assert_eq!(*store.lock().unwrap(), ["acquire", "release"]);
/// # Ok(())
/// # }
/// ```
pub struct InOrder<L>(Arc<Acquisitions<L>>);

struct Acquisitions<L> {
    /// The number of running acquisitions of each lease.
    running: Mutex<HashMap<L, usize>>,
    ended: Notify,
}

/// A running acquisition of some leases, until this value is dropped.
///
/// [`InOrder::begin`] returns a value of this type. See [`InOrder`] for an example.
#[must_use = "the acquisition counts as ended when this value is dropped"]
pub struct Running<L: Eq + Hash> {
    acquisitions: Arc<Acquisitions<L>>,
    leases: Vec<L>,
}

impl<L: Clone + Eq + Hash + Send + 'static> InOrder<L> {
    /// Creates a value without acquisitions.
    pub fn new() -> Self {
        Self(Arc::new(Acquisitions { running: Mutex::default(), ended: Notify::new() }))
    }

    /// Returns whether no acquisition is running.
    pub fn is_idle(&self) -> bool {
        lock(&self.0.running).is_empty()
    }

    /// Registers an acquisition of `leases`, which runs until the returned value is dropped. The
    /// caller must be a task that nobody cancels, such as a [`Lane`](super::Lane), and must
    /// register the acquisition before it checks whether [callers still wait](super::Batch::open).
    pub fn begin(&self, leases: impl IntoIterator<Item = L>) -> Running<L> {
        Running::begin(&self.0, leases.into_iter().collect())
    }

    /// Runs an acquisition of `leases` in a task, and returns the reply.
    ///
    /// Before this call, acquire what the request has to wait for, such as a connection. Otherwise,
    /// an acquisition whose caller has left would keep waiting.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the caller is outside of a tokio runtime. Returns
    /// [`ErrorKind::Indeterminate`] if the task ends without a reply, because its runtime was shut
    /// down or `acquisition` panicked.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped before its first poll, the acquisition
    /// does not start. If the future is dropped later, the acquisition runs to its end, and
    /// releases of its leases [wait](Self::wait_for_acquisitions) for it.
    pub async fn acquire<T: Send + 'static>(
        &self,
        leases: impl IntoIterator<Item = L>,
        acquisition: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let runtime = Handle::try_current().map_err(|_none| outside_of_runtime())?;
        let running = self.begin(leases);
        let (caller, reply) = oneshot::channel();
        runtime.spawn(async move {
            let reply = acquisition.await;
            drop(running);
            // A caller that has left does not need the reply.
            let _ = caller.send(reply);
        });
        reply.await.map_err(|_dropped| task_ended())
    }

    /// Waits until no acquisition of `lease` is running, for at most `limit`. Call this method
    /// before a release is sent.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if an acquisition is still running when `limit` has
    /// passed. The release must not be sent, and it is unknown whether the lease was granted.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn wait_for_acquisitions(&self, lease: &L, limit: Duration) -> Result<(), Error> {
        let ended = async {
            loop {
                // The future is created before the check, so that no end is missed in between.
                let ended = self.0.ended.notified();
                if !lock(&self.0.running).contains_key(lease) {
                    return;
                }
                ended.await;
            }
        };
        timeout(limit, ended).await.map_err(|_elapsed| too_late())
    }
}

impl<L: Eq + Hash + Clone> Running<L> {
    fn begin(acquisitions: &Arc<Acquisitions<L>>, leases: Vec<L>) -> Self {
        let mut running = lock(&acquisitions.running);
        for lease in &leases {
            *running.entry(lease.clone()).or_default() += 1;
        }
        drop(running);
        Self { acquisitions: Arc::clone(acquisitions), leases }
    }
}

impl<L: Eq + Hash> Drop for Running<L> {
    fn drop(&mut self) {
        let mut running = lock(&self.acquisitions.running);
        for lease in &self.leases {
            let Some(count) = running.get_mut(lease) else { continue };
            *count -= 1;
            if *count == 0 {
                running.remove(lease);
            }
        }
        drop(running);
        self.acquisitions.ended.notify_waiters();
    }
}

impl<L: Clone + Eq + Hash + Send + 'static> Default for InOrder<L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L> fmt::Debug for InOrder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InOrder").finish_non_exhaustive()
    }
}

impl<L: Eq + Hash> fmt::Debug for Running<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("leases", &self.leases.len()).finish_non_exhaustive()
    }
}

fn task_ended() -> Error {
    let message = "the task of the acquisition ended without a reply, so the outcome is unknown";
    Error::new(ErrorKind::Indeterminate, message)
}

fn too_late() -> Error {
    let message = "the release was not sent, because an acquisition of the same lease is still running; the lock stays held until a later release or the TTL";
    Error::new(ErrorKind::Unavailable, message)
}
