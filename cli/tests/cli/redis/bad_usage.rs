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
fn url_without_its_option_is_refused_with_the_option() {
    for verb in ["doctor", "acl", "tables", "verify"] {
        for url in ["redis://:S3CR3T@h", "sqlite:x.db"] {
            fails(bare().args([verb, url]), 64, "name the store with --backend");
        }
        fails(bare().args([verb, "job"]), 64, "unexpected argument 'job'");
    }
}

#[test]
fn password_in_the_url_of_a_file_or_a_socket_is_not_shown() {
    let folder = leasehold_testbed::Folder::in_memory("password-");
    for (url, says) in [
        ("sqlite://u:S3CR3T@host/x.db", "a lock file has no user, password or host"),
        ("unix://u:S3CR3T@/tmp/x", "?user=NAME&pass=PASSWORD"),
        ("redis-sentinel://u:1/S3CR3T@host", "write %2F for a / in a password"),
    ] {
        let named = |command: &mut Command| {
            command.current_dir(folder.path());
            fails(command, 64, says);
        };
        named(bare().args(["run", "--backend", url, "job", "true"]));
        named(bare().env("LEASEHOLD_BACKEND", url).args(["run", "job", "true"]));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no directory is created");
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
        fails(&mut command, 69, "connection refused");
    }
    ask(&redis, &["CONFIG", "SET", "requirepass", "S3CR3T"]);
    fails(&mut run(&redis, &[], "true"), 77, "NOAUTH");
    let wrong = format!("redis://:wrong@{}", redis.address());
    fails(bare().args(["status", "--backend", &wrong, "job"]), 77, "WRONGPASS");
}

#[test]
fn servers_that_cannot_be_reached_are_named_with_the_cause() {
    let port = free_port();
    let refused = format!("127.0.0.1:{port}: connection refused");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    for (url, says) in [
        (format!("redis://127.0.0.1:{port}"), refused.as_str()),
        (format!("redis://127.0.0.1:{port}?client=fred"), &refused),
        (format!("etcd://127.0.0.1:{port}"), &refused),
        ("redis://nohost.invalid".to_owned(), "nohost.invalid:6379: no such host"),
        ("redis://nohost.invalid?client=fred".to_owned(), "nohost.invalid:6379: no such host"),
        ("etcd://nohost.invalid".to_owned(), "nohost.invalid:2379: no such host"),
        (format!("zookeeper://127.0.0.1:{port}"), &refused),
        ("zookeeper://nohost.invalid".to_owned(), "nohost.invalid:2181: no such host"),
        ("unix:///no/such/socket".to_owned(), "/no/such/socket: no such socket"),
        (format!("rediss://{silent}?timeout-ms=100"), "check that the server supports TLS"),
    ] {
        // A look-up on a busy machine takes longer than the usual limit.
        let url = leasehold_testbed::patiently(&url);
        let output = bare().args(["status", "--backend", &url, "job"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(code(&output), 69, "{url}: {said}");
        assert!(said.contains(says), "{url}: {said}");
        for debug in ["Os {", "kind:", "source:"] {
            assert!(!said.contains(debug), "{url}: {said}");
        }
        assert!(said.matches("refused").count() <= 1, "{url}: {said}");
    }
}

#[test]
fn servers_of_another_kind_are_said_so() {
    let redis = redis();
    let (plain, etcd) = (redis.address(), block_on(leasehold_testbed::Etcd::start()));
    let etcd = etcd.url().replace("etcd://", "redis://");
    let sentinel = format!("redis-sentinel://{plain}/master");
    for (url, exit, says) in
        [(etcd, 69, "check that it is Redis"), (sentinel, 64, "this server is not a sentinel")]
    {
        fails(bare().args(["status", "--backend", &url, "job"]), exit, says);
    }
    fails(
        bare().args(["status", "--backend", &plain, "job"]),
        64,
        &format!("did you mean redis://{plain}?"),
    );
    ask(&redis, &["LPUSH", "lock:job", "x"]);
    fails(&mut run(&redis, &["--no-wait"], "true"), 65, "the key contains data that is not a lock");
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
