//! Servers as members of a quorum.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Charter, Claim, Enlistment, LockBackend, Renewal, Standing, StoreId,
};
use leasehold_core::{Error, ErrorKind};
use leasehold_testbed::until_some;

use super::{connect, lease};
use crate::{Backend, Config, Direct, Server};

pub(crate) fn charter() -> Charter {
    Charter::new(["a", "b", "c"], Duration::from_secs(60))
}

/// Asks for the standing until the server is back.
async fn standing(backend: &Backend, fresh: StoreId) -> Standing {
    until_some("the server is back", async || backend.standing(fresh).await.ok()).await
}

/// Enlists the server, and returns its identity.
pub(crate) async fn enlist(backend: &Backend) -> StoreId {
    let store = standing(backend, StoreId::new()).await.store();
    let enlisted = backend.enlist(&Enlistment::new(store, charter())).await.unwrap();
    assert_eq!((enlisted.store(), enlisted.charter()), (store, Some(&charter())));
    store
}

/// Claims a key of its own.
pub(crate) async fn claim(backend: &Backend) -> Result<Attempt, Error> {
    let lease = lease(&fastrand::u64(..).to_string());
    backend.try_acquire(&Claim::new(lease).with_charter(charter())).await
}

#[tokio::test]
async fn another_incarnation_has_lost_identity_and_charter() {
    let mut server = crate::that_may_become_another().start().await;
    let backend = connect(&server.url()).await;
    let store = enlist(&backend).await;
    assert!(matches!(claim(&backend).await, Ok(Attempt::Granted(_))));

    crate::become_another(&mut server).await;

    let refused = until_some("the server is back", async || match claim(&backend).await {
        Err(error) if error.to_string().contains("not a member") => Some(error),
        Err(_) => None,
        Ok(attempt) => panic!("{attempt:?}"),
    });
    assert_eq!(refused.await.kind(), ErrorKind::Unavailable);
    let late = backend.enlist(&Enlistment::new(store, charter())).await.unwrap();
    assert_ne!(late.store(), store, "the identity is that of lost data");
    let found = standing(&backend, StoreId::new()).await;
    assert_eq!((found.store(), found.charter()), (late.store(), None));
    assert_eq!(claim(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    enlist(&backend).await;
    assert!(matches!(claim(&backend).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
async fn durable_server_keeps_its_charter_over_a_crash() {
    let mut server = crate::durable().start().await;
    let backend = connect(&server.url()).await;
    let store = enlist(&backend).await;

    server.restart().await;

    let found = standing(&backend, StoreId::new()).await;
    assert_eq!((found.store(), found.charter()), (store, Some(&charter())));
    assert!(matches!(claim(&backend).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
async fn emptied_tables_are_no_member() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    enlist(&backend).await;

    for table in ["leasehold_member", "leasehold_stripe"] {
        server.sql(&format!("DELETE FROM {table}")).await;
        let error = backend.standing(StoreId::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{table}: {error}");
        assert!(error.to_string().contains("leasehold tables"), "{error}");
        claim(&backend).await.unwrap_err();
        server.sql(&Config::from_url(&server.url()).unwrap().migration()).await;
    }

    assert_eq!(standing(&backend, StoreId::new()).await.charter(), None);
}

#[tokio::test]
async fn operator_takes_the_vote_of_a_restored_server() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let store = enlist(&backend).await;

    server.sql("UPDATE leasehold_member SET store = NULL, charter = NULL").await;

    assert_eq!(claim(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let found = standing(&backend, StoreId::new()).await;
    assert_ne!(found.store(), store);
    assert_eq!(found.charter(), None);
}

#[tokio::test]
async fn read_only_server_has_no_standing() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    enlist(&backend).await;

    server.set_read_only(true).await;

    let refused = until_some("the standing is refused", async || {
        backend.standing(StoreId::new()).await.err()
    });
    assert_eq!(refused.await.kind(), ErrorKind::NotWritable);
}

#[tokio::test]
async fn several_claims_need_one_charter() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    enlist(&backend).await;
    let other = Charter::new(["d"], Duration::from_secs(60));
    let claims = |charters: [Option<&Charter>; 2]| {
        charters.map(|charter| {
            let claim = Claim::new(lease(&fastrand::u64(..).to_string()));
            charter.map_or(claim.clone(), |charter| claim.with_charter(charter.clone()))
        })
    };

    for charters in [[None, Some(&other)], [Some(&charter()), Some(&other)]] {
        let error = backend.try_acquire_all(&claims(charters)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }

    assert_eq!(super::failures::leases(&server).await, "0");
    backend.try_acquire_all(&claims([Some(&charter()), None])).await.unwrap();
}

#[tokio::test]
async fn charter_that_no_database_keeps_is_invalid() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let store = backend.standing(StoreId::new()).await.unwrap().store();
    let charter = Charter::from_text("a\0b");

    let enlisted = backend.enlist(&Enlistment::new(store, charter.clone())).await;
    let claimed = backend.try_acquire(&Claim::new(lease("job")).with_charter(charter)).await;

    assert_eq!(enlisted.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(claimed.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn charters_are_kept_as_they_are() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let store = backend.standing(StoreId::new()).await.unwrap().store();
    let odd = Charter::from_text(r#"it's \' "x" `y` :key {lease} $1 ü"#);

    let enlisted = backend.enlist(&Enlistment::new(store, odd.clone())).await.unwrap();

    assert_eq!(enlisted.charter(), Some(&odd));
    let claim = Claim::new(lease("job")).with_charter(odd);
    assert!(matches!(backend.try_acquire(&claim).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
async fn renewals_wait_for_no_stripe_and_for_no_floor() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let held = lease("job");
    let attempt = backend.try_acquire(&Claim::new(held.clone())).await.unwrap();
    let Attempt::Granted(granted) = attempt else { panic!("it is free") };
    let floor = granted.token() + 1_000_000_000;
    let raised = held.clone().with_floor(floor);
    let keeping = Direct::open(&server.url()).await;
    keeping.query("BEGIN").await.unwrap();
    keeping.query("SELECT stripe FROM leasehold_stripe FOR UPDATE").await.unwrap();

    // It asks first, and waits for the stripe until the other is renewed.
    let (raised, ()) = tokio::join!(backend.renew(&raised), async {
        assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
        let before = backend.standing(StoreId::new()).await.unwrap();
        assert!(before.floor() < floor);
        keeping.query("ROLLBACK").await.unwrap();
    });

    assert_eq!(raised.unwrap(), Renewal::Renewed);
    assert_eq!(backend.standing(StoreId::new()).await.unwrap().floor(), floor);
}
