//! Copies of a process: of a snapshot of its machine, which the process cannot notice, and of a fork. And runtimes that lack a part.
//!
//! The program runs itself as the process that is copied, because a test process has threads that a copy would not have.

mod forks;
mod machines;
mod runtimes;
mod stores;

use std::env;
use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, machines::ROLE, url, store] => machines::run_twice(url, store),
        [_, forks::ROLE, url] => forks::run(url),
        _ => {
            let trials = [machines::trials(), forks::trials(), runtimes::trials()];
            let trials = trials.into_iter().flatten().collect();
            return libtest_mimic::run(&Arguments::from_args(), trials).exit_code();
        }
    }
    ExitCode::SUCCESS
}
