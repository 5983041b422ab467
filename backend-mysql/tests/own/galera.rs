//! The tests of a Galera cluster.

use leasehold_core::ErrorKind;
use leasehold_core::backend::{Attempt, Claim, Fencing, LockBackend as _, Release, Renewal};
use leasehold_mysql::mysql_async::{Conn, Opts};
use leasehold_mysql::{MysqlBackend, MysqlConfig};
use leasehold_testbed::Galera;
use tokio::sync::Mutex;

use super::Kept;
use crate::family::failures::acquire;
use crate::family::{connect, lease};

#[tokio::test]
async fn a_lease_is_found_on_all_nodes_of_a_cluster() {
    let cluster = Galera::start(3).await;
    let mut nodes = Vec::new();
    for url in cluster.urls() {
        nodes.push(connect(&url).await);
    }
    let conn = Conn::new(Opts::from_url(&cluster.urls()[0]).unwrap()).await.unwrap();

    let their = MysqlBackend::connect_with(MysqlConfig::from_run(Kept(Mutex::new(conn)))).await;

    let error = their.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("let Leasehold open its own connections"), "{error}");
    let mut last_token = 0;
    for round in 0..30 {
        let [first, second, third] = [0, 1, 2].map(|n| &nodes[(round + n) % 3]);
        assert_eq!(first.capabilities().fencing(), Fencing::Strict);
        let (held, other) = (lease("job"), lease("job"));
        let Attempt::Granted(grant) = first.acquire(&Claim::new(held.clone())).await.unwrap()
        else {
            panic!("the key is free");
        };
        assert!(grant.token() > last_token, "{} after {last_token}", grant.token());
        last_token = grant.token();
        assert!(!acquire(second, &other).await.unwrap());
        let renewed = second.renew_all(std::slice::from_ref(&held)).await;
        assert!(matches!(renewed[..], [Ok(Renewal::Renewed)]), "{renewed:?}");
        assert_eq!(third.release(&held).await.unwrap(), Release::Released);
    }

    cluster.nodes()[0].sql("SET GLOBAL max_prepared_stmt_count = 0").await;
    let unprepared = connect(&cluster.urls()[0]).await;
    let error = acquire(&unprepared, &lease("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("max_prepared_stmt_count"), "{error}");
}
