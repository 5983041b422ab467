//! Users, passwords, permissions and TLS.

use leasehold_core::backend::{
    Claim, JoinRequest, LockBackend, Member as _, Mode, Patience, StoreAdmin as _, StoreId, Vote,
};
use leasehold_core::{Error, ErrorKind, LockClient};
use leasehold_testbed::{free_port, patiently};

use super::membership::configuration;
use super::{TTL, lease};
use crate::{Backend, Config, Options, RIGHTS, Server};

/// The page of the store.
const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"));

const SECRET: &str = "S3CR3T-CANARY";

/// Starts a server with the user from the documentation.
async fn with_user(options: Options) -> Server {
    let server = options.start().await;
    server.sql(&crate::create_user(SECRET)).await;
    server
}

async fn with_tables() -> Server {
    let server = with_user(crate::asking_for_passwords()).await;
    let config = Config::from_url(&server.url()).unwrap();
    server.sql(&format!("{} {RIGHTS}", config.migration())).await;
    server
}

async fn refusal(url: &str) -> Error {
    let error = Backend::connect(&patiently(url)).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    error
}

/// Runs all operations on keys that nobody has used before.
async fn all_operations(backend: &Backend) -> Result<(), Error> {
    let round: u64 = fastrand::u64(..);
    let lease = |name: &str| lease(&format!("{name} {round}"));
    for (name, mode) in [("job", Mode::Exclusive), ("pool", Mode::Units { units: 1, limit: 1 })] {
        let held = lease(name).with_mode(mode);
        let waits = Claim::new(lease(name).with_mode(mode)).with_patience(Patience::Queues(TTL));
        backend.acquire(&Claim::new(held.clone())).await?;
        backend.acquire(&waits).await?;
        backend.renew(&held).await?;
        backend.inspect(held.key()).await?;
        backend.request_revocation(held.key(), None).await?;
        backend.release(&held).await?;
        backend.acquire(&waits).await?;
        backend.force_release(held.key(), None).await?;
    }
    let together = ["a", "b"].map(|name| Claim::new(lease(name)));
    backend.acquire_all(&together).await?;
    let store = backend.status(StoreId::new()).await?.store();
    backend.join(&JoinRequest::new(store, configuration()).with_min_token(1)).await?;
    let of_member = lease("of member");
    let claim = Claim::new(of_member.clone());
    backend.vote(&Vote::new(claim, configuration()).with_requested_token(1)).await?;
    backend.raise(&of_member, 1).await?;
    backend.release(&of_member).await?;
    Ok(())
}

#[tokio::test]
async fn documented_permissions_are_sufficient_and_necessary() {
    assert!(PAGE.contains(RIGHTS), "{RIGHTS}");
    let server = with_tables().await;
    let url = server.url_as(&format!("locker:{SECRET}"));
    let backend = super::connect(&url).await;
    all_operations(&backend).await.unwrap();

    for (right, table) in [
        ("SELECT", "leasehold_key"),
        ("INSERT", "leasehold_key"),
        ("UPDATE", "leasehold_key"),
        ("DELETE", "leasehold_key"),
        ("SELECT", "leasehold_min_token"),
        ("UPDATE", "leasehold_min_token"),
        ("SELECT", "leasehold_member"),
        ("UPDATE", "leasehold_member"),
    ] {
        server.sql(&format!("REVOKE {right} ON {table} FROM locker")).await;
        // Only the purge deletes rows, and the purge has no caller.
        if right != "DELETE" {
            let late = all_operations(&backend).await.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Denied, "{right} on {table}: {late}");
        }
        let early = refusal(&url).await;
        assert_eq!(early.kind(), ErrorKind::Denied, "{right} on {table}: {early}");
        server.sql(&format!("GRANT {right} ON {table} TO locker")).await;
    }
    for revocation in crate::MORE_REVOCATIONS {
        server.sql(revocation).await;
        assert_eq!(all_operations(&backend).await.unwrap_err().kind(), ErrorKind::Denied);
    }
}

#[tokio::test]
async fn tables_are_created_if_permitted() {
    let server = with_user(crate::asking_for_passwords()).await;
    for grant in crate::LET_IN {
        server.sql(grant).await;
    }
    let url = server.url_as(&format!("locker:{SECRET}"));

    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let error = refusal(&format!("{url}?tables=exist")).await;
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("leasehold tables"), "{error}");

    server.sql(crate::CREATE_SCHEMA).await;
    let url = format!("{url}?schema=app&prefix=my_");
    let both = tokio::join!(super::connect(&url), super::connect(&url));
    all_operations(&both.0).await.unwrap();
    all_operations(&both.1).await.unwrap();
    assert_eq!(server.sql("SELECT count(*) FROM app.my_member").await, "1");
}

#[tokio::test]
async fn wrong_passwords_are_denied_and_not_shown() {
    let server = with_tables().await;
    let name = Backend::connect("").await.unwrap_err().backend().unwrap();
    for user in [format!("locker:{SECRET}-not"), "locker".to_owned()] {
        assert_eq!(refusal(&server.url_as(&user)).await.kind(), ErrorKind::Denied);
    }
    let error = refusal(&server.url_as(&format!("locker:{SECRET}-not"))).await;
    let said = format!("cannot connect to {name}: {}: wrong user or password", server.address());
    assert_eq!(error.to_string(), said);
    let user = format!("locker:{SECRET}");
    for (address, reason) in [
        (format!("127.0.0.1:{}", free_port()), "connection refused"),
        ("no-such-host.invalid:1".to_owned(), "no such host"),
    ] {
        let error = refusal(&server.url_at(&user, &address)).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(error.to_string(), format!("cannot connect to {name}: {address}: {reason}"));
    }

    let url = server.url_as(&user);
    let backend = super::connect(&url).await;
    let shown = format!("{backend:?} {:?}", Config::from_url(&url).unwrap());
    assert!(!shown.contains(SECRET) && !shown.contains("locker"), "{shown}");
    let guard = LockClient::new(backend).mutex("job").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_requires_trust_on_both_sides() {
    let server = with_user(crate::asking_for_certificates()).await;
    server.sql(crate::NEED_CERTIFICATE).await;
    let files = server.certificates();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = leasehold_testbed::Certificates::create(elsewhere.path(), &["localhost"]);
    let [root, cert, key] = [files.authority(), files.client_certificate(), files.client_key()];
    let [mode, root_file, cert_file, key_file] = crate::TLS_PARAMETERS;
    let [disabled, required, verified] = crate::TLS_MODES;
    let at = |value: &str, root: &std::path::Path, client: bool| {
        let address = format!("localhost:{}", server.port());
        let mut url = server.url_at(&format!("locker:{SECRET}"), &address);
        url += &format!("?{mode}={value}");
        if value != disabled {
            url += &format!("&{root_file}={}", root.display());
        }
        if client {
            url += &format!("&{cert_file}={}&{key_file}={}", cert.display(), key.display());
        }
        url
    };

    all_operations(&super::connect(&at(verified, &root, true)).await).await.unwrap();
    for url in [
        at(verified, &root, false),
        at(required, &other.authority(), true),
        at(disabled, &root, false),
    ] {
        let error = refusal(&url).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }
}
