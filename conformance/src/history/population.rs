//! The client processes of a run.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::fault::FaultKind;
use crate::history::line::Plan;
use crate::history::process::{Process, Program};
use crate::history::record::Record;

/// A fixed number of slots, with one process in each slot.
///
/// The [`history`](super) module shows how the parts work together.
#[derive(Debug)]
pub struct Population {
    plan: Plan,
    program: Program,
    places: Vec<Process>,
    record: Arc<Record>,
}

impl Population {
    /// Starts the given number of processes.
    pub fn start(plan: Plan, processes: u32, program: Program, record: &Arc<Record>) -> Self {
        let record = Arc::clone(record);
        let mut population = Self { plan, program, places: Vec::new(), record };
        for place in 0..processes as usize {
            let process = population.next(place);
            population.places.push(process);
        }
        population
    }

    /// Returns the number of slots.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns `true` if the population has no slots.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the process in a slot.
    pub fn at(&self, place: usize) -> &Process {
        &self.places[place]
    }

    /// Pauses one process or all processes for `time`, or replaces one process with a new process
    /// and waits for `time`. If only one process is affected, `pick` selects the process. Returns
    /// the name of the target and the numbers of the paused processes.
    ///
    /// # Panics
    ///
    /// Panics unless `kind` is [`FaultKind::ClientStopped`], [`FaultKind::ClientsStopped`] or
    /// [`FaultKind::ClientKilled`].
    pub async fn disturb(
        &mut self,
        kind: FaultKind,
        time: Duration,
        pick: usize,
    ) -> (String, Vec<u32>) {
        let place = pick % self.places.len();
        let victim = self.places[place].number();
        match kind {
            FaultKind::ClientStopped => {
                self.places[place].stop();
                sleep(time).await;
                self.places[place].go_on();
                (format!("process {victim}"), vec![victim])
            }
            FaultKind::ClientsStopped => {
                self.places.iter().for_each(Process::stop);
                sleep(time).await;
                self.places.iter().for_each(Process::go_on);
                let all = self.places.iter().map(Process::number).collect();
                ("all processes".to_owned(), all)
            }
            FaultKind::ClientKilled => {
                self.replace(place, time).await;
                (format!("process {victim}"), Vec::new())
            }
            _ => panic!("the fault {kind} does not affect clients"),
        }
    }

    /// Kills the process in a slot and starts a new process.
    async fn replace(&mut self, place: usize, after: Duration) {
        let process = self.next(place);
        // The new process exists immediately, but acquires locks only after it has connected.
        std::mem::replace(&mut self.places[place], process).kill().await;
        sleep(after).await;
    }

    /// Makes all processes finish their work, and waits until they have exited.
    pub async fn finish(self, within: Duration) {
        join_all(self.places.into_iter().map(|process| process.finish(within))).await;
    }

    fn next(&mut self, place: usize) -> Process {
        self.plan.process += 1;
        Process::start(&self.plan, &self.program, place, &self.record)
    }
}
