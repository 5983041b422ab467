//! Users, passwords, rights and TLS.

use leasehold_core::backend::{Claim, Enlistment, LockBackend, Patience, Share, StoreId};
use leasehold_core::{Error, ErrorKind, LockClient};
use leasehold_testbed::{free_port, patiently};

use super::membership::charter;
use super::{TTL, lease};
use crate::{Backend, Config, Options, RIGHTS, Server};

const SECRET: &str = "S3CR3T-CANARY";

/// A server with the user of the documentation.
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

async fn all_operations(backend: &Backend) -> Result<(), Error> {
    for share in [Share::Whole, Share::Units { units: 1, limit: 1 }] {
        let held = lease("job").with_share(share);
        let waits = Claim::new(lease("job").with_share(share)).with_patience(Patience::Queues(TTL));
        backend.try_acquire(&Claim::new(held.clone())).await?;
        backend.try_acquire(&waits).await?;
        backend.renew(&held).await?;
        backend.inspect(held.key()).await?;
        backend.request_revocation(held.key(), None).await?;
        backend.release(&held).await?;
        backend.try_acquire(&waits).await?;
        backend.force_release(held.key(), None).await?;
    }
    let together = ["a", "b"].map(|name| Claim::new(lease(name)));
    backend.try_acquire_all(&together).await?;
    let store = backend.standing(StoreId::new()).await?.store();
    backend.enlist(&Enlistment::new(store, charter()).with_floor(1)).await?;
    let of_member = lease("of member");
    let claim = Claim::new(of_member.clone()).with_charter(charter()).with_least_token(1);
    backend.try_acquire(&claim).await?;
    backend.renew(&of_member.clone().with_floor(1)).await?;
    backend.release(&of_member).await?;
    Ok(())
}

#[tokio::test]
async fn documented_rights_suffice_and_each_is_needed() {
    let server = with_tables().await;
    let url = server.url_as(&format!("locker:{SECRET}"));
    let backend = super::connect(&url).await;
    all_operations(&backend).await.unwrap();

    for (right, table) in [
        ("SELECT", "leasehold_stripe"),
        ("UPDATE", "leasehold_stripe"),
        ("SELECT", "leasehold_lease"),
        ("INSERT", "leasehold_lease"),
        ("UPDATE", "leasehold_lease"),
        ("DELETE", "leasehold_lease"),
        ("SELECT", "leasehold_member"),
        ("UPDATE", "leasehold_member"),
    ] {
        server.sql(&format!("REVOKE {right} ON {table} FROM locker")).await;
        let late = all_operations(&backend).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Denied, "{right} on {table}: {late}");
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
async fn tables_are_made_where_they_may_be() {
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
    assert_eq!(server.sql("SELECT count(*) FROM app.my_stripe").await, "256");
}

#[tokio::test]
async fn wrong_passwords_are_denied_and_none_is_shown() {
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
async fn tls_needs_trust_on_both_sides() {
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
