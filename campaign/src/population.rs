//! The client processes that come and go.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::firewall::group_of;
use crate::line::Plan;
use crate::process::Process;
use crate::record::Record;

/// A number of places with one process each.
#[derive(Debug)]
pub struct Population {
    plan: Plan,
    has_groups: bool,
    places: Vec<Process>,
    record: Arc<Record>,
}

impl Population {
    /// Starts so many processes.
    pub fn start(plan: Plan, processes: u32, has_groups: bool, record: &Arc<Record>) -> Self {
        let record = Arc::clone(record);
        let mut population = Self { plan, has_groups, places: Vec::new(), record };
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

    /// All processes.
    pub fn all(&self) -> &[Process] {
        &self.places
    }

    /// Kills the process at a place, and starts another there.
    pub async fn replace(&mut self, place: usize, after: Duration) {
        let process = self.next(place);
        // The new one is there at once; its lock attempts begin when it has connected.
        std::mem::replace(&mut self.places[place], process).kill().await;
        tokio::time::sleep(after).await;
    }

    /// Has all finish their work, and waits until they have ended.
    pub async fn finish(self, within: Duration) {
        join_all(self.places.into_iter().map(|process| process.finish(within))).await;
    }

    fn next(&mut self, place: usize) -> Process {
        self.plan.process += 1;
        Process::start(&self.plan, self.has_groups.then(|| group_of(place)), &self.record)
    }
}
