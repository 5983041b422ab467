//! Jobs of ours and of Curator's that want one lock.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{LockClient, LockGuard};
use leasehold_testbed::{Curator, CuratorEvent, ZooKeeper, until};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{LONG, PATH, client};

/// As long as a job holds its lock, to see that it holds it alone.
const A_WHILE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Mutex,
    Reader,
    Writer,
}

/// Jobs in the order in which they came. Each has a session of its own.
pub(crate) struct Jobs {
    curator: Curator,
    jobs: Vec<Job>,
    ours: JoinSet<()>,
    held: UnboundedReceiver<usize>,
    tells_held: UnboundedSender<usize>,
}

struct Job {
    kind: Kind,
    /// Ends a job of ours.
    release: Option<oneshot::Sender<()>>,
}

impl Jobs {
    pub(crate) async fn start(zookeeper: &ZooKeeper) -> Self {
        let (tells_held, held) = mpsc::unbounded_channel();
        let curator = zookeeper.curator(LONG).await;
        Self { curator, jobs: Vec::new(), ours: JoinSet::new(), held, tells_held }
    }

    /// Has a new job of ours ask for the lock, and waits until it stands in line.
    pub(crate) async fn ask_ours(&mut self, zookeeper: &ZooKeeper, kind: Kind) {
        let (number, client) = (self.jobs.len(), client(zookeeper).await);
        let (release, released) = oneshot::channel();
        let tells_held = self.tells_held.clone();
        self.ours.spawn(async move {
            let guard = lock(&client, kind).await;
            tells_held.send(number).unwrap();
            released.await.unwrap();
            let released = guard.release().await;
            assert!(released.map_err(|error| error.is_retryable()) != Err(false));
            // The shutdown waits for a release that failed without a leader.
            client.shutdown(LONG).await.unwrap();
        });
        self.stands_in_line(zookeeper, Job { kind, release: Some(release) }).await;
    }

    /// Has a new job of Curator's ask for the lock, and waits until it stands in line.
    pub(crate) async fn ask_curators(&mut self, zookeeper: &ZooKeeper, kind: Kind) {
        let name = self.jobs.len().to_string();
        match kind {
            Kind::Mutex => self.curator.mutex(&name, PATH).await,
            Kind::Reader => self.curator.read(&name, PATH).await,
            Kind::Writer => self.curator.write(&name, PATH).await,
        }
        self.stands_in_line(zookeeper, Job { kind, release: None }).await;
    }

    async fn stands_in_line(&mut self, zookeeper: &ZooKeeper, job: Job) {
        self.jobs.push(job);
        until("the claim was queued", async || claims(zookeeper).await == self.jobs.len()).await;
    }

    /// Lets all jobs hold the lock, one after the other, and readers together; checks that they come in order and that no other holds it
    /// meanwhile. Calls `at_turn` with the number of each turn, before its jobs release the lock.
    pub(crate) async fn run_in_order(mut self, mut at_turn: impl AsyncFnMut(usize)) {
        let mut next = 0;
        for turn in 0.. {
            let Some(job) = self.jobs.get(next) else { break };
            let readers = self.jobs[next..].iter().take_while(|job| job.kind == Kind::Reader);
            let together = if job.kind == Kind::Reader { readers.count() } else { 1 };
            let expected: BTreeSet<usize> = (next..next + together).collect();
            let mut holders = BTreeSet::new();
            while holders.len() < together {
                holders.insert(self.next_holder().await);
            }
            assert_eq!(holders, expected, "in turn {turn}");
            let other = timeout(A_WHILE, self.next_holder()).await;
            assert!(other.is_err(), "{other:?} holds it beside {expected:?}");
            at_turn(turn).await;
            for number in holders {
                self.release(number).await;
            }
            next += together;
        }
        while let Some(ended) = self.ours.join_next().await {
            ended.unwrap();
        }
    }

    async fn release(&mut self, number: usize) {
        match self.jobs[number].release.take() {
            Some(release) => release.send(()).unwrap(),
            None => self.curator.release(&number.to_string()).await,
        }
    }

    /// The next job that holds the lock, of whichever library.
    async fn next_holder(&mut self) -> usize {
        loop {
            tokio::select! {
                ours = self.held.recv() => return ours.expect("we can send"),
                event = self.curator.event() => if let CuratorEvent::Held(job) = event {
                    return job.parse().unwrap();
                },
            }
        }
    }
}

async fn lock(client: &LockClient<ZooKeeperBackend>, kind: Kind) -> LockGuard {
    match kind {
        Kind::Mutex => client.mutex("job").unwrap().lock().await.unwrap(),
        Kind::Reader => client.rw_lock("job").unwrap().read().await.unwrap(),
        Kind::Writer => client.rw_lock("job").unwrap().write().await.unwrap().into_guard(),
    }
}

/// How many claims stand in the line, those that hold included.
async fn claims(zookeeper: &ZooKeeper) -> usize {
    // The leader alone knows all sessions, and the ephemeral nodes of each.
    let dump = zookeeper.ask(zookeeper.leader().await, "dump").await;
    dump.lines().filter(|line| line.trim().starts_with(&format!("{PATH}/"))).count()
}
