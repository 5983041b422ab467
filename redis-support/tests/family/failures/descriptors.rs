//! A process without a file descriptor left.

use std::env;
use std::fs::File;
use std::future::ready;
use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::Duration;

use super::*;

/// Names the server to the process that has few descriptors.
const URL: &str = "LEASEHOLD_DESCRIPTORS_URL";

/// A lease that outlasts the time without descriptors, also on a machine that stalls.
const TTL: Duration = Duration::from_secs(9);

/// How long a call waits for an outage to end.
const PATIENCE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn are_used_up_and_calls_fail_in_time_and_no_lease_is_lost() {
    let redis = Redis::start().await;
    let (_, here) = module_path!().split_once("::").unwrap();
    let limited = "ulimit -n 64; exec \"$0\" --exact \"$1\" --nocapture";

    let mut command = Command::new("sh");
    command.args(["-c", limited]).arg(env::current_exe().unwrap());
    command.arg(format!("{here}::are_few")).env(URL, redis.url());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();

    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all went on"), "{said}{complaint}");
}

/// The process that the test above starts.
#[tokio::test]
async fn are_few() {
    let Ok(url) = env::var(URL) else { return };
    // Counted once: the client's connections of a void measurement may still be open when the next one begins.
    let all = free_descriptors().len();
    measure(async || {
        let (stalls, mut operator) = (Stalls::watch(), Operator::connect(&url));
        let options = LockOptions::new().ttl(TTL).outage_wait(PATIENCE);
        let backend = connect(&url).await.unwrap();
        let client = LockClient::builder(backend).options(options).build().unwrap();
        let held = lock(&client, "held").await;

        let mut files = Vec::new();
        until("those of the client's connections are taken, too", || {
            operator.end_connections();
            files.extend(free_descriptors());
            // The operator's connection has the last one.
            ready(files.len() + 1 == all)
        })
        .await;
        let asked_at = Instant::now();
        let error = client.mutex("new").unwrap().lock().await.unwrap_err();
        let took = asked_at.elapsed();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("no file descriptors left"), "{error}");
        assert!(held.is_held());

        drop(files);
        lock(&client, "new").await.release().await.unwrap();
        renewed(&held).await;
        held.release().await.unwrap();
        stalls.in_time("the error", took, PATIENCE + PROMPT)
    })
    .await;
    println!("all went on");
}

/// Takes all descriptors that are free.
fn free_descriptors() -> Vec<File> {
    let mut files = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("Too many open files"), "{error}");
    files
}

/// A connection that is there already.
struct Operator(BufReader<std::net::TcpStream>);

impl Operator {
    fn connect(url: &str) -> Self {
        let address = url.trim_start_matches("redis://");
        Self(BufReader::new(std::net::TcpStream::connect(address).unwrap()))
    }

    /// Ends all other connections.
    fn end_connections(&mut self) {
        self.0.get_mut().write_all(b"CLIENT KILL USER default SKIPME yes\r\n").unwrap();
        let mut reply = String::new();
        self.0.read_line(&mut reply).unwrap();
        assert!(reply.starts_with(':'), "{reply}");
    }
}
