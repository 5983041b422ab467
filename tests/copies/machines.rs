//! Two copies of one process, as of a snapshot of its machine that runs twice.
//!
//! Both copies have the same memory and, in namespaces of their own, the same process id, so nothing in a copy shows that it is one. All that
//! the process has drawn or reserved is copied: lease ids, spare tokens, sessions.

use std::collections::HashSet;
use std::env;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::process::{self, Command};

use fork::{Fork, fork, waitpid};
use leasehold::{LockClient, LockGuard};
use libtest_mimic::Trial;
use rustix::process::geteuid;
use rustix::thread::UnshareFlags;
use tokio::runtime::{Builder, Runtime};

use crate::stores::{SERVERS, Store, on_each};

/// The argument by which this program is the machine.
pub(crate) const ROLE: &str = "machine";

/// How often each store is tried, unless `LEASEHOLD_COPIES_RUNS` says otherwise.
const RUNS: usize = 3;

pub(crate) fn trials() -> Vec<Trial> {
    on_each(SERVERS, "machines::copies_exclude_each_other_and_share_no_token", exclude_each_other)
}

fn exclude_each_other(name: &'static str) {
    let store = Store::start(name);
    let runs = env::var("LEASEHOLD_COPIES_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let mut grants = HashSet::new();
    for run in 1..=runs {
        let said = said_by_a_machine(&store.url, name);

        let count = |what: &str| said.iter().filter(|line| line.starts_with(what)).count();
        let tried = (count("tried: granted"), count("tried: busy"));
        assert_eq!(tried, (1, 1), "run {run}: {said:#?}");
        for (how, key_and_token) in said.iter().filter_map(|line| line.split_once(": granted ")) {
            assert!(grants.insert(key_and_token.to_owned()), "run {run}, {how}: {said:#?}");
        }
        assert_eq!(count("took over"), if uses_the_former_client(name) { 2 } else { 0 });
    }
}

/// Connections to ZooKeeper are driven by threads of the process, which a fork does not copy. There, the process draws its ids for locks in memory.
fn uses_the_former_client(store: &str) -> bool {
    store != "zookeeper"
}

/// Runs a machine in a namespace of its own, in which its process id is 1.
fn said_by_a_machine(url: &str, store: &str) -> Vec<String> {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--pid", "--fork", "--kill-child"]).arg(env::current_exe().unwrap());
    let output = command.args([ROLE, url, store]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    said.lines().map(str::to_owned).collect()
}

/// The machine: a process that locks, is copied twice, and says what its copies were granted.
pub(crate) fn run_twice(url: &str, store: &str) {
    let uses_former = uses_the_former_client(store);
    let before = Before::of(if uses_former { url } else { "memory:" });
    if uses_former {
        println!("before: granted reserved {}", before.guard.token());
    }
    let (said, says) = pipe().unwrap();
    let (goes_on, go_on) = pipe().unwrap();
    let mut go_on = Some(go_on);
    for _ in 0..2 {
        if fork().unwrap() == Fork::Child {
            drop(go_on.take());
            in_a_namespace();
            let copy = Copy { url, before, uses_former, says };
            copy.run(goes_on);
            process::exit(0);
        }
    }
    drop(says);
    let mut said = BufReader::new(said).lines().map(Result::unwrap);
    // Both copies have tried, so the one that was granted may release.
    said.by_ref().take(2).for_each(|line| println!("{line}"));
    drop(go_on.take());
    said.for_each(|line| println!("{line}"));
    // Only the copies release it.
    process::exit(0);
}

/// Goes on as process 1 of another namespace. The process in between only waits.
fn in_a_namespace() {
    #[expect(deprecated, reason = "the process has one thread")]
    rustix::thread::unshare(UnshareFlags::NEWPID).unwrap();
    if let Fork::Parent(child) = fork().unwrap() {
        process::exit(waitpid(child).unwrap());
    }
    assert_eq!(process::id(), 1);
}

/// What the process has when it is copied.
struct Before {
    client: LockClient,
    /// Its grant has spare tokens.
    guard: LockGuard,
}

impl Before {
    fn of(url: &str) -> Self {
        let before = runtime().block_on(async {
            let client = leasehold::connect(url).await.unwrap();
            let mutex = client.mutex("reserved").unwrap();
            // Where tokens follow a clock, a key's first grant may have no spare ones.
            mutex.lock().await.unwrap().release().await.unwrap();
            let guard = mutex.lock().await.unwrap();
            Self { client, guard }
        });
        // The connections do not outlast a snapshot.
        before.client.backend().disconnect();
        before
    }
}

/// One of the copies.
struct Copy<'a> {
    url: &'a str,
    before: Before,
    uses_former: bool,
    says: PipeWriter,
}

impl Copy<'_> {
    fn run(mut self, mut goes_on: PipeReader) {
        runtime().block_on(async {
            let mutex = leasehold::connect(self.url).await.unwrap().mutex("k").unwrap();
            let tried = mutex.try_lock().await.map_err(|error| error.into_busy().unwrap());
            let said = match &tried {
                Ok(guard) => format!("tried: granted k {}", guard.token()),
                Err(_busy) => "tried: busy".to_owned(),
            };
            self.say(&said);
            // Until the other copy has tried, too.
            goes_on.read_to_end(&mut Vec::new()).unwrap();
            if let Ok(guard) = tried {
                guard.release().await.unwrap();
            }
            let guard = mutex.lock().await.unwrap();
            self.say(&format!("waited: granted k {}", guard.token()));
            guard.release().await.unwrap();
        });
        if self.uses_former {
            runtime().block_on(self.take_over());
        } else {
            process::exit(0);
        }
    }

    /// A caller waits for the lock that the process held when it was copied, and then this copy releases it.
    async fn take_over(self) {
        let Self { before: Before { client, guard }, mut says, .. } = self;
        let mutex = client.mutex("reserved").unwrap();
        // The store knows of one holder: the other copy may have released it.
        let (next, _released) = tokio::join!(mutex.lock(), guard.release());
        let next = next.unwrap();
        let said = format!("took over: granted reserved {}\n", next.token());
        says.write_all(said.as_bytes()).unwrap();
        next.release().await.unwrap();
    }

    /// Says it in one piece, since both copies say something.
    fn say(&mut self, what: &str) {
        self.says.write_all(format!("{what}\n").as_bytes()).unwrap();
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}
