//! Users, passwords, rights and TLS.

use std::time::Duration;

use leasehold_core::{
    Claim, Error, ErrorKind, Lease, LockBackend, LockClient, LockKey, Patience, Share,
};
use leasehold_postgres::{PostgresBackend, PostgresConfig};
use leasehold_testbed::{Postgres, PostgresOptions};

const SECRET: &str = "S3CR3T-CANARY";

const TTL: Duration = Duration::from_secs(60);

const RIGHTS: &str = include_str!("rights.sql");

/// A server that asks for passwords, with the user of the documentation.
async fn with_user(options: PostgresOptions) -> Postgres {
    let postgres = options.passwords().start().await;
    postgres.sql(&format!("CREATE ROLE locker LOGIN PASSWORD '{SECRET}'")).await;
    postgres
}

async fn with_tables() -> Postgres {
    let postgres = with_user(PostgresOptions::new()).await;
    let config = PostgresConfig::from_url(&postgres.url()).unwrap();
    postgres.sql(&config.migration()).await;
    postgres
}

fn url(postgres: &Postgres, more: &str) -> String {
    format!("{}?timeout-ms=15000{more}", postgres.url_as(&format!("locker:{SECRET}")))
}

async fn refusal(url: &str) -> Error {
    let error = PostgresBackend::connect(url).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    error
}

async fn all_operations(backend: &PostgresBackend) -> Result<(), Error> {
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
    let postgres = with_tables().await;
    postgres.sql(RIGHTS).await;
    let backend = PostgresBackend::connect(&url(&postgres, "")).await.unwrap();
    all_operations(&backend).await.unwrap();

    for (right, table) in [
        ("SELECT", "leasehold_stripe"),
        ("UPDATE", "leasehold_stripe"),
        ("SELECT", "leasehold_lease"),
        ("INSERT", "leasehold_lease"),
        ("UPDATE", "leasehold_lease"),
        ("DELETE", "leasehold_lease"),
    ] {
        postgres.sql(&format!("REVOKE {right} ON {table} FROM locker")).await;
        let late = all_operations(&backend).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Denied, "{right} on {table}: {late}");
        let early = refusal(&url(&postgres, "")).await;
        assert_eq!(early.kind(), ErrorKind::Denied, "{right} on {table}: {early}");
        postgres.sql(&format!("GRANT {right} ON {table} TO locker")).await;
    }
    postgres.sql("REVOKE USAGE ON SCHEMA public FROM PUBLIC, locker").await;
    assert_eq!(all_operations(&backend).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn tables_are_made_where_they_may_be() {
    let postgres = with_user(PostgresOptions::new()).await;

    let error = refusal(&url(&postgres, "")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let error = refusal(&url(&postgres, "&tables=exist")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("run the migration"), "{error}");

    postgres.sql("CREATE SCHEMA app AUTHORIZATION locker").await;
    let url = url(&postgres, "&schema=app&prefix=my_");
    let both = tokio::join!(PostgresBackend::connect(&url), PostgresBackend::connect(&url));
    all_operations(&both.0.unwrap()).await.unwrap();
    all_operations(&both.1.unwrap()).await.unwrap();
    assert_eq!(postgres.sql("SELECT count(*) FROM app.my_stripe").await, "256");
}

#[tokio::test]
async fn wrong_passwords_are_denied_and_none_is_shown() {
    let postgres = with_tables().await;
    postgres.sql(RIGHTS).await;
    for user in [format!("locker:{SECRET}-not"), "locker".to_owned()] {
        let wrong = format!("{}?timeout-ms=15000", postgres.url_as(&user));
        assert_eq!(refusal(&wrong).await.kind(), ErrorKind::Denied);
    }
    let nowhere =
        format!("postgres://locker:{SECRET}@127.0.0.1:{}/x", leasehold_testbed::free_port());
    assert_eq!(refusal(&nowhere).await.kind(), ErrorKind::Unavailable);

    let backend = PostgresBackend::connect(&url(&postgres, "")).await.unwrap();
    let shown = format!("{backend:?} {:?}", PostgresConfig::from_url(&url(&postgres, "")).unwrap());
    assert!(!shown.contains(SECRET), "{shown}");
    let key = LockKey::new("job").unwrap();
    let guard = LockClient::new(backend).mutex(&key).unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_needs_trust_on_both_sides() {
    let postgres = with_user(PostgresOptions::new().tls_with_client_certificates()).await;
    postgres.sql("GRANT CREATE ON SCHEMA public TO locker").await;
    let files = postgres.certificates();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = leasehold_testbed::Certificates::create(elsewhere.path(), &["localhost"]);
    let [root, cert, key] = [files.authority(), files.client_certificate(), files.client_key()];
    let at = |host: &str, mode: &str, root: &std::path::Path, client: bool| {
        let address = format!("{host}:{}", postgres.port());
        let mut url = postgres.url_at(&format!("locker:{SECRET}"), &address);
        url += &format!("?timeout-ms=15000&sslmode={mode}");
        if mode != "disable" {
            url += &format!("&sslrootcert={}", root.display());
        }
        if client {
            url += &format!("&sslcert={}&sslkey={}", cert.display(), key.display());
        }
        url
    };

    let backend = PostgresBackend::connect(&at("localhost", "verify-full", &root, true)).await;
    all_operations(&backend.unwrap()).await.unwrap();
    for url in [
        at("localhost", "verify-full", &root, false),
        at("localhost", "require", &other.authority(), true),
        at("localhost", "disable", &root, false),
    ] {
        let error = refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }
}
