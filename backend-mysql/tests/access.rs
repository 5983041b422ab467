//! Users, passwords, rights and TLS.

use std::time::Duration;

use leasehold_core::{
    Claim, Error, ErrorKind, Lease, LockBackend, LockClient, LockKey, Patience, Share,
};
use leasehold_mysql::{MysqlBackend, MysqlConfig};
use leasehold_testbed::{MariaDb, MariaDbOptions};

const SECRET: &str = "S3CR3T-CANARY";

const TTL: Duration = Duration::from_secs(60);

const RIGHTS: &str = include_str!("rights.sql");

/// A server with the user of the documentation.
async fn with_user(options: MariaDbOptions) -> MariaDb {
    let mariadb = options.start().await;
    mariadb.sql(&format!("CREATE USER locker IDENTIFIED BY '{SECRET}'")).await;
    mariadb
}

async fn with_tables() -> MariaDb {
    let mariadb = with_user(MariaDbOptions::new()).await;
    let config = MysqlConfig::from_url(&mariadb.url()).unwrap();
    mariadb.sql(&config.migration()).await;
    mariadb
}

fn url(mariadb: &MariaDb, more: &str) -> String {
    format!("{}?timeout-ms=15000{more}", mariadb.url_as(&format!("locker:{SECRET}")))
}

async fn refusal(url: &str) -> Error {
    let error = MysqlBackend::connect(url).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    error
}

async fn all_operations(backend: &MysqlBackend) -> Result<(), Error> {
    let lease = |name: &str| Lease::new(&LockKey::new(name).unwrap(), TTL);
    for share in [Share::Whole, Share::Units { units: 1, limit: 1 }] {
        let held = lease("job").with_share(share);
        let waits = Claim::new(lease("job").with_share(share)).with_patience(Patience::Queues(TTL));
        backend.try_acquire(&Claim::new(held.clone())).await?;
        backend.try_acquire(&waits).await?;
        backend.renew(&held).await?;
        backend.inspect(held.key()).await?;
        backend.request_revocation(held.key()).await?;
        backend.release(&held).await?;
        backend.try_acquire(&waits).await?;
        backend.force_release(held.key()).await?;
    }
    let together = ["a", "b"].map(|name| Claim::new(lease(name)));
    backend.try_acquire_all(&together).await?;
    Ok(())
}

#[tokio::test]
async fn documented_rights_suffice_and_each_is_needed() {
    let mariadb = with_tables().await;
    mariadb.sql(RIGHTS).await;
    let backend = MysqlBackend::connect(&url(&mariadb, "")).await.unwrap();
    all_operations(&backend).await.unwrap();

    for (right, table) in [
        ("SELECT", "leasehold_stripe"),
        ("UPDATE", "leasehold_stripe"),
        ("SELECT", "leasehold_lease"),
        ("INSERT", "leasehold_lease"),
        ("UPDATE", "leasehold_lease"),
        ("DELETE", "leasehold_lease"),
    ] {
        mariadb.sql(&format!("REVOKE {right} ON {table} FROM locker")).await;
        let late = all_operations(&backend).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Denied, "{right} on {table}: {late}");
        let early = refusal(&url(&mariadb, "")).await;
        assert_eq!(early.kind(), ErrorKind::Denied, "{right} on {table}: {early}");
        mariadb.sql(&format!("GRANT {right} ON {table} TO locker")).await;
    }
}

#[tokio::test]
async fn tables_are_made_where_they_may_be() {
    let mariadb = with_user(MariaDbOptions::new()).await;
    mariadb.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.* TO locker").await;

    let error = refusal(&url(&mariadb, "")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let error = refusal(&url(&mariadb, "&tables=exist")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("run the migration"), "{error}");

    mariadb.sql("CREATE DATABASE app; GRANT ALL ON app.* TO locker").await;
    let url = url(&mariadb, "&schema=app&prefix=my_");
    let both = tokio::join!(MysqlBackend::connect(&url), MysqlBackend::connect(&url));
    all_operations(&both.0.unwrap()).await.unwrap();
    all_operations(&both.1.unwrap()).await.unwrap();
    assert_eq!(mariadb.sql("SELECT COUNT(*) FROM app.my_stripe").await, "256");
}

#[tokio::test]
async fn wrong_passwords_are_denied_and_none_is_shown() {
    let mariadb = with_tables().await;
    mariadb.sql(RIGHTS).await;
    let wrong = mariadb.url_as(&format!("locker:{SECRET}-not"));
    assert_eq!(refusal(&wrong).await.kind(), ErrorKind::Denied);
    assert_eq!(refusal(&mariadb.url_as("locker")).await.kind(), ErrorKind::Denied);
    let nowhere = format!("mysql://locker:{SECRET}@127.0.0.1:{}/x", leasehold_testbed::free_port());
    assert_eq!(refusal(&nowhere).await.kind(), ErrorKind::Unavailable);

    let backend = MysqlBackend::connect(&url(&mariadb, "")).await.unwrap();
    let shown = format!("{backend:?} {:?}", MysqlConfig::from_url(&url(&mariadb, "")).unwrap());
    assert!(!shown.contains(SECRET), "{shown}");
    let key = LockKey::new("job").unwrap();
    let guard = LockClient::new(backend).mutex(&key).unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_needs_trust_on_both_sides() {
    let mariadb = with_user(MariaDbOptions::new().tls()).await;
    mariadb.sql("ALTER USER locker REQUIRE X509; GRANT ALL ON leasehold.* TO locker").await;
    let files = mariadb.certificates();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = leasehold_testbed::Certificates::create(elsewhere.path(), &["localhost"]);
    let [root, cert, key] = [files.authority(), files.client_certificate(), files.client_key()];
    let at = |host: &str, mode: &str, root: &std::path::Path, client: bool| {
        let address = format!("{host}:{}", mariadb.port());
        let mut url = mariadb.url_at(&format!("locker:{SECRET}"), &address);
        url += &format!("?timeout-ms=15000&ssl-mode={mode}");
        if mode != "disabled" {
            url += &format!("&ssl-ca={}", root.display());
        }
        if client {
            url += &format!("&ssl-cert={}&ssl-key={}", cert.display(), key.display());
        }
        url
    };

    let backend = MysqlBackend::connect(&at("localhost", "verify_identity", &root, true)).await;
    all_operations(&backend.unwrap()).await.unwrap();
    for url in [
        at("localhost", "verify_identity", &root, false),
        at("localhost", "required", &other.authority(), true),
        at("localhost", "disabled", &root, false),
    ] {
        let error = refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }
}
