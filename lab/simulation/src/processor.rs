//! A client's processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_conformance::FaultKind;
use tokio::time::{self, Instant};

use crate::incident::{Incident, Target};
use crate::schedule::{Schedule, Stream};

/// The longest time that a process takes to come to a timer or a message once it runs again, in milliseconds.
const BACKLOG: u64 = 3;

/// The processor of a client's process, unless the process is [paused](FaultKind::ClientStopped).
///
/// Only timers, replies and notifications wake the tasks of a process, or tasks of the same process. All of them come through here and wait
/// while the process is paused, so then none of its tasks runs.
#[derive(Clone, Debug)]
pub(crate) struct Processor(Arc<State>);

#[derive(Debug)]
struct State {
    client: usize,
    zero: Instant,
    /// The pauses, by when they begin and end.
    pauses: Vec<(Duration, Duration)>,
    schedule: Schedule,
    wakes: AtomicU64,
}

impl Processor {
    pub(crate) fn new(
        client: usize,
        zero: Instant,
        incidents: &[Incident],
        schedule: Schedule,
    ) -> Self {
        let (stopped, target) = (FaultKind::ClientStopped, Target::Client(client));
        let pauses = incidents.iter().filter(|incident| incident.is(stopped, target));
        let pauses = pauses.map(|incident| (incident.at, incident.end())).collect();
        Self(Arc::new(State { client, zero, pauses, schedule, wakes: AtomicU64::new(0) }))
    }

    /// Whether none of the tasks runs. At the moment at which a pause begins they may have run already.
    pub(crate) fn is_paused(&self) -> bool {
        let now = self.now();
        self.0.pauses.iter().any(|(begin, end)| *begin < now && now < *end)
    }

    /// Waits until the process runs.
    pub(crate) async fn running(&self) {
        time::sleep_until(self.0.zero + self.runs_at(self.now())).await;
    }

    /// Sleeps for so long, and until the process runs.
    pub(crate) async fn sleep(&self, time: Duration) {
        // At once until then: the end of a first sleep would wake the task.
        time::sleep_until(self.0.zero + self.runs_at(self.now() + time)).await;
    }

    /// The output of a future, or nothing if the process notices first that so much time is over.
    pub(crate) async fn within<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep(time) => None,
        }
    }

    /// When the process comes to an event of that moment: after a pause, to all that has waited for it in any order.
    fn runs_at(&self, mut moment: Duration) -> Duration {
        while let Some(end) = self.pause_end(moment) {
            let number = self.0.wakes.fetch_add(1, Ordering::Relaxed);
            let stream = Stream::Wake { client: self.0.client, number };
            let backlog = self.0.schedule.stream(stream).u64(..=BACKLOG);
            moment = end + Duration::from_millis(backlog);
        }
        moment
    }

    fn pause_end(&self, moment: Duration) -> Option<Duration> {
        let on = self.0.pauses.iter().filter(|(begin, end)| *begin <= moment && moment < *end);
        on.map(|(_, end)| *end).max()
    }

    fn now(&self) -> Duration {
        self.0.zero.elapsed()
    }
}
