//! Failures of a server, and their outcomes.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use leasehold_core::backend::{Attempt, Claim, Fencing, Lease, LockBackend, Release, Renewal};
use leasehold_core::{Description, Error, ErrorKind};
use leasehold_testbed::{Weather, patiently, until};

use super::{connect, lease};
use crate::{Backend, Config, Direct, Options, Server};

pub(crate) async fn acquire(backend: &Backend, lease: &Lease) -> Result<bool, Error> {
    let attempt = backend.try_acquire(&Claim::new(lease.clone())).await?;
    Ok(matches!(attempt, Attempt::Granted(_)))
}

pub(crate) async fn leases(server: &Server) -> String {
    server.sql("SELECT count(*) FROM leasehold_lease").await
}

#[tokio::test]
async fn an_emptied_table_of_stripes_grants_nothing() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let (held, other) = (lease("job"), lease("other"));
    assert!(acquire(&backend, &held).await.unwrap());

    server.sql("TRUNCATE leasehold_stripe").await;

    let error = acquire(&backend, &other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(
        error.to_string().contains("a row is missing from the table leasehold_stripe"),
        "{error}"
    );
    assert_eq!(backend.release(&held).await.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(leases(&server).await, "1");

    server.sql(&Config::from_url(&server.url()).unwrap().migration()).await;
    assert!(acquire(&backend, &other).await.unwrap());
    assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
}

#[tokio::test]
async fn a_lazy_client_connects_when_the_database_serves() {
    let mut server = Server::start().await;
    server.shut_down();
    let lazy = Backend::connect_lazily(Config::from_url(&patiently(&server.url())).unwrap());
    let error = acquire(&lazy, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(lazy.capabilities().fencing(), Fencing::BestEffort);

    server.restart().await;

    assert!(acquire(&lazy, &lease("job")).await.unwrap());
    assert_eq!(lazy.capabilities(), connect(&server.url()).await.capabilities());
}

#[tokio::test]
async fn an_acquisition_that_is_dropped_before_it_has_a_connection_is_not_sent() {
    let server = Server::start().await;
    let config = Config::from_url(&patiently(&server.url())).unwrap().connections(1).unwrap();
    let backend = Backend::connect_with(config).await.unwrap();
    let [sent, dropped, next] = ["sent", "dropped", "next"].map(lease);
    let mut sent = Box::pin(acquire(&backend, &sent));
    assert!((&mut sent).now_or_never().is_none());

    assert!(acquire(&backend, &dropped).now_or_never().is_none());

    assert!(sent.await.unwrap() && acquire(&backend, &next).await.unwrap());
    assert!(!backend.inspect(dropped.key()).await.unwrap().is_held());
}

#[tokio::test]
async fn missing_tables_are_refused_and_named() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;

    server.sql("DROP TABLE leasehold_stripe").await;

    let error = acquire(&backend, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("leasehold tables"), "{error}");
}

#[tokio::test]
async fn a_read_only_server_is_unavailable() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    let (held, other) = (lease("job"), lease("other"));
    assert!(acquire(&backend, &held).await.unwrap());

    server.set_read_only(true).await;
    let is_refused = |error: Error| {
        error.kind() == ErrorKind::NotWritable && error.to_string().contains("read-only")
    };
    let refused = async || acquire(&backend, &other).await.is_err_and(is_refused);
    until("acquisitions are refused", refused).await;
    until("renewals are refused", async || backend.renew(&held).await.is_err_and(is_refused)).await;
    let refused = async || backend.release(&other).await.is_err_and(is_refused);
    until("releases are refused", refused).await;
    assert!(backend.inspect(held.key()).await.unwrap().is_held());
    server.set_read_only(false).await;

    let renewed = async || backend.renew(&held).await.is_ok_and(|held| held == Renewal::Renewed);
    until("the lease is renewed", renewed).await;
}

#[tokio::test]
async fn a_full_disk_is_refused_and_named() {
    let server = Options::new().small_disk().start().await;
    let backend = connect(&server.url()).await;
    let description = Description::new("x".repeat(250)).unwrap();
    let grow = async || {
        let lease = lease(&fastrand::u64(..).to_string());
        acquire(&backend, &lease.with_description(Some(description.clone()))).await
    };
    grow().await.unwrap();

    server.fill_disk();
    let error = loop {
        if let Err(error) = grow().await {
            break error;
        }
    };
    server.clear_disk();

    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert!(grow().await.unwrap());
}

#[tokio::test]
async fn a_stripe_that_others_keep_is_given_up_in_time() {
    let server = Server::start().await;
    let patient = connect(&server.url()).await;
    // The store gives up after half of the timeout. The other half is for a busy machine.
    let config = Config::from_url(&server.url()).unwrap().timeout(Duration::from_secs(8));
    let backend = Backend::connect_with(config.unwrap()).await.unwrap();
    let held = lease("job");
    assert!(acquire(&patient, &held).await.unwrap());

    let keeping = Direct::open(&server.url()).await;
    keeping.query("BEGIN").await.unwrap();
    keeping.query("SELECT stripe FROM leasehold_stripe FOR UPDATE").await.unwrap();
    let error = acquire(&backend, &lease("other")).await.unwrap_err();
    let renewal = patient.renew(&held).await.unwrap();
    keeping.query("ROLLBACK").await.unwrap();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let reasons = crate::REASONS_TO_GIVE_UP;
    assert!(reasons.iter().any(|reason| error.to_string().contains(reason)), "{error}");
    assert_eq!(renewal, Renewal::Renewed, "renewals need no stripe");
    assert!(acquire(&backend, &lease("next")).await.unwrap(), "no transaction stayed open");
    assert_eq!(leases(&server).await, "2", "nothing was applied late");
}

#[tokio::test]
async fn leases_that_no_client_asks_for_again_leave_no_rows() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    for n in 0..20 {
        assert!(acquire(&backend, &lease(&format!("left-{n}"))).await.unwrap());
    }
    let an_hour_ago = "UPDATE leasehold_lease SET ends = ends - 3600000000";
    server.sql(an_hour_ago).await;
    assert!(acquire(&backend, &lease("held")).await.unwrap());

    // One claim of several clears, by its random id: of 400, two do but for once in 10^21 runs.
    for _ in 0..400 {
        let other = lease("other");
        assert!(acquire(&backend, &other).await.unwrap());
        assert_eq!(backend.release(&other).await.unwrap(), Release::Released);
        if leases(&server).await == "1" {
            break;
        }
    }

    assert_eq!(leases(&server).await, "1", "only the lease in force has a row");
}

#[tokio::test]
async fn a_conflict_is_asked_about_four_times_more() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;
    for code in crate::CONFLICTS {
        crate::raise(&server, code, 4).await;
        assert!(acquire(&backend, &lease(&format!("seldom-{code}"))).await.unwrap());

        crate::raise(&server, code, 5).await;
        let error = acquire(&backend, &lease(&format!("often-{code}"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(acquire(&backend, &lease(&format!("after-{code}"))).await.unwrap());
    }
    assert_eq!(leases(&server).await, "4");
}

#[tokio::test]
async fn an_error_leaves_no_stripe_locked() {
    let server = Server::start().await;
    let backend = connect(&server.url()).await;

    crate::raise(&server, crate::INTERRUPTED, 1).await;
    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(acquire(&backend, &lease("job")).await.unwrap());
}

#[tokio::test]
async fn a_client_that_stands_still_keeps_no_other_out() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let still = connect(&server.url().replace(&server.address(), &proxy.address())).await;
    let backend = connect(&server.url()).await;
    let key = lease("job");
    acquire(&still, &lease("first")).await.unwrap();

    // It sends its transaction, and never reads a reply.
    proxy.set_weather(Weather::HoldReplies);
    let asks = key.clone();
    let asking = tokio::spawn(async move { acquire(&still, &asks).await });
    until("it was granted", async || leases(&server).await == "2").await;

    let start = Instant::now();
    for _ in 0..10 {
        assert!(!acquire(&backend, &lease("job")).await.unwrap());
    }
    assert_eq!(backend.release(&key).await.unwrap(), Release::Released);
    assert!(acquire(&backend, &lease("job")).await.unwrap());
    assert!(start.elapsed() < Duration::from_secs(10), "calls waited for the other's transaction");
    asking.abort();
}

#[tokio::test]
async fn a_lost_reply_is_an_unknown_outcome() {
    let server = Server::start().await;
    let proxy = server.proxy().await;
    let url = server.url().replace(&server.address(), &proxy.address());
    let backend = Backend::connect(&url).await.unwrap();
    acquire(&backend, &lease("first")).await.unwrap();

    proxy.set_weather(Weather::HoldReplies);
    let error = acquire(&backend, &lease("job")).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    until("it was applied", async || leases(&server).await == "2").await;
}
