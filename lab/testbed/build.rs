//! Builds the shim below a server's clock, with the C compiler that links Rust programs, too.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/clock.c");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let folder = env::var("OUT_DIR").expect("cargo says where to build");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "src/clock.c", "-o"])
        .arg(Path::new(&folder).join("clock.so"))
        .status();
    let compiled = compiled.expect("there is a C compiler where Rust programs are linked");
    assert!(compiled.success(), "src/clock.c does not compile");
}
