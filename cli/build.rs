//! Reports at the start of a build that the command supports only Linux. The errors of the compiler about missing functions would be less clear.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        println!(
            "cargo::error=the command `leasehold` supports only Linux; the library also builds on {system}"
        );
    }
}
