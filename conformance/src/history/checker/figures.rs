//! Computes a run's counts and extreme values.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::history::event::{Event, EventKind};
use crate::history::fault::Hit;
use crate::history::run::{End, Figures, Register, Run, Sample};

use super::hold::{Hold, Holds};
use super::rules::Rules;
use super::time::stalls;

/// Adds the figures and the violations to the run.
pub(super) fn fill(run: &mut Run, events: &[Event], holds: &Holds, rules: Rules<'_>) {
    let (timeline, faults) = (rules.timeline, rules.faults);
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let mut figures = Figures {
        events: count(events.len()),
        longest_overlap_ms: ms(rules.longest_overlap),
        longest_unserved_ms: ms(rules.longest_unserved),
        until_free_ms: ms(rules.until_free),
        handed_off: rules.handed_off,
        loss_latency_ms: loss_latency(events, faults, holds),
        stalled_ms: ms(stalls(events).map(|(from, until)| until - from).sum()),
        ..Figures::default()
    };
    for event in events {
        match &event.kind {
            EventKind::Answered { outcome, .. } => {
                figures.calls += 1;
                bump(&mut figures.outcomes, outcome);
            }
            EventKind::Uses(usage) => {
                figures.fds[0] = figures.fds[0].max(usage.fds);
                figures.samples.push(Sample {
                    process: event.process,
                    at_ms: timeline.ms(event.at),
                    memory_kib: usage.memory_kib,
                    fds: usage.fds,
                    tasks: usage.tasks,
                    entries: usage.entries.clone(),
                });
            }
            EventKind::Finished(usage) => figures.fds[1] = figures.fds[1].max(usage.fds),
            _ => {}
        }
    }
    for hold in holds.all() {
        bump(&mut figures.holds, &format!("{:?}", hold.kind).to_lowercase());
        if let Some((_, reason)) = &hold.lost {
            bump(&mut figures.losses, reason);
        }
    }
    for hit in faults {
        *figures.faults.entry(hit.kind).or_default() += 1;
        figures.faults_on_holds += u64::from(holds.all().iter().any(|it| it.is_at(hit.from)));
    }
    for write in &run.writes {
        match write.register {
            Register::Fenced => figures.writes[usize::from(!write.accepted)] += 1,
            Register::Unfenced => figures.lost_updates += u64::from(write.undid),
        }
    }
    run.violations = rules.violations;
    run.violations.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    for violation in &run.violations {
        let counts = match violation.excused {
            Some(_) => &mut figures.excused,
            None => &mut figures.violations,
        };
        *counts.entry(violation.rule).or_default() += 1;
    }
    run.figures = figures;
}

/// Returns the time from a deadline to the loss notification in milliseconds: median, 99th
/// percentile and maximum.
///
/// A notification does not count if its process was paused or the machine stalled between the
/// deadline and the notification.
fn loss_latency(events: &[Event], faults: &[Hit], holds: &Holds) -> [f64; 3] {
    let mut stops: HashMap<u32, Vec<(Duration, Duration)>> = HashMap::new();
    for hit in faults {
        for process in &hit.stopped {
            stops.entry(*process).or_default().push((hit.from, hit.until));
        }
    }
    let stalls: Vec<_> = stalls(events).collect();
    let was_stopped = |hold: &Hold, at: Duration| {
        let mut stops = stops.get(&hold.process).into_iter().flatten().chain(&stalls);
        stops.any(|(from, until)| *from <= at && hold.deadline <= *until)
    };
    let latency = |hold: &Hold| {
        let (at, reason) = hold.lost.as_ref()?;
        let counts = hold.end == End::Deadline && reason == "expired" && !was_stopped(hold, *at);
        counts.then(|| at.saturating_sub(hold.deadline).as_secs_f64() * 1_000.0)
    };
    let mut latencies: Vec<f64> = holds.all().iter().filter_map(latency).collect();
    latencies.sort_by(f64::total_cmp);
    [50, 99, 100].map(|percent| percentile(&latencies, percent))
}

/// Returns the given percentile of the sorted `values`, or zero if there are no values.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let place = (values.len() * percent).div_ceil(100).saturating_sub(1);
    values.get(place).copied().unwrap_or_default()
}

fn bump(counts: &mut BTreeMap<String, u64>, name: &str) {
    *counts.entry(name.to_owned()).or_default() += 1;
}

fn count(count: usize) -> u64 {
    u64::try_from(count).expect("counts fit into 64 bits")
}
