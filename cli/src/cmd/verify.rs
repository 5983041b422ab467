//! `leasehold verify`

mod histories;
mod junit;
mod scratch;

use std::any::Any;
use std::fs;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_conformance::history::report;
use leasehold_conformance::history::run::Run;
use leasehold_conformance::history::summary::Summary;
use leasehold_conformance::{Case, Skipped, Subject, cases};
use serde_json::json;

use self::scratch::{Scratch, Theirs};
use crate::args::Backend;
use crate::exit::{self, Failure};
use crate::out;
use crate::time;

/// Cases that run at once, unless the command line says. Most of them wait most of the time.
const AT_ONCE: usize = 4;

/// The argument that makes a process one of the clients whose history is judged.
const CLIENT: &str = "--client-of-histories";

/// Runs the suite that all stores of Leasehold pass on a store of yours.
///
/// Each case tests one property of a lock, with keys and clients of its own, in a namespace of its own: a prefix after yours, on a file of
/// SQLite another file, in a database tables of its own, which are named in the end. Cases that break connections or stop the server are
/// left out. It takes some minutes and puts some load on the server.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    /// Only the cases whose names contain this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// The cases with many clients at once, too.
    #[arg(long)]
    load: bool,

    /// How many cases run at once.
    #[arg(long, value_name = "N", default_value_t = AT_ONCE)]
    at_once: usize,

    /// Write the results here, in the format of JUnit.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Then have processes lock for this long, stop and kill some of them, and judge what they believed.
    ///
    /// Only clients are disturbed, which are processes of this command. Their keys lie in the namespace of the suite.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    histories: Option<Duration>,

    /// Write a page here that shows these processes, for browsers.
    #[arg(long, value_name = "FILE", requires = "histories")]
    report: Option<PathBuf>,

    /// Be one of these processes.
    #[arg(long = "client-of-histories", hide = true)]
    is_client: bool,

    /// The store, instead of that of --backend or LEASEHOLD_BACKEND.
    #[arg(value_name = "URL")]
    store: Option<String>,
}

const HELP: &str = "\
Exit status: 0 if no case fails and no history breaks a promise, else 1; 69, 74, 77 and 64 as `leasehold --help` says.

Examples:
  leasehold verify redis://staging-redis
  leasehold verify --only mutual_exclusion --junit locks.xml etcd://127.0.0.1
  leasehold verify --histories 60s --report histories.html redis://staging-redis";

/// The outcome of a case.
#[derive(Debug)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A case that has run.
#[derive(Debug)]
struct Done {
    case: Case,
    verdict: Verdict,
    took: Duration,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    if args.is_client {
        return Ok(histories::client().await);
    }
    let url = args.backend.url_or(args.store.as_deref())?;
    let scratch = Scratch::of(&url)?;
    let backend = Backend::named(scratch.url());
    // A store that cannot be reached is one failure, and not that of each case.
    let client = backend.connect().await?;
    let store = client.backend().capabilities().name();

    scratch.choose();
    let only = args.only.as_deref().unwrap_or_default();
    let chosen: Vec<Case> = cases::<Theirs>()
        .into_iter()
        .filter(|case| case.path().contains(only) && case.subject != Subject::Layers)
        .filter(|case| args.load || case.subject != Subject::Load)
        .collect();
    if chosen.is_empty() {
        return Err(Failure::usage("no case has such a name"));
    }
    let done = run_all(&chosen, args.at_once.max(1))?;
    let history = match args.histories {
        Some(time) => Some(histories::run(scratch.url(), &client, time).await),
        None => None,
    };
    drop(client.shutdown(crate::obtain::GOODBYE).await);
    let left = scratch.clean();

    if let Some(file) = &args.junit {
        write(file, &junit::report(store, &done))?;
    }
    if let (Some(file), Some(run)) = (&args.report, &history) {
        write(file, &report::html(slice::from_ref(run)))?;
    }
    let count = |has: fn(&Verdict) -> bool| done.iter().filter(|it| has(&it.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let passed = count(|verdict| matches!(verdict, Verdict::Passed));
    let skipped = done.len() - failed - passed;
    if out::style().json {
        out::print_json(
            &json!({ "store": store, "passed": passed, "failed": failed, "skipped": skipped }),
        )?;
    } else {
        let sum = format!("{store}: {passed} passed, {failed} failed, {skipped} skipped\n");
        out::print(sum.as_bytes())?;
    }
    let is_kept = match &history {
        Some(run) => tell_history(run)?,
        None => true,
    };
    if let Some(left) = left {
        out::note(left);
    }
    Ok(if failed == 0 && is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tells of the processes, and whether they proved that the store keeps its promises: without a hold, they proved nothing.
fn tell_history(run: &Run) -> Result<bool, Failure> {
    if out::style().json {
        let texts: Vec<&str> = run.violations.iter().map(|it| it.text.as_str()).collect();
        let (seed, holds, faults) = (run.seed, run.holds.len(), run.faults.len());
        out::print_json(
            &json!({ "seed": seed, "holds": holds, "faults": faults, "violations": texts }),
        )?;
    } else {
        out::print(format!("{}\n", Summary(run)).as_bytes())?;
    }
    Ok(run.figures.violations.is_empty() && !run.holds.is_empty())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, text)
        .map_err(|error| Failure::new(exit::NOT_WRITTEN, format!("{}: {error}", file.display())))
}

/// Runs the cases, each of which makes a runtime of its own, and tells of each when it is done.
fn run_all(chosen: &[Case], at_once: usize) -> Result<Vec<Done>, Failure> {
    // The text of a panic is the result of its case.
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
    match catch_unwind(AssertUnwindSafe(|| case.run())) {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(Skipped(need))) => Verdict::Skipped(need.to_string()),
        Err(panic) => Verdict::Failed(message(&*panic)),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panicked".to_owned())
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
