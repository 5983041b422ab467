//! Says at the start of a build that the command is for Linux. The compiler would say so in many lines, about functions that are not there.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        println!(
            "cargo::error=the command `leasehold` is for Linux, by whose means it ends processes; the library builds on {system} too"
        );
    }
}
