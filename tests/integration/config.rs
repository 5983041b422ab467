//! Locks by name, from a configuration.

use std::time::Duration;

use leasehold::config::{Config, Kind, LockService, Profile};
use leasehold::retry::Retry;
use leasehold::{ErrorKind, LockClient, LockOptions, TryLockError};

fn read(text: &str) -> Result<Config, leasehold::Error> {
    Config::read(toml::Deserializer::parse(text).unwrap())
}

async fn service(text: &str) -> Result<LockService, leasehold::Error> {
    LockService::connect(read(text)?).await
}

async fn refusal(text: &str) -> String {
    let error = service(text).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error.to_string()
}

const SETTINGS: &str = r#"
    url = "memory:"

    [defaults]
    ttl = "10s"
    wait = "10ms"

    [locks."report:*"]
    ttl = "1m 30s"
    min_hold = "1h"
    attempts = 3
    every = "200ms"

    [locks."report:*:daily"]
    fair = true

    [locks."report:eu:daily"]
    kind = "rw-lock"

    [locks.connections]
    kind = "semaphore"
    limit = 2

    [locks.nested]
    kind = "reentrant-mutex"
"#;

#[test]
fn profiles_become_options() {
    let config = read(SETTINGS).unwrap();
    let expected = LockOptions::new()
        .ttl(Duration::from_secs(90))
        .min_hold(Duration::from_secs(3_600))
        .retry(Retry::attempts(3).every(Duration::from_millis(200)));

    assert_eq!(config.locks["report:*"].options(), expected);
    assert_eq!(Profile::default().options(), LockOptions::new());
}

#[tokio::test]
async fn the_closest_pattern_counts_and_the_defaults_fill_it_up() {
    let locks = service(SETTINGS).await.unwrap();

    // Held for an hour after the release, by its profile.
    locks.run("report:us", async |_| ()).await.unwrap();
    assert!(matches!(locks.try_lock("report:us").await, Err(TryLockError::Busy(_))));
    // Its profile says nothing of that.
    locks.run("report:us:daily", async |_| ()).await.unwrap();
    locks.run("report:us:daily", async |_| ()).await.unwrap();
    locks.rw_lock("report:eu:daily").unwrap();

    let held = locks.lock("anything").await.unwrap();
    assert!(held.remaining() <= Duration::from_secs(10), "{:?}", held.remaining());
    let error = locks.lock("anything").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn each_kind_is_taken_by_its_name() {
    let locks = service(SETTINGS).await.unwrap();

    let both = [locks.lock("connections").await.unwrap(), locks.lock("connections").await.unwrap()];
    assert!(matches!(locks.try_run("connections", async |_| ()).await, Err(TryLockError::Busy(_))));
    drop(both);
    let nested = locks.run("nested", async |_| locks.run("nested", async |_| 7).await);
    assert_eq!(nested.await.unwrap().unwrap(), 7);
    let writer = locks.lock("report:eu:daily").await.unwrap();
    assert!(matches!(
        locks.rw_lock("report:eu:daily").unwrap().try_read().await,
        Err(TryLockError::Busy(_))
    ));
    drop(writer);

    assert_eq!(locks.semaphore("connections").unwrap().limit(), 2);
    locks.reentrant_mutex("nested").unwrap();
    let error = locks.mutex("connections").unwrap_err().to_string();
    assert!(error.starts_with("locks.connections: ") && error.contains("Semaphore"), "{error}");
    assert_eq!(locks.lock("").await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn mistakes_are_refused_with_the_path_of_the_field() {
    for (setting, path) in [
        ("[locks.a]\nttl = 30", "locks.a.ttl: "),
        ("[locks.a]\nttl = \"30\"", "locks.a.ttl: "),
        ("[locks.a]\ntll = \"30s\"", "locks.a.tll: "),
        ("[locks.a]\nkind = \"sempahore\"", "locks.a.kind: "),
        ("[locks.a]\nkind = \"semaphore\"", "locks.a.limit: "),
        ("[locks.a]\nttl = \"5ms\"", "locks.a.ttl is too short: "),
        (
            "[locks.\"a:*\"]\nmin_hold = \"2s\"\nmax_hold = \"1s\"",
            "locks.a:*.min_hold is longer than max_hold: ",
        ),
        ("[locks.a]\nloss_grace = \"29s\"", "locks.a.loss_grace is too long: "),
        ("[locks.a]\nevery = \"0s\"", "locks.a.every is invalid: "),
        ("[defaults]\nttl = \"5ms\"", "defaults.ttl is too short: "),
        ("[default]", "default: "),
    ] {
        let error = refusal(&format!("url = \"memory:\"\n{setting}")).await;
        assert!(error.starts_with(path), "{setting}: {error}");
    }
    assert!(refusal("").await.contains("url"));
}

#[tokio::test]
async fn a_service_may_start_before_its_store() {
    let unserved = "url = \"redis://:S3CR3T@127.0.0.1:1\"";
    let eager = service(unserved).await.unwrap_err();
    if cfg!(feature = "redis") {
        assert_eq!(eager.kind(), ErrorKind::Unavailable);
        let lazy = service(&format!("{unserved}\nlazy = true")).await.unwrap();
        let error = lazy.client().ping(Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!format!("{lazy:?}").contains("S3CR3T"));
    }
}

#[tokio::test]
async fn a_client_that_there_is_serves_too() {
    let client: LockClient = leasehold::connect("memory:").await.unwrap();
    let mut config = Config::new("unused:");
    let mut semaphore = Profile::default();
    (semaphore.kind, semaphore.limit) = (Some(Kind::Semaphore), Some(1));
    config.locks.insert("s".to_owned(), semaphore);
    let locks = LockService::over(client.clone(), config).unwrap();

    let _held = locks.lock("s").await.unwrap();

    assert_eq!(client.semaphore("s", 1).unwrap().available().await.unwrap(), 0);
}
