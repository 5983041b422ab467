//! Notifies watches of changes in the ensemble. All watched nodes share the connection for reads.
//!
//! A waiter watches its own node and its predecessor. A holder watches its own node, but only after
//! it has held the lock for some time. An observer watches all children of a lock's node. A watch
//! starts with a read that shows whether anything has changed since the last read, so no change is
//! missed. If the watch of a waiter or an observer fails, the waiter or observer is also notified.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, KeyWatch, KeyWatches, Lease, LeaseId, unpoisoned};
use tokio::select;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use zookeeper_client::{AddWatchMode, EventType};

use crate::connection::Servers;
use crate::error::Failure;
use crate::layout::{Layout, tag};

/// How long a lock must be held before its node is watched. The delay avoids the request for locks
/// that are held only briefly.
const WATCH_HELD_AFTER: Duration = Duration::from_millis(100);

/// The pause after a watch has failed, before its caller is notified or the watch is restarted. The
/// pause protects servers that do not reply.
const REST: Duration = Duration::from_millis(200);

/// The maximum number of holders' watches that start at the same time. After a lost connection,
/// thousands of watches may restart, and the timeout of a request must not include the time for the
/// requests of all nodes.
const HOLDERS_AT_ONCE: usize = 64;

/// Notifies watches of changes in the ensemble.
pub(crate) struct News {
    servers: Arc<Servers>,
    /// Limits the number of holders' watches that start at the same time.
    room: Arc<Semaphore>,
    /// The watches of observers.
    observers: KeyWatches,
    waiters: Board,
    holders: Board,
}

/// The change that a waiter waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    /// The deletion of this node.
    Node(String),
    /// The creation or deletion of a child of this node, after the change with this zxid.
    Children(String, i64),
}

impl News {
    pub(crate) fn new(servers: Arc<Servers>) -> Self {
        Self {
            servers,
            room: Arc::new(Semaphore::new(HOLDERS_AT_ONCE)),
            observers: KeyWatches::default(),
            waiters: Board::default(),
            holders: Board::default(),
        }
    }

    /// Returns a watch for an observer of a lock.
    pub(crate) fn observe(&self, layout: &Layout, key: &LockKey) -> KeyWatch {
        let watch = self.observers.watch(key);
        let (servers, observers) = (Arc::clone(&self.servers), self.observers.clone());
        let (node, key) = (layout.lock(key), key.clone());
        let task = self.servers.tasks().spawn(async move {
            loop {
                drop(observe(&servers, &node, || observers.notify(key.as_str())).await);
                observers.notify(key.as_str());
                sleep(REST).await;
            }
        });
        watch.with_attached(Aborted(task.abort_handle()))
    }

    /// Returns a watch for a caller that may have to wait. No request is sent before the caller
    /// waits.
    pub(crate) fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.waiters.watch(claim.lease())
    }

    /// Returns a watch for a caller that may hold the lock. No request is sent before the caller
    /// has held the lock for some time.
    pub(crate) fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.holders.watch(lease)
    }

    /// Records that the claim is queued with this node and waits for `target`. Returns `false` if
    /// the claim has no watch that could be notified.
    pub(crate) fn waits(&self, lease: &Lease, own: String, target: Target) -> bool {
        let (servers, told) = (Arc::clone(&self.servers), self.waiters.told.clone());
        let purpose = Purpose::Waits(own.clone(), target.clone());
        self.waiters.begin(lease, purpose, &self.servers, |tag| async move {
            let waited = wait(&servers, &own, &target).await;
            if waited.is_err_and(|failure| !failure.is_absence()) {
                sleep(REST).await;
            }
            told.notify(tag.as_str());
        })
    }

    /// Records that the lease holds the lock with this node.
    pub(crate) fn holds(&self, lease: &Lease, own: String) {
        self.waiters.end(lease);
        let (servers, room) = (Arc::clone(&self.servers), Arc::clone(&self.room));
        let told = self.holders.told.clone();
        self.holders.begin(lease, Purpose::Holds(own.clone()), &self.servers, |tag| async move {
            sleep(WATCH_HELD_AFTER).await;
            let (mut seen, tell) = (None, || told.notify(tag.as_str()));
            loop {
                match follow(&servers, &room, &own, &mut seen, tell).await {
                    Ok(()) => {}
                    Err(failure) if failure.is_absence() => return tell(),
                    // The next watch reports all changes since `seen`. Notifying all leases at this
                    // point would add load to a slow server.
                    Err(_) => sleep(REST).await,
                }
            }
        });
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News").finish_non_exhaustive()
    }
}

/// Watches of single nodes.
#[derive(Clone, Default)]
struct Board {
    told: KeyWatches,
    entries: Arc<Mutex<HashMap<LeaseId, Watched>>>,
}

/// The watching task of a lease and its watches.
struct Watched {
    /// The key of the watches.
    tag: LockKey,
    /// The number of `KeyWatch`es.
    watches: usize,
    task: Option<(Purpose, Aborted)>,
}

/// The purpose of a watching task, which determines the watched nodes.
#[derive(Debug, Eq, PartialEq)]
enum Purpose {
    Waits(String, Target),
    Holds(String),
}

impl Board {
    fn watch(&self, lease: &Lease) -> KeyWatch {
        let tag = {
            let mut entries = unpoisoned(&self.entries);
            let watched = entries.entry(lease.id()).or_insert_with(|| Watched {
                tag: LockKey::new(tag(lease)).expect("a tag is a good key"),
                watches: 0,
                task: None,
            });
            watched.watches += 1;
            watched.tag.clone()
        };
        let subscription = Subscription { entries: Arc::downgrade(&self.entries), id: lease.id() };
        self.told.watch(&tag).with_attached(subscription)
    }

    /// Starts the watching task of a lease, unless it is already running. Returns `false` if the
    /// lease has no watch that could be notified.
    fn begin<F>(
        &self,
        lease: &Lease,
        purpose: Purpose,
        servers: &Servers,
        task: impl FnOnce(LockKey) -> F,
    ) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut entries = unpoisoned(&self.entries);
        let Some(watched) = entries.get_mut(&lease.id()) else { return false };
        let is_watched = watched
            .task
            .as_ref()
            .is_some_and(|(current, task)| *current == purpose && !task.0.is_finished());
        if !is_watched {
            let task = servers.tasks().spawn(task(watched.tag.clone()));
            watched.task = Some((purpose, Aborted(task.abort_handle())));
        }
        true
    }

    fn end(&self, lease: &Lease) {
        let mut entries = unpoisoned(&self.entries);
        let task = entries.get_mut(&lease.id()).and_then(|watched| watched.task.take());
        drop(entries);
        drop(task);
    }
}

/// Ends the watching task of a lease when the last of its `KeyWatch`es is dropped.
struct Subscription {
    entries: Weak<Mutex<HashMap<LeaseId, Watched>>>,
    id: LeaseId,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(entries) = self.entries.upgrade() else { return };
        let mut entries = unpoisoned(&entries);
        let Some(watched) = entries.get_mut(&self.id) else { return };
        watched.watches -= 1;
        let unused = (watched.watches == 0).then(|| entries.remove(&self.id));
        drop(entries);
        drop(unused);
    }
}

/// A task that is aborted when this value is dropped.
struct Aborted(AbortHandle);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits until `target` or the node `own` changes.
async fn wait(servers: &Servers, own: &str, target: &Target) -> Result<(), Failure> {
    select! {
        changed = changed(servers, own) => changed,
        changed = target_changed(servers, target) => changed,
    }
}

async fn target_changed(servers: &Servers, target: &Target) -> Result<(), Failure> {
    let (node, seen) = match target {
        Target::Node(node) => return changed(servers, node).await,
        Target::Children(node, seen) => (node, *seen),
    };
    let link = servers.main().await?;
    let (_, stat, watcher) = link.reply(link.client().get_and_watch_children(node)).await?;
    if stat.pzxid != seen {
        return Ok(());
    }
    select! {
        biased;
        () = link.gone() => {}
        _ = watcher.changed() => {}
    }
    Ok(())
}

/// Waits until a node is deleted or its data changes. Fails immediately if the node does not exist
/// or is accessible only to a different user, because servers do not report the node's events to
/// this user.
async fn changed(servers: &Servers, node: &str) -> Result<(), Failure> {
    let link = servers.main().await?;
    let (_, _, watcher) = link.reply(link.client().get_and_watch_data(node)).await?;
    select! {
        biased;
        () = link.gone() => {}
        _ = watcher.changed() => {}
    }
    Ok(())
}

/// Notifies the holder if the node's data was written after the zxid `seen`, or after the node was
/// created if `seen` is `None`. Then waits until the node is deleted or its data changes. Fails
/// immediately if the node does not exist.
async fn follow(
    servers: &Servers,
    room: &Semaphore,
    node: &str,
    seen: &mut Option<i64>,
    tell: impl Fn(),
) -> Result<(), Failure> {
    let begins = room.acquire().await.expect("it is never closed");
    let link = servers.main().await?;
    let (_, stat, watcher) = link.reply(link.client().get_and_watch_data(node)).await?;
    drop(begins);
    if stat.mzxid != seen.replace(stat.mzxid).unwrap_or(stat.czxid) {
        tell();
    }
    select! {
        biased;
        () = link.gone() => {}
        _ = watcher.changed() => {}
    }
    Ok(())
}

/// Reports all changes of a node's children until the connection is lost.
async fn observe(servers: &Servers, node: &str, tell: impl Fn()) -> Result<(), Failure> {
    let link = servers.main().await?;
    let watching = link.client().watch(node, AddWatchMode::PersistentRecursive);
    let mut watcher = link.reply(watching).await?;
    // A change may have occurred before the watch was in force.
    tell();
    loop {
        let event = select! {
            biased;
            () = link.gone() => return Ok(()),
            event = watcher.changed() => event,
        };
        if event.event_type == EventType::Session {
            return Ok(());
        }
        tell();
    }
}
