//! Measures locks beside their parts, and beside other locks: side by side in one run, on servers of its own.
#![forbid(unsafe_code)]

mod args;

mod contest;
mod measure;
mod outcome;
mod report;
mod round;
mod target;

mod lockers;
mod scenario;

mod child;
mod database;
mod machine;
mod store;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::report::Report;

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = runtime(args.workers);
    let code = match &args.child {
        Some(plan) => runtime.block_on(scenario::run_plan(plan)),
        None => runtime.block_on(measure_unless_stopped(args)),
    };
    // A contestant that never waits for anything would be waited for.
    runtime.shutdown_background();
    code
}

fn runtime(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all().build().expect("a process can have threads")
}

/// Measures, and stops servers and children at any end: they go when the measurement is dropped.
async fn measure_unless_stopped(args: Args) -> ExitCode {
    let mut interrupted = signal(SignalKind::interrupt()).expect("signals can be waited for");
    let mut terminated = signal(SignalKind::terminate()).expect("signals can be waited for");
    // In a task, as in users' programs: the runtime's own thread would have to be woken for each reply.
    let mut measuring = tokio::spawn(measure(args));
    tokio::select! {
        measured = &mut measuring => match measured {
            Ok(()) => return ExitCode::SUCCESS,
            // The panic is printed already.
            Err(_panicked) => return ExitCode::FAILURE,
        },
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    measuring.abort();
    // The error is the one that stopped the task.
    drop(measuring.await);
    ExitCode::FAILURE
}

async fn measure(args: Args) {
    let mut report = Report::new(&args);
    for scenario in args.scenarios() {
        for outcome in scenario::run(*scenario, &args).await {
            report.add(outcome);
        }
    }
}
