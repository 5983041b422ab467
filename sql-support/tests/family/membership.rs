//! Tests of servers that are members of a quorum.

use std::time::Duration;

use leasehold_core::backend::{
    Attempt, Claim, JoinRequest, LockBackend, Member as _, MemberStatus, QuorumConfiguration,
    Renewal, StoreAdmin as _, StoreId, Vote,
};
use leasehold_core::{Error, ErrorKind};
use leasehold_testbed::until_some;

use super::{connect, direct, lease, start};
use crate::{Backend, Config, Server};

pub(crate) fn configuration() -> QuorumConfiguration {
    QuorumConfiguration::new(["a", "b", "c"], Duration::from_secs(60))
}

/// Requests the membership status until the server responds.
async fn status(backend: &Backend) -> MemberStatus {
    let status = async || backend.status(StoreId::new()).await.ok();
    until_some("the server responds", status).await
}

/// Makes the server a member, and returns its identity.
pub(crate) async fn join(backend: &Backend) -> StoreId {
    let store = status(backend).await.store();
    let joined = backend.join(&JoinRequest::new(store, configuration())).await.unwrap();
    assert_eq!((joined.store(), joined.configuration()), (store, Some(&configuration())));
    store
}

/// Sends a vote for a new key.
pub(crate) async fn vote(backend: &Backend) -> Result<Attempt, Error> {
    let claim = Claim::new(lease(&fastrand::u64(..).to_string()));
    backend.vote(&Vote::new(claim, configuration())).await
}

#[tokio::test]
pub(crate) async fn another_incarnation_has_lost_its_identity_and_configuration() {
    let mut server = crate::start(crate::that_may_become_another()).await;
    let backend = connect(&server.url()).await;
    let store = join(&backend).await;
    assert!(matches!(vote(&backend).await, Ok(Attempt::Granted(_))));

    crate::become_another(&mut server).await;

    let refused = until_some("the server responds", async || match vote(&backend).await {
        Err(error) if error.to_string().contains("not a member") => Some(error),
        Err(_) => None,
        Ok(attempt) => panic!("{attempt:?}"),
    });
    assert_eq!(refused.await.kind(), ErrorKind::Unavailable);
    let late = backend.join(&JoinRequest::new(store, configuration())).await.unwrap();
    assert_ne!(late.store(), store, "the identity belonged to the lost data");
    let found = status(&backend).await;
    assert_eq!((found.store(), found.configuration()), (late.store(), None));
    assert_eq!(vote(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    join(&backend).await;
    assert!(matches!(vote(&backend).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
pub(crate) async fn durable_server_keeps_its_configuration_after_a_crash() {
    let mut server = crate::start(crate::durable()).await;
    let backend = connect(&server.url()).await;
    let store = join(&backend).await;

    server.restart().await;

    let found = status(&backend).await;
    assert_eq!((found.store(), found.configuration()), (store, Some(&configuration())));
    assert!(matches!(vote(&backend).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
async fn server_with_emptied_tables_is_not_a_member() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    join(&backend).await;

    for table in crate::TABLES_OF_ONE_ROW {
        server.sql(&format!("DELETE FROM {table}")).await;
        let error = backend.status(StoreId::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{table}: {error}");
        assert!(error.to_string().contains("leasehold tables"), "{error}");
        vote(&backend).await.unwrap_err();
        server.sql(&Config::from_url(&server.url()).unwrap().migration()).await;
    }

    assert_eq!(status(&backend).await.configuration(), None);
}

#[tokio::test]
async fn operator_ends_the_membership_of_a_restored_server() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let store = join(&backend).await;

    server.sql("UPDATE leasehold_member SET store = NULL, charter = NULL").await;

    assert_eq!(vote(&backend).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let found = status(&backend).await;
    assert_ne!(found.store(), store);
    assert_eq!(found.configuration(), None);
}

#[tokio::test]
async fn read_only_server_does_not_return_a_membership_status() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    join(&backend).await;

    server.set_read_only(true).await;

    let refused =
        until_some("the request is refused", async || backend.status(StoreId::new()).await.err());
    assert_eq!(refused.await.kind(), ErrorKind::NotWritable);
}

#[tokio::test]
async fn configuration_with_a_nul_character_is_invalid() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let store = backend.status(StoreId::new()).await.unwrap().store();
    let configuration = QuorumConfiguration::from_text("a\0b");

    let joined = backend.join(&JoinRequest::new(store, configuration.clone())).await;
    let voted = backend.vote(&Vote::new(Claim::new(lease("job")), configuration)).await;

    assert_eq!(joined.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(voted.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
pub(crate) async fn configurations_are_stored_unchanged() {
    let server = start().await;
    let backend = connect(&server.url()).await;
    let store = backend.status(StoreId::new()).await.unwrap().store();
    let odd = QuorumConfiguration::from_text(r#"it's \' "x" `y` :key {lease} $1 ü"#);

    let joined = backend.join(&JoinRequest::new(store, odd.clone())).await.unwrap();

    assert_eq!(joined.configuration(), Some(&odd));
    let vote = Vote::new(Claim::new(lease("job")), odd);
    assert!(matches!(backend.vote(&vote).await, Ok(Attempt::Granted(_))));
}

#[tokio::test]
pub(crate) async fn renewals_do_not_wait_for_a_raising_renewal_of_another_key() {
    let server = start().await;
    let backend = connect(&server.url()).await;
    let (held, other) = (lease("job"), lease("other"));
    for lease in [&held, &other] {
        let attempt = backend.acquire(&Claim::new(lease.clone())).await.unwrap();
        assert!(matches!(attempt, Attempt::Granted(_)));
    }
    let min_token =
        backend.inspect(other.key()).await.unwrap().last_token().unwrap() + 1_000_000_000;
    let keeping = direct(&server).await;
    keeping.query("BEGIN").await.unwrap();
    keeping.query(crate::KEEP_OTHER).await.unwrap();

    // The raising renewal is sent first, and waits for its row until the rollback.
    let (raised, ()) = tokio::join!(backend.raise(&other, min_token), async {
        assert_eq!(backend.renew(&held).await.unwrap(), Renewal::Renewed);
        keeping.query("ROLLBACK").await.unwrap();
    });

    assert_eq!(raised.unwrap(), Renewal::Renewed);
    let last_token = backend.inspect(other.key()).await.unwrap().last_token();
    assert_eq!(last_token, Some(min_token));
}
