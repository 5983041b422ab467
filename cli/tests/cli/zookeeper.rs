//! The command on a real ZooKeeper: in one line with locks of Apache Curator, and on servers that allow only short sessions.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_testbed::{Curator, CuratorEvent, Folder, ZooKeeper, ZooKeeperOptions, until};
use serde_json::Value;
use tokio::time::timeout;

use crate::support::{Running, block_on, code, fails, file, leasehold_on, run_on, text};

/// Longer than an election on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// As long as a job is watched while it holds its lock, to see that it holds it alone.
const A_WHILE: Duration = Duration::from_millis(20);

/// Curator's path of the lock `job`.
const PATH: &str = "/locks/job";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Mutex,
    Reader,
    Writer,
}

/// Jobs in the order in which they came: those with even numbers are of the command, the others of Curator.
struct Jobs {
    zookeeper: ZooKeeper,
    curator: Curator,
    folder: Folder,
    kinds: Vec<Kind>,
    ours: Vec<Running>,
    /// The jobs of Curator that hold their locks, or have held them.
    theirs: BTreeSet<usize>,
}

impl Jobs {
    async fn start() -> Self {
        let zookeeper = ZooKeeperOptions::new().members(3).start().await;
        let (curator, folder) = (zookeeper.curator(LONG).await, Folder::in_memory("test-"));
        let (kinds, ours, theirs) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self { zookeeper, curator, folder, kinds, ours, theirs }
    }

    /// Has a new job ask for the lock, and waits until it stands in line.
    async fn ask(&mut self, kind: Kind) {
        let (number, name) = (self.kinds.len(), self.kinds.len().to_string());
        self.kinds.push(kind);
        match kind {
            _ if is_ours(number) => self.run(number, kind),
            Kind::Mutex => self.curator.mutex(&name, PATH).await,
            Kind::Reader => self.curator.read(&name, PATH).await,
            Kind::Writer => self.curator.write(&name, PATH).await,
        }
        until("the claim was queued", async || self.claims().await == self.kinds.len()).await;
    }

    fn run(&mut self, number: usize, kind: Kind) {
        let url = format!("{}/locks?tick-ms=500", self.zookeeper.url());
        let (held, released) = (self.held(number), self.released(number));
        let script = format!(
            "touch {}; until [ -e {} ]; do sleep 0.02; done",
            held.display(),
            released.display()
        );
        let options = match kind {
            Kind::Mutex => &["--wait", "300s"][..],
            Kind::Reader => &["--wait", "300s", "--read"],
            Kind::Writer => &["--wait", "300s", "--write"],
        };
        self.ours.push(Running::start(&mut run_on(&url, options, &script)));
    }

    /// How many claims stand in the line, those that hold included: the leader knows the ephemeral nodes of all sessions.
    async fn claims(&self) -> usize {
        let dump = self.zookeeper.ask(self.zookeeper.leader().await, "dump").await;
        dump.lines().filter(|line| line.trim().starts_with(&format!("{PATH}/"))).count()
    }

    /// Lets all jobs hold the lock, one after the other, and readers together; checks that they come in order and that no other holds it
    /// meanwhile. Kills the leader before the jobs of one turn release the lock.
    async fn run_in_order(mut self, killed_in: usize) {
        let (mut next, mut turn) = (0, 0);
        while next < self.kinds.len() {
            let readers = self.kinds[next..].iter().take_while(|kind| **kind == Kind::Reader);
            let together = readers.count().max(1);
            let expected: BTreeSet<usize> = (0..next + together).collect();
            while self.holders().await.len() < expected.len() {}
            assert_eq!(self.holders().await, expected, "in turn {turn}");
            if turn == killed_in {
                let leader = self.zookeeper.leader().await;
                self.zookeeper.kill_member(leader);
            }
            for number in next..next + together {
                self.release(number).await;
            }
            (next, turn) = (next + together, turn + 1);
        }
        for shell in self.ours {
            let (exit, complaint) = shell.end();
            assert_eq!(exit, Some(0), "{complaint}");
        }
    }

    /// The jobs that hold the lock, or have held it, once there has been no news for a while.
    async fn holders(&mut self) -> BTreeSet<usize> {
        while let Ok(event) = timeout(A_WHILE, self.curator.event()).await {
            if let CuratorEvent::Held(job) = event {
                self.theirs.insert(job.parse().unwrap());
            }
        }
        let ours = (0..self.kinds.len()).filter(|number| is_ours(*number));
        let ours = ours.filter(|number| self.held(*number).exists());
        ours.chain(self.theirs.iter().copied()).collect()
    }

    async fn release(&mut self, number: usize) {
        if is_ours(number) {
            fs::write(self.released(number), "").unwrap();
        } else {
            self.curator.release(&number.to_string()).await;
        }
    }

    /// The file that a job of the command makes once it holds the lock.
    fn held(&self, number: usize) -> PathBuf {
        file(&self.folder, &format!("held-{number}"))
    }

    /// The file that ends such a job.
    fn released(&self, number: usize) -> PathBuf {
        file(&self.folder, &format!("released-{number}"))
    }
}

fn is_ours(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// Has forty jobs of these kinds ask, one after the other, and kills the leader while they hold the lock in turn.
fn run_forty(kinds: &[Kind]) {
    block_on(async {
        let mut jobs = Jobs::start().await;
        for kind in kinds.iter().cycle().take(40) {
            jobs.ask(*kind).await;
        }

        jobs.run_in_order(4).await;
    });
}

#[test]
fn forty_jobs_beside_curator_hold_the_lock_one_at_a_time_and_in_order() {
    run_forty(&[Kind::Mutex]);
}

#[test]
fn forty_readers_and_writers_beside_curator_come_in_order() {
    use Kind::{Reader, Writer};

    run_forty(&[Writer, Writer, Reader, Reader, Reader, Reader, Writer, Writer, Reader, Reader]);
}

/// Below the usual TTL: servers with a `tickTime` of half a second have it.
const LONGEST: &str = "10000";

#[test]
fn usual_ttl_gives_way_to_the_longest_that_a_server_allows() {
    let server = block_on(ZooKeeperOptions::new().set("maxSessionTimeout", LONGEST).start());
    let url = server.url();
    let mut holder = leasehold_on(&url);
    let mut holder = Running::start(holder.args(["hold", "job"]));
    assert!(holder.line().starts_with("job: held"));

    let status = leasehold_on(&url).args(["status", "--json", "job"]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let doctor = leasehold_on(&url).arg("doctor").output().unwrap();

    assert_eq!(status["holders"][0]["kind"], "mutex", "{status}");
    assert!(status["holders"][0]["remaining_ms"].as_u64() <= Some(10_000), "{status}");
    assert_eq!(code(&doctor), 0, "{}", text(&doctor.stderr));
    let said = text(&doctor.stdout);
    assert!(said.contains("the default is 10s instead of 30s"), "{said}");
    let chosen = ["run", "--ttl", "30", "other", "true"];
    fails(leasehold_on(&url).args(chosen), 64, "--ttl 30s is too long: zookeeper supports");
    let only = ["verify", "--only", "mutual_exclusion::a_held_lock_is_refused_at_once"];
    let verified = leasehold_on(&url).args(only).output().unwrap();
    assert_eq!(code(&verified), 0, "{}{}", text(&verified.stdout), text(&verified.stderr));
}
