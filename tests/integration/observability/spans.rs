//! Spans around the work of users.

use leasehold::LockClient;
use leasehold::memory::MemoryBackend;

use super::capture::Capture;

#[tokio::test(start_paused = true)]
async fn of_a_hold_give_the_token_to_the_logs_of_the_work() {
    let (capture, _guard) = Capture::install();
    let client = LockClient::new(MemoryBackend::new());

    let work = async |_: &_| tracing::info!(name: "work", "done");
    client.mutex("job").unwrap().run(work).await.unwrap();

    let lines = capture.lines();
    let line = lines.iter().find(|line| line.contains("work message")).unwrap();
    assert_eq!(line, "leasehold.hold key=job kind=mutex token=1: work message=done");
}

#[tokio::test(start_paused = true)]
async fn of_several_holds_give_every_token() {
    let (capture, _guard) = Capture::install();
    let client = LockClient::new(MemoryBackend::new());
    let several = client.multi_lock().mutexes(["a", "b"]).unwrap();

    several.run(async |_| tracing::info!(name: "work", "done")).await.unwrap();

    let lines = capture.lines();
    let line = lines.iter().find(|line| line.contains("work message")).unwrap();
    let (a, b) =
        ("leasehold.hold key=a kind=mutex token=", "leasehold.hold key=b kind=mutex token=");
    assert!(line.starts_with(a) && line.contains(&format!(": {b}")), "{line}");
}

#[tokio::test(start_paused = true)]
async fn of_a_call_are_around_its_events() {
    let (capture, _guard) = Capture::install();
    let client = LockClient::new(MemoryBackend::new());

    drop(client.mutex("job").unwrap().lock().await.unwrap());

    let around = "leasehold.acquire key=job kind=mutex: leasehold.acquired ";
    assert!(capture.lines().iter().any(|line| line.starts_with(around)), "{:?}", capture.lines());
}
