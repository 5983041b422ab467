//! Mistakes of the user, and stores that refuse.

use leasehold_testbed::free_port;

use super::*;

fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env_remove("LEASEHOLD_BACKEND");
    command
}

#[test]
fn a_mistake_is_told_to_the_user() {
    let redis = redis();
    fails(&mut bare(), 64, "Usage");
    fails(bare().args(["run", "--backend", "", "job", "--", "true"]), 64, "LEASEHOLD_BACKEND");
    fails(bare().args(["run", "--backend", "memory:", "job", "--", "true"]), 64, "memory");
    fails(leasehold(&redis).args(["run", "job"]), 64, "COMMAND");
    fails(leasehold(&redis).args(["run", "--", "true"]), 64, "COMMAND");
    fails(leasehold(&redis).args(["run"]), 64, "KEY");
    fails(leasehold(&redis).args(["run", "", "--", "true"]), 64, "empty");
    fails(leasehold(&redis).args(["run", &"x".repeat(513), "--", "true"]), 64, "512");
    fails(&mut run(&redis, &["--ttl", "soon"], "true"), 64, "--ttl");
    fails(&mut run(&redis, &["--ttl", "0s"], "true"), 64, "ttl");
    fails(&mut run(&redis, &["--ttl", "2days"], "true"), 64, "ttl");
    fails(&mut run(&redis, &["--wait", "1s", "--no-wait"], "true"), 64, "--no-wait");
    for url in ["S3CR3T", "ftp://S3CR3T", "redis://:S3CR3T@", "redis://:S3CR3T@h?x=1"] {
        fails(bare().args(["status", "--backend", url, "job"]), 64, "URL");
    }
}

#[test]
fn stores_that_do_not_serve_us_are_said_so() {
    let redis = redis();
    let unserved = format!("redis://:S3CR3T@127.0.0.1:{}", free_port());
    for verb in [&["status"][..], &["release", "--force"], &["run"]] {
        let mut command = bare();
        command.args(verb).args(["--backend", &unserved]);
        match verb {
            ["run"] => command.args(["--no-wait", "job", "--", "true"]),
            _ => command.arg("job"),
        };
        fails(&mut command, 69, "cannot be reached");
    }
    ask(&redis, &["CONFIG", "SET", "requirepass", "S3CR3T"]);
    fails(&mut run(&redis, &[], "true"), 77, "NOAUTH");
    let wrong = format!("redis://:wrong@{}", redis.address());
    fails(bare().args(["status", "--backend", &wrong, "job"]), 77, "WRONGPASS");
}

#[test]
fn help_and_version_are_no_failure() {
    for args in [&["--help"][..], &["--version"], &["run", "--help"], &["help", "status"]] {
        let output = bare().args(args).env("LEASEHOLD_BACKEND", "redis://:S3CR3T@h").output();
        let output = output.unwrap();
        assert_eq!(code(&output), 0, "{args:?}");
        assert!(!text(&output.stdout).contains("S3CR3T"));
    }
}
