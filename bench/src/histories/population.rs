//! The processes that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::Args;
use crate::line::Plan;
use crate::process::Process;
use crate::record::Record;

/// How often processes were disturbed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) killed: u32,
    pub(crate) stopped: u32,
}

/// A place for one process at a time.
struct Place {
    url: String,
    ttl: Duration,
    until: Instant,
    numbers: Arc<AtomicU32>,
    record: Arc<Record>,
}

/// Keeps processes at work until time is up. Then it kills all.
pub(crate) async fn run(args: &Args, url: &str, record: &Arc<Record>) -> Tally {
    let (until, numbers) = (Instant::now() + args.time(), Arc::new(AtomicU32::new(1)));
    let mut places = JoinSet::new();
    for _ in 0..args.processes {
        let (url, ttl) = (url.to_owned(), args.ttl());
        let (numbers, record) = (Arc::clone(&numbers), Arc::clone(record));
        places.spawn(Place { url, ttl, until, numbers, record }.fill());
    }
    let tallies = places.join_all().await;
    tallies.into_iter().fold(Tally::default(), |sum, tally| Tally {
        killed: sum.killed + tally.killed,
        stopped: sum.stopped + tally.stopped,
    })
}

impl Place {
    async fn fill(self) -> Tally {
        let mut tally = Tally::default();
        while Instant::now() < self.until {
            let process = self.numbers.fetch_add(1, Ordering::Relaxed);
            let plan = Plan { url: self.url.clone(), ttl: self.ttl, process };
            let process = Process::start(&plan, &self.record);
            tally.stopped += self.disturb(&process).await;
            process.kill().await;
            tally.killed += 1;
        }
        tally
    }

    /// Stops the process now and then, up to the time to kill it, and says how often.
    async fn disturb(&self, process: &Process) -> u32 {
        let mut stops = 0;
        loop {
            self.pause(self.ttl / 5, self.ttl * 2).await;
            if Instant::now() >= self.until || fastrand::u8(..3) == 0 {
                return stops;
            }
            process.stop();
            // Longer than a lease about as often as not.
            self.pause(self.ttl / 10, self.ttl * 2).await;
            // A process that is stopped is killed like others.
            if fastrand::u8(..8) == 0 {
                return stops + 1;
            }
            process.go_on();
            stops += 1;
        }
    }

    async fn pause(&self, least: Duration, most: Duration) {
        let time = least + (most - least).mul_f64(fastrand::f64());
        tokio::select! {
            () = sleep(time) => {}
            () = sleep_until(self.until) => {}
        }
    }
}
