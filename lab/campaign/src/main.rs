//! Disturbs real stores and real clients of Leasehold by a schedule that a seed decides, and judges the history of both.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use leasehold_campaign::args::Args;
use leasehold_campaign::campaign;
use leasehold_campaign::firewall::Firewall;
use leasehold_campaign::{faulty_backend, report};
use leasehold_conformance::history::line::Plan;
use leasehold_conformance::history::run::Run;
use leasehold_conformance::history::summary::Summary;
use leasehold_conformance::history::worker;
use leasehold_core::backend::LockBackend;
use leasehold_core::{Error, LockClient};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    if args.child {
        return worker::run(connect, entries).await;
    }
    let firewall = if args.namespaces { Some(Firewall::take_over().await) } else { None };
    let (size, mut runs) = (args.size(), Vec::new());
    for class in args.classes() {
        println!("{}: seed {}", class.title(), size.seed);
        let run = campaign::run(class, args.url.as_deref(), &size, firewall.as_ref()).await;
        println!("{}", Summary(&run));
        runs.push(run);
        // After each class: an interrupted campaign leaves the runs before.
        write(&args, &runs);
    }
    // A campaign in which no process gets a lock proves nothing.
    let is_kept = runs.iter().all(|run| run.figures.violations.is_empty() && !run.holds.is_empty());
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write(args: &Args, runs: &[Run]) {
    if let Some(file) = &args.json {
        let json = serde_json::to_vec(runs).expect("runs are plain data");
        fs::write(file, json).expect("the file can be written");
    }
    if let Some(file) = &args.report {
        fs::write(file, report::html(runs)).expect("the file can be written");
    }
}

/// Connects a client process to the store, and shows the store with its flaw if the plan has one.
async fn connect(plan: &Plan) -> Result<Arc<dyn LockBackend>, Error> {
    let backend = leasehold::backend::connect(&plan.url).await?;
    Ok(faulty_backend::with_flaw(backend, plan.flaw.as_deref()))
}

fn entries(client: &LockClient) -> BTreeMap<String, u64> {
    let count = |count: usize| u64::try_from(count).expect("counts are small");
    client.entries().map(|(map, entries)| (map.to_owned(), count(entries))).into()
}
