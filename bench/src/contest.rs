//! Contestants that take turns, so that what else the machine does strikes all of them alike.

use std::time::Duration;

use async_trait::async_trait;

use crate::Args;

/// One way to do something.
#[async_trait]
pub(crate) trait Contestant: Send {
    fn name(&self) -> &'static str;

    /// Does it many times, and tells how long each took.
    async fn round(&mut self) -> Vec<Duration>;
}

/// Lets the contestants take turns, of which the first one is what the others are compared with, and prints what came of it.
pub(crate) async fn run(title: &str, args: &Args, mut contestants: Vec<Box<dyn Contestant>>) {
    contestants.retain(|contestant| contestant.name().contains(&args.only));
    if contestants.is_empty() {
        return;
    }
    let rounds = args.rounds;
    let mut medians = vec![Vec::new(); contestants.len()];
    let mut all = vec![Vec::new(); contestants.len()];
    // The first round is for connections, caches and sessions.
    for round in 0..=rounds {
        for (contestant, (medians, all)) in
            contestants.iter_mut().zip(medians.iter_mut().zip(&mut all))
        {
            let times = contestant.round().await;
            if round > 0 {
                medians.push(percentile(&times, 50));
                all.extend(times);
            }
        }
    }

    println!("{title}, {rounds} rounds, medians of a round in microseconds");
    println!(
        "{:<44} {:>9} {:>9} {:>9} {:>9}  of the first's speed",
        "", "median", "min", "max", "p99"
    );
    let floor = medians[0].clone();
    for (contestant, (medians, all)) in contestants.iter().zip(medians.iter().zip(&all)) {
        let ratios: Vec<f64> = floor
            .iter()
            .zip(medians)
            .map(|(floor, own)| floor.as_secs_f64() / own.as_secs_f64())
            .collect();
        println!(
            "{:<44} {:>9.0} {:>9.0} {:>9.0} {:>9.0}  {:.2} ({:.2} to {:.2})",
            contestant.name(),
            micros(percentile(medians, 50)),
            micros(percentile(medians, 0)),
            micros(percentile(medians, 100)),
            micros(percentile(all, 99)),
            middle(&ratios),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
    }
    println!();
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100]
}

fn middle(ratios: &[f64]) -> f64 {
    let mut ratios = ratios.to_vec();
    ratios.sort_by(f64::total_cmp);
    ratios[(ratios.len() - 1) / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
