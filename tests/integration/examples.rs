//! The examples run, and print the promised lines.

use std::path::PathBuf;
use std::process::Command;

#[cfg(feature = "mysql")]
use leasehold_testbed::MariaDb;
#[cfg(feature = "postgres")]
use leasehold_testbed::Postgres;
#[cfg(feature = "metrics")]
use leasehold_testbed::until;
use leasehold_testbed::{Etcd, Redis, patiently};

/// Runs an example in memory and on real servers of the stores that are compiled in, and returns each output.
fn run_on_all_stores(name: &str) -> Vec<String> {
    let mut said = vec![run(name)];
    if cfg!(feature = "redis") {
        let redis = block_on(Redis::start());
        said.push(run_on(name, &patiently(&redis.url())));
    }
    if cfg!(feature = "etcd") {
        let etcd = block_on(Etcd::start());
        said.push(run_on(name, &patiently(&etcd.url())));
    }
    said
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn run(name: &str) -> String {
    run_on(name, "memory:")
}

/// Cargo puts examples next to the folder of tests.
fn path(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.ancestors().nth(2).unwrap().join("examples").join(name)
}

fn run_on(name: &str, url: &str) -> String {
    let program = path(name);
    let output = Command::new(&program).env("LEASEHOLD_BACKEND", url).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let said = String::from_utf8(output.stdout).unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}\n{complaint}");
    said
}

#[test]
fn quickstart() {
    assert!(run("quickstart").contains("3. paid 100 under the lock"));
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_runs_as_the_readme_shows_it() {
    let (_, sample) = include_str!("../../examples/blocking.rs").split_once("fn main()").unwrap();
    assert!(include_str!("../../README.md").contains(sample), "the README shows another program");

    assert!(run("blocking").contains("held with token"));
}

#[cfg(feature = "macros")]
#[test]
fn locked_runs_functions_as_the_readme_shows_them() {
    let (_, example) = include_str!("../../examples/locked.rs").split_once("struct Shop").unwrap();
    let (sample, _) = example.split_once("\n#[tokio::main]").unwrap();
    assert!(include_str!("../../README.md").contains(sample), "the README shows other functions");

    for said in run_on_all_stores("locked") {
        assert!(said.contains("order 42 is settled with token "), "{said}");
        assert!(said.contains("order 42 is held: "), "{said}");
        assert!(said.contains("another one writes the report: None"), "{said}");
        assert!(said.contains("we do: Some(\"the report is written\")"), "{said}");
    }
}

#[cfg(feature = "config")]
#[test]
fn config_hands_out_locks_by_name() {
    let said = run("config");

    assert_eq!(said.matches("writes the report").count(), 1, "{said}");
    assert_eq!(said.matches("skips it").count(), 2, "{said}");
    assert!(said.contains("a third connection has to wait: \"connections\" is held"), "{said}");
    assert!(said.contains("refused: locks.report:*.min_hold: "), "{said}");
}

#[test]
fn custom_backend_passes_the_suite() {
    let said = run("custom_backend");
    let summary = said.lines().find(|line| line.starts_with("table: ")).unwrap();
    assert!(summary.contains(" 0 failed"), "{said}");
}

#[test]
fn fencing_refuses_the_late_holder() {
    assert!(run("fencing").contains("the first holder is refused"));
}

#[cfg(feature = "sqlite")]
#[test]
fn fencing_sqlite_refuses_the_late_holder() {
    assert!(run("fencing_sqlite").contains("the first holder wakes up and is refused"));
}

#[cfg(feature = "postgres")]
#[test]
fn fencing_postgres_refuses_the_late_holder() {
    let server = block_on(Postgres::start());

    let said = run_on("fencing_postgres", &server.url());

    assert!(said.contains("the first holder wakes up and is refused"), "{said}");
}

#[cfg(feature = "mysql")]
#[test]
fn fencing_mysql_refuses_the_late_holder() {
    let server = block_on(MariaDb::start());

    let said = run_on("fencing_mysql", &server.url());

    assert!(said.contains("the first holder wakes up and is refused"), "{said}");
}

#[test]
fn multi_lock_moves_money_and_loses_none() {
    for said in run_on_all_stores("multi_lock") {
        assert!(said.contains("20 transfers later: 800 and 1200"), "{said}");
        assert!(said.contains("neither is kept"), "{said}");
    }
}

#[cfg(feature = "metrics")]
#[test]
fn service_shows_its_metrics() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::Stdio;

    let mut service = Command::new(path("service"));
    let mut service = service.env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let scrape = || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        connection.read_to_string(&mut page).unwrap();
        page
    };

    // The counters exist at 0 from the start.
    let granted = "leasehold_acquires_total{store=\"memory\",kind=\"mutex\",outcome=\"granted\"} ";
    let turns = || {
        let page = scrape();
        let count = page.lines().find_map(|line| line.strip_prefix(granted));
        count.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    block_on(until("workers take turns", async || turns() >= 3));

    service.kill().unwrap();
    service.wait().unwrap();
}

#[test]
fn reentrant() {
    assert_eq!(run("reentrant").lines().filter(|line| line.contains("under token")).count(), 6);
}

#[test]
fn scheduled_job_runs_once() {
    let said = run("scheduled_job");
    assert_eq!(said.lines().filter(|line| line.contains("writes the report")).count(), 1);
}

#[test]
fn election_is_handed_over_and_observed() {
    for said in run_on_all_stores("election") {
        for address in ["10.0.0.1:7000", "10.0.0.2:7000"] {
            assert!(said.contains(&format!("{address} leads, token ")), "{said}");
            assert!(said.contains(&format!("the observer sees {address}")), "{said}");
        }
    }
}

#[test]
fn rw_lock_lets_readers_share_and_writers_be_alone() {
    for said in run_on_all_stores("rw_lock") {
        assert!(said.contains("it reads on, together with others"), "{said}");
        assert!(said.contains("would wait for each other"), "{said}");
    }
}

#[test]
fn semaphore_lets_no_more_than_three_in_at_once() {
    for said in run_on_all_stores("semaphore") {
        // On a busy machine there may have been fewer.
        let most = said.split_once("never more than ").unwrap().1.split_once(" at once").unwrap().0;
        assert!((1..=3).contains(&most.parse::<u32>().unwrap()), "{said}");
        assert!(said.contains("asked back and released; left: 3"), "{said}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn cron_runs_each_job_on_one_machine() {
    use std::process::Stdio;

    let folder = tempfile::tempdir().unwrap();
    // Only one at a time can create the file, on a machine that may stall meanwhile.
    let url = format!("sqlite:{}/locks.db?timeout-ms=10000", folder.path().display());
    let machine = || {
        let mut program = Command::new(path("cron"));
        program.env("LEASEHOLD_BACKEND", &url).env("PERIOD_MS", "200").env("RUNS", "3");
        program.stdout(Stdio::piped()).spawn().unwrap()
    };

    let machines = [machine(), machine(), machine()];

    let mut reports = Vec::new();
    for machine in machines {
        let output = machine.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        let ended = |line: &&str| line.ends_with(": done") || line.contains(": skipped, ");
        assert_eq!(said.lines().filter(ended).count(), 3, "{said}");
        let wrote = said.lines().filter(|line| line.ends_with(": writes the report"));
        reports.extend(wrote.map(ToOwned::to_owned));
    }
    assert!(reports.len() >= 3, "{reports:?}");
    let distinct: std::collections::BTreeSet<_> = reports.iter().collect();
    assert_eq!(distinct.len(), reports.len(), "a run was done twice: {reports:?}");
}

#[cfg(all(feature = "blocking", feature = "sqlite"))]
#[test]
fn web_service_finishes_its_requests_and_releases_its_locks() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::Stdio;

    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db", folder.path().display());
    let mut service = Command::new(path("web_service"));
    service.env("LEASEHOLD_BACKEND", &url).env("LISTEN", "127.0.0.1:0");
    let mut service = service.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(service.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = said.next().unwrap().strip_prefix("http://").unwrap().to_owned();
    let send = |request: &str| {
        let mut connection = TcpStream::connect(&address).unwrap();
        let head = format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        connection
    };
    let answer = |mut connection: TcpStream| {
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };

    let ready = answer(send("GET /ready"));
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");

    let other = leasehold::blocking::connect(&url).unwrap();
    let held = other.mutex("invoice:42").unwrap().lock().unwrap();
    let busy = answer(send("POST /invoices/42/pay"));
    assert!(busy.starts_with("HTTP/1.1 409 "), "{busy}");
    held.release().unwrap();
    let paid = answer(send("POST /invoices/42/pay"));
    assert!(paid.contains("invoice 42 is paid under token "), "{paid}");

    let under_way = send("POST /invoices/7/pay");
    assert!(said.any(|line| line == "paying invoice 7"));
    let pid = service.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let paid = answer(under_way);
    assert!(paid.contains("invoice 7 is paid under token "), "{paid}");
    assert!(service.wait().unwrap().success());
    assert_eq!(said.last().as_deref(), Some("all locks are released"));
}
