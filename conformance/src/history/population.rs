//! The client processes that come and go.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::history::line::Plan;
use crate::history::process::{Process, Program};
use crate::history::record::Record;

/// A number of places with one process each.
#[derive(Debug)]
pub struct Population {
    plan: Plan,
    program: Program,
    places: Vec<Process>,
    record: Arc<Record>,
}

impl Population {
    /// Starts so many processes.
    pub fn start(plan: Plan, processes: u32, program: Program, record: &Arc<Record>) -> Self {
        let record = Arc::clone(record);
        let mut population = Self { plan, program, places: Vec::new(), record };
        for place in 0..processes as usize {
            let process = population.next(place);
            population.places.push(process);
        }
        population
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The process at a place.
    pub fn at(&self, place: usize) -> &Process {
        &self.places[place]
    }

    /// Stops or kills one process that `pick` picks, or all, for `time`. Returns the name of the target, and the processes that stood still.
    ///
    /// # Panics
    ///
    /// If no fault of processes has this name: `client-stopped`, `clients-stopped` or `client-killed`.
    pub async fn disturb(&mut self, kind: &str, time: Duration, pick: usize) -> (String, Vec<u32>) {
        let place = pick % self.places.len();
        let victim = self.places[place].number();
        match kind {
            "client-stopped" => {
                self.places[place].stop();
                sleep(time).await;
                self.places[place].go_on();
                (format!("process {victim}"), vec![victim])
            }
            "clients-stopped" => {
                self.places.iter().for_each(Process::stop);
                sleep(time).await;
                self.places.iter().for_each(Process::go_on);
                let all = self.places.iter().map(Process::number).collect();
                ("all processes".to_owned(), all)
            }
            "client-killed" => {
                self.replace(place, time).await;
                (format!("process {victim}"), Vec::new())
            }
            _ => panic!("{kind} befalls no client"),
        }
    }

    /// Kills the process at a place, and starts another there.
    async fn replace(&mut self, place: usize, after: Duration) {
        let process = self.next(place);
        // The new one is there at once; its lock attempts begin when it has connected.
        std::mem::replace(&mut self.places[place], process).kill().await;
        sleep(after).await;
    }

    /// Has all finish their work, and waits until they have ended.
    pub async fn finish(self, within: Duration) {
        join_all(self.places.into_iter().map(|process| process.finish(within))).await;
    }

    fn next(&mut self, place: usize) -> Process {
        self.plan.process += 1;
        Process::start(&self.plan, &self.program, place, &self.record)
    }
}
