//! `leasehold verify`

mod histories;
mod junit;
mod scratch;
mod suite;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use leasehold_conformance::history::run::Run;
use leasehold_conformance::history::summary::Summary;
use leasehold_conformance::{Case, Subject, cases};
use serde_json::json;

use self::scratch::{Scratch, Theirs};
use self::suite::Verdict;
use crate::exit::{self, Failure};
use crate::help::Help;
use crate::out;
use crate::store::Backend;
use crate::time;

/// The default number of cases that run at the same time. Most cases spend most of their time waiting.
const AT_ONCE: usize = 4;

/// Runs Leasehold's conformance suite against your store.
///
/// Each case tests one property of a lock, with its own keys and clients. The suite uses a separate namespace: a longer prefix, a different
/// file for SQLite, or separate tables in a database, whose names are printed at the end. The suite does not run the cases that break
/// connections or stop the server. It takes several minutes and causes some load on the server.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    /// Run only the cases whose names contain this text.
    #[arg(long, value_name = "TEXT", help_heading = "Suite")]
    only: Option<String>,

    /// Also run the cases that use many concurrent clients.
    #[arg(long, help_heading = "Suite")]
    load: bool,

    /// Number of cases that run at the same time.
    #[arg(long, value_name = "N", default_value_t = AT_ONCE, help_heading = "Suite")]
    at_once: usize,

    /// Write the results to this file, in JUnit format.
    #[arg(long, value_name = "FILE", help_heading = "Suite")]
    junit: Option<PathBuf>,

    /// After the suite, run test processes that acquire locks for this long. Some of the processes are paused or killed. At the end, the
    /// times at which the processes held locks are checked.
    ///
    /// The test processes are started by this command, and use keys in the suite's namespace.
    #[arg(long, value_name = "TIME", value_parser = time::parse, help_heading = "Histories")]
    histories: Option<time::Time>,

    /// Run as one of the test processes of --histories.
    #[arg(long = "client-of-histories", hide = true)]
    is_client: bool,
}

pub(crate) const HELP: Help = Help {
    sections: &[("Times", crate::cmd::run::TIMES)],
    status: "\
0    no case failed, and no history broke a guarantee
1    a case failed, or a history broke a guarantee",
    examples: "\
leasehold verify --backend redis://staging
leasehold verify --only renewal --junit locks.xml --backend etcd://etcd-0
leasehold verify --histories 60s",
    ..Help::CONNECTING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    if args.is_client {
        return Ok(histories::client().await);
    }
    let url = args.backend.url()?;
    let scratch = Scratch::of(&url)?;
    let backend = Backend::named(scratch.url());
    // If the store cannot be reached, a single error is reported, instead of one error per case.
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
        return Err(Failure::usage("no case name contains the value of --only"));
    }
    let done = suite::run(&chosen, args.at_once.max(1))?;
    let history = match args.histories {
        Some(time) => Some(histories::run(scratch.url(), &client, time.span).await),
        None => None,
    };
    drop(client.shutdown(crate::obtain::GOODBYE).await);
    let left = scratch.clean();

    if let Some(file) = &args.junit {
        fs::write(file, junit::report(store, &done)).map_err(|error| {
            Failure::new(exit::NOT_WRITTEN, format!("cannot write {}: {error}", file.display()))
        })?;
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

/// Reports the histories of the processes. Returns whether they show that the store keeps its guarantees, which requires at least one hold.
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
