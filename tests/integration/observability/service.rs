//! The example, as Prometheus sees it.

#[path = "../../../examples/service.rs"]
#[expect(dead_code, reason = "the test has a main function of its own")]
mod example;

use std::collections::{BTreeMap, BTreeSet};

use leasehold::LockClient;
use leasehold::memory::MemoryBackend;
use leasehold::observe::Metrics;
use leasehold_testbed::{MariaDb, patiently, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{rows, scenario, set};

/// Asks for the page once.
async fn scrape(address: std::net::SocketAddr) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    page.to_owned()
}

/// The metrics of a page by name, each with its type and the labels of all its series.
fn metrics(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut metrics = BTreeMap::new();
    let mut name = String::new();
    for line in page.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (of, kind) = declared.split_once(' ').unwrap();
            name = of.to_owned();
            metrics.insert(name.clone(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((series, _)) = line.split_once('}')
            && !line.starts_with('#')
        {
            assert!(series.starts_with(&name), "{line} follows {name}");
            let (_, labels) = series.split_once('{').unwrap();
            let names = labels.split(',').filter_map(|label| label.split('=').next());
            let known: &mut BTreeSet<String> = &mut metrics.get_mut(&name).unwrap().1;
            known.extend(names.filter(|label| *label != "le").map(str::to_owned));
        }
    }
    metrics
}

#[tokio::test(start_paused = true)]
async fn shows_every_documented_metric_and_no_other() {
    let recorder = example::prometheus().unwrap().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(example::serve(listener, recorder.handle()));

    scenario::run(Metrics::new().with_key_label()).await;
    scenario::batcher().submit(()).unwrap().reply().await.unwrap();
    let page = scrape(address).await;
    server.abort();

    let of_page = rows("Metrics").into_iter();
    let documented = of_page.map(|row| (row[0].clone(), (row[1].clone(), set(&row[3])))).collect();
    assert_eq!(self::metrics(&page), documented);
    // Nothing waits any more, and lost or released leases are not held.
    for gauge in ["leasehold_waiting", "leasehold_held"] {
        let series = format!("{gauge}{{store=\"memory\",key=\"job\",kind=\"mutex\"}} 0\n");
        assert!(page.contains(&series), "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn shows_the_queue_and_the_batches() {
    let recorder = example::prometheus().unwrap().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let page = || recorder.handle().render();
    let assert_shown = |series: &str, value: u32| {
        let line = format!("leasehold_{series}{{store=\"memory\"}} {value}\n");
        assert!(page().contains(&line), "{}", page());
    };
    let batcher = scenario::batcher();

    let queued = [(); 3].map(|()| batcher.submit(()).unwrap());
    assert_shown("queued_requests", 3);
    let [withdrawn, sent @ ..] = queued;
    drop(withdrawn);
    for request in sent {
        request.reply().await.unwrap();
    }

    assert_shown("queued_requests", 0);
    assert_shown("batches_total", 1);
    assert_shown("queue_duration_seconds_count", 2);
}

#[tokio::test]
async fn shows_the_polls_of_waiting_calls() {
    let recorder = example::prometheus().unwrap().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let polls = || -> u32 {
        let page = recorder.handle().render();
        let count = page.lines().find_map(|line| {
            line.strip_prefix("leasehold_polls_total{store=\"mysql\"} ")?.parse().ok()
        });
        count.unwrap_or(0)
    };
    let server = MariaDb::start().await;
    let url = patiently(&server.url());
    let holder = leasehold::connect(&url).await.unwrap();
    let waiter = leasehold::connect(&url).await.unwrap();
    let held = holder.mutex("job").unwrap().lock().await.unwrap();
    assert_eq!(polls(), 0);

    let mutex = waiter.mutex("job").unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap().release().await });
    until("the waiter has polled", async || polls() >= 3).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();

    let after = polls();
    holder.mutex("job").unwrap().lock().await.unwrap().release().await.unwrap();
    assert_eq!(polls(), after);
}

#[tokio::test(start_paused = true)]
async fn has_no_keys_in_labels_unless_they_are_asked_for() {
    let recorder = example::prometheus().unwrap().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);

    scenario::run(Metrics::new()).await;

    let page = recorder.handle().render();
    assert!(page.contains("leasehold_held{"), "{page}");
    assert!(!page.contains("key="), "{page}");
}

/// The series of all counters of a page, with their values.
fn counters(page: &str) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        if series.contains("_total{") {
            counters.insert(series.to_owned(), value.parse().unwrap());
        }
    }
    counters
}

// An alert on the increase of a counter misses the event with which the counter appears.
#[tokio::test(start_paused = true)]
async fn counters_exist_before_their_first_event() {
    let recorder = example::prometheus().unwrap().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let builder = LockClient::builder(MemoryBackend::new()).observer(Metrics::new());
    let client = builder.build().unwrap();

    let before = counters(&recorder.handle().render());
    scenario::run(Metrics::new()).await;
    let after = counters(&recorder.handle().render());

    assert!(before.values().all(|value| *value == 0.0), "{before:?}");
    let (before, after): (BTreeSet<_>, BTreeSet<_>) =
        (before.keys().collect(), after.keys().collect());
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), Vec::<&&String>::new());
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn counters_of_a_key_exist_from_its_first_grant() {
    let recorder = example::prometheus().unwrap().build_recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let metrics = Metrics::new().with_key_label();
    let builder = LockClient::builder(MemoryBackend::new()).observer(metrics);
    let client = builder.build().unwrap();

    let guard = client.mutex("job").unwrap().lock().await.unwrap();

    let counters = counters(&recorder.handle().render());
    let lost =
        "leasehold_lost_total{store=\"memory\",key=\"job\",kind=\"mutex\",reason=\"vanished\"}";
    assert_eq!(counters.get(lost), Some(&0.0), "{counters:?}");
    drop(guard);
}
