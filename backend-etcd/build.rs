//! Reports a missing `protoc` at the start of a build. The `etcd-client` crate would report it only
//! after a minute, with a message from another crate.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=PROTOC");
    println!("cargo::rerun-if-env-changed=PATH");
    // The `etcd-client` crate checks a path that the user has set.
    if env::var_os("PROTOC").is_some() || Command::new("protoc").arg("--version").output().is_ok() {
        return;
    }
    println!(
        "cargo::error=the `etcd` feature requires protoc at build time; run `apt-get install protobuf-compiler libprotobuf-dev`, or set PROTOC to the path of protoc"
    );
}
