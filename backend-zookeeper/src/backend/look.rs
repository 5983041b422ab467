//! Reads holders and queues from the store.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::LockKey;
use leasehold_core::backend::{Contention, Inspection, KeyPage};
use zookeeper_client::{Error as ClientError, MultiReadResult};

use super::ZooKeeperBackend;
use crate::connection::Link;
use crate::entry::{Entry, token};
use crate::error::{self, Failure};
use crate::layout;
use crate::name::Name;
use crate::queue::Queue;

/// The maximum number of nodes that one request reads. Servers reject requests of more than 1 MiB,
/// and the paths of these nodes need less than half of that size.
pub(super) const NODES_PER_REQUEST: usize = 256;

/// The number of locks that are read for one page of a list.
const LOCKS_PER_PAGE: usize = 256;

/// The maximum number of waiters in an inspection. The limit exceeds what fits on a screen, and
/// keeps the reply short.
const LISTED: usize = 128;

/// The maximum number of holders that are read to estimate the remaining time after an attempt that
/// was not granted. The estimate is only a hint, and a semaphore may have many holders.
const HOLDERS_OF_A_HINT: usize = 16;

impl ZooKeeperBackend {
    /// Returns the current holders and waiters of `key`, as known to the leader.
    pub(super) async fn queue(&self, key: &LockKey) -> Result<Queue, Failure> {
        let node = self.layout.lock(key);
        let link = self.servers.main().await?;
        // The server forwards the first request to the leader. Before the server replies to the
        // second request, it has received all changes that the leader had at that time.
        let (sync, looking) = (link.client().sync(&node), queue_at(&link, &node));
        let (synced, queue) = tokio::join!(link.reply(sync), looking);
        synced.map_err(Failure::of_a_look)?;
        queue
    }

    /// Returns the holders and waiters of `key` as known to the current server. The result may be
    /// outdated.
    pub(super) async fn glance(&self, key: &LockKey) -> Result<Queue, Failure> {
        let link = self.servers.main().await?;
        queue_at(&link, &self.layout.lock(key)).await
    }

    /// Confirms that the next replies on a connection are current. Replies are current if they come
    /// from the leader that tracks session times, or from a server that has all of the leader's
    /// changes.
    ///
    /// A former leader that resumes after a pause still accepts connections to sessions and still
    /// replies to synchronization requests. A write, however, needs a majority, even if it does not
    /// change anything. Servers close all connections when they lose their leader.
    pub(super) async fn confirm(&self, link: &Link) -> Result<(), Failure> {
        let mut nothing = link.client().new_multi_writer();
        let any_version = -1;
        nothing.add_check_version(self.layout.prefix(), any_version).map_err(error::request)?;
        match link.reply(nothing.commit()).await {
            // A rejection also shows that a majority has agreed.
            Ok(_) | Err(Failure::Mismatch(_)) => Ok(()),
            Err(failure) => Err(failure.of_a_look()),
        }
    }

    /// Returns the entries of `key` with these names. Entries that no longer exist are omitted.
    pub(super) async fn entries(
        &self,
        key: &LockKey,
        names: impl IntoIterator<Item = &Name>,
    ) -> Result<Vec<Entry>, Failure> {
        let link = self.servers.main().await?;
        let nodes = names.into_iter().map(|name| (name.clone(), self.layout.node(key, &name.text)));
        let entries = read(&link, nodes.collect()).await.map_err(Failure::of_a_look)?;
        let found: Result<Vec<_>, Failure> = entries.into_iter().collect();
        Ok(found?.into_iter().flatten().collect())
    }

    /// Describes a holder that blocks the claim with this entry. Returns an empty description if
    /// the holder cannot be read.
    pub(super) async fn contention(&self, key: &LockKey, queue: &Queue, own: &Name) -> Contention {
        let holders = queue.holders().filter(|holder| holder.text != own.text);
        let entries = self.entries(key, holders.take(HOLDERS_OF_A_HINT)).await.unwrap_or_default();
        let (holds, waits): (Vec<_>, Vec<_>) = entries.into_iter().partition(Entry::is_granted);
        let ends = |entry: &&Entry| entry.ttl().unwrap_or(Duration::MAX);
        let holder = holds.iter().min_by_key(ends).map(Entry::holder);
        let contention = holder.into_iter().fold(Contention::new(), Contention::with_holder);
        // The first queue entry expires at this time, unless its owner refreshes the entry.
        let place = waits.iter().filter_map(Entry::ttl).min();
        place.into_iter().fold(contention, Contention::with_retry_after)
    }

    /// Returns the holders and waiters of `key` for an operator.
    pub(super) async fn describe(&self, key: &LockKey) -> Result<Inspection, Failure> {
        let queue = self.queue(key).await?;
        let holders: Vec<&Name> = queue.holders().collect();
        let is_first = |name: &Name| holders.iter().any(|holder| holder.text == name.text);
        let others = queue.all().iter().filter(|name| !is_first(name)).take(LISTED);
        let entries = self.entries(key, holders.iter().copied().chain(others)).await?;
        let (held, waits): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|entry| is_first(&entry.name) && entry.is_granted());
        let last = match held.iter().map(Entry::token).max() {
            Some(newest) => newest,
            None => token(queue.changed),
        };
        let waiting = u64::try_from(queue.all().len() - held.len()).unwrap_or(u64::MAX);
        let inspection = Inspection::free()
            .with_last_token((last > 0).then_some(last))
            .with_queue(waiting, waits.iter().take(LISTED).map(Entry::waiter).collect());
        let holders = held.iter().map(Entry::holder);
        Ok(holders.fold(inspection, Inspection::with_holder))
    }

    /// Returns one page of the locks that have holders or waiters.
    /// [`list`](leasehold_core::backend::LockBackend::list) defines the page.
    pub(super) async fn names(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<KeyPage, Failure> {
        let (link, root) = (self.servers.main().await?, self.layout.prefix());
        let (sync, children) = (link.client().sync(root), link.client().list_children(root));
        let (synced, children) = tokio::join!(link.reply(sync), link.reply(children));
        synced.map_err(Failure::of_a_look)?;
        let children = match children {
            Ok(children) => children,
            Err(failure) if failure.is_absence() => return Ok(KeyPage::new(Vec::new())),
            Err(failure) => return Err(failure.of_a_look()),
        };
        let locks = children.iter().filter_map(|child| layout::lock_of(child));
        let mut locks: Vec<LockKey> = locks
            .filter(|lock| lock.as_str().starts_with(prefix))
            .filter(|lock| after.is_none_or(|after| lock.as_str() > after))
            .collect();
        locks.sort_unstable();
        let is_last = locks.len() <= LOCKS_PER_PAGE;
        locks.truncate(LOCKS_PER_PAGE);
        let next = locks.last().filter(|_| !is_last).map(ToString::to_string);
        let nodes: Vec<String> = locks.iter().map(|lock| self.layout.lock(lock)).collect();
        let used = join_all(nodes.iter().map(|node| is_in_use(&link, node))).await;
        let used: Result<Vec<bool>, Failure> = used.into_iter().collect();
        let used = used.map_err(Failure::of_a_look)?;
        let used = locks.into_iter().zip(used).filter_map(|(lock, used)| used.then_some(lock));
        Ok(KeyPage::new(used.collect()).with_next(next))
    }
}

async fn queue_at(link: &Link, node: &str) -> Result<Queue, Failure> {
    match link.reply(link.client().get_children(node)).await {
        Ok((children, stat)) => Ok(Queue::new(&children, &stat)),
        Err(failure) if failure.is_absence() => Ok(Queue::default()),
        Err(failure) => Err(failure.of_a_look()),
    }
}

/// Reads nodes by name and path, in a few requests. The result for a node is its entry, or `None`
/// if the node does not exist.
pub(super) async fn read(
    link: &Link,
    nodes: Vec<(Name, String)>,
) -> Result<Vec<Result<Option<Entry>, Failure>>, Failure> {
    let requests = nodes.chunks(NODES_PER_REQUEST).map(|some| {
        let mut reader = link.client().new_multi_reader();
        let added = some.iter().try_for_each(|(_, node)| reader.add_get_data(node));
        // The request is sent immediately, and its reply is awaited later.
        added.map(|()| link.reply(reader.commit())).map_err(error::request)
    });
    let requests: Result<Vec<_>, Failure> = requests.collect();
    let replies: Result<Vec<_>, Failure> = join_all(requests?).await.into_iter().collect();
    let results = replies?.into_iter().flatten();
    Ok(nodes.into_iter().zip(results).map(|((name, _), result)| entry(name, result)).collect())
}

fn entry(name: Name, result: MultiReadResult) -> Result<Option<Entry>, Failure> {
    match result {
        MultiReadResult::Data { data, stat } => Ok(Some(Entry::new(name, data, stat))),
        MultiReadResult::Error { err: ClientError::NoNode } => Ok(None),
        MultiReadResult::Error { err } => Err(error::request(err)),
        _ => Err(error::senseless()),
    }
}

async fn is_in_use(link: &Link, node: &str) -> Result<bool, Failure> {
    match link.reply(link.client().list_children(node)).await {
        Ok(children) => Ok(children.iter().any(|name| Name::read(name).is_some())),
        Err(failure) if failure.is_absence() => Ok(false),
        // The lock belongs to a different user. Inspecting the lock reports an error.
        Err(failure) if failure.is_denial() => Ok(true),
        Err(failure) => Err(failure),
    }
}
