//! Measures locks beside what they are made of, and beside others: side by side in one run, on servers of its own.

mod contest;
mod etcd;

use clap::{Parser, ValueEnum};

/// Measures locks, side by side in one run, on servers that it starts itself.
#[derive(Debug, Parser)]
struct Args {
    /// What to measure. Without any, everything.
    scenarios: Vec<Scenario>,
    /// How often each contestant is measured, in turns.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only contestants with this in their names, for a profiler.
    #[arg(long, default_value = "")]
    only: String,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// Lock and release on etcd with nobody else about, beside two hand-written transactions.
    EtcdLock,
    /// From one client's release to the other's lock on etcd, beside the server's own Lock RPC.
    EtcdHandOver,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    // In a task, like what users do: the runtime's own thread would have to be woken for each reply.
    tokio::spawn(run(args)).await.expect("no scenario panics");
}

async fn run(args: Args) {
    let scenarios = match &args.scenarios[..] {
        [] => Scenario::value_variants(),
        chosen => chosen,
    };
    for scenario in scenarios {
        match scenario {
            Scenario::EtcdLock => etcd::lock(&args).await,
            Scenario::EtcdHandOver => etcd::hand_over(&args).await,
        }
    }
}
