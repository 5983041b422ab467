//! Disturbs real stores and real clients of Leasehold by a schedule that a seed decides, and judges the history of both.
#![forbid(unsafe_code)]

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use leasehold_campaign::args::Args;
use leasehold_campaign::campaign;
use leasehold_campaign::firewall::Firewall;
use leasehold_campaign::report;
use leasehold_campaign::run::Run;
use leasehold_campaign::summary::Summary;
use leasehold_campaign::worker;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(plan) = &args.child {
        return worker::run(plan).await;
    }
    let firewall = if args.firewall { Some(Firewall::take_over().await) } else { None };
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
