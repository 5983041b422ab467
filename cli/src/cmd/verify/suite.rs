//! Runs the cases of the suite, several at the same time.

use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_conformance::{Case, Skipped};
use serde_json::json;

use crate::exit::Failure;
use crate::out;

/// The outcome of a case.
#[derive(Debug)]
pub(super) enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A case that has run.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) case: Case,
    pub(super) verdict: Verdict,
    pub(super) took: Duration,
}

/// Runs the cases, each in its own runtime, and reports each result.
pub(super) fn run(chosen: &[Case], at_once: usize) -> Result<Vec<Done>, Failure> {
    // A panic is the result of a case, so its text is not printed here.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let (next, done) = (AtomicUsize::new(0), Mutex::new((Vec::new(), Ok(()))));
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let began = Instant::now();
                    let verdict = judge(case);
                    let it = Done { case: *case, verdict, took: began.elapsed() };
                    let mut done = done.lock().expect("nothing panics while it is held");
                    if done.1.is_ok() {
                        done.1 = tell(&it);
                    }
                    done.0.push(it);
                }
            });
        }
    });
    panic::set_hook(hook);
    let (mut done, told) = done.into_inner().expect("nothing panics while it is held");
    told?;
    done.sort_by_key(|it| chosen.iter().position(|case| case.path() == it.case.path()));
    Ok(done)
}

fn judge(case: &Case) -> Verdict {
    if let Some(need) = case.skips {
        return Verdict::Skipped(need.to_string());
    }
    match case.check() {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(Skipped(need))) => Verdict::Skipped(need.to_string()),
        Err(failure) => Verdict::Failed(failure.to_string()),
    }
}

fn tell(done: &Done) -> Result<(), Failure> {
    let (word, said) = match &done.verdict {
        Verdict::Passed => ("ok", ""),
        Verdict::Failed(message) => ("failed", message.as_str()),
        Verdict::Skipped(need) => ("skipped", need.as_str()),
    };
    let path = done.case.path();
    if out::style().json {
        return out::print_json(&json!({
            "case": path,
            "verdict": word,
            "said": said,
            "seconds": done.took.as_secs_f64(),
        }));
    }
    let line = match &done.verdict {
        Verdict::Passed => format!("ok       {path}\n"),
        Verdict::Failed(message) => format!("FAILED   {path}: {message}\n"),
        Verdict::Skipped(need) => format!("skipped  {path}: no {need}\n"),
    };
    out::print(line.as_bytes())
}
