//! The testbed's own etcd clusters.

use std::time::Duration;

use leasehold_testbed::{Etcd, EtcdOptions, NetworkFault};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn a_cluster_answers_until_it_is_dropped() {
    let etcd = Etcd::start().await;
    etcd.ctl(&["put", "k", "v"]).await;
    assert_eq!(etcd.ctl(&["get", "k"]).await, "k\nv\n");

    let [endpoint] = &etcd.endpoints()[..] else { panic!("one member has one address") };
    assert_eq!(etcd.url(), format!("etcd://{endpoint}"));
    drop(etcd);

    assert!(TcpStream::connect(endpoint).await.is_err());
}

#[tokio::test]
async fn clusters_die_when_a_test_panics() {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let panicked = tokio::spawn(async {
        let etcd = Etcd::start().await;
        sender.send(etcd.endpoints()).unwrap();
        panic!("as a test does");
    });

    assert!(panicked.await.unwrap_err().is_panic());
    assert!(TcpStream::connect(&receiver.await.unwrap()[0]).await.is_err());
}

#[tokio::test]
async fn a_restart_keeps_data_and_ports() {
    for members in [1, 3] {
        let mut etcd = EtcdOptions::new().members(members).start().await;
        let endpoints = etcd.endpoints();
        etcd.ctl(&["put", "k", "v"]).await;

        etcd.kill();
        etcd.restart().await;

        assert_eq!(etcd.endpoints(), endpoints);
        assert_eq!(etcd.ctl(&["get", "k"]).await, "k\nv\n");
    }
}

#[tokio::test]
async fn a_paused_cluster_is_silent_and_goes_on_where_it_was() {
    let etcd = EtcdOptions::new().members(3).start().await;

    let mut put = etcd.ctl_command(&["put", "k", "v"]);
    etcd.pause();
    let silence = timeout(Duration::from_millis(200), put.output()).await;
    assert!(silence.is_err());

    etcd.resume();
    etcd.ctl(&["put", "l", "w"]).await;
}

#[tokio::test]
async fn another_member_leads_when_the_leader_is_gone() {
    let mut etcd = EtcdOptions::new().members(3).start().await;

    let first = etcd.leader().await;
    etcd.kill_member(first);
    let second = etcd.leader().await;
    assert_ne!(second, first);
    etcd.ctl(&["put", "k", "v"]).await;

    etcd.restart_member(first).await;
    etcd.pause_member(second);
    let third = etcd.leader().await;
    assert_ne!(third, second);
    assert_eq!(etcd.ctl(&["get", "k"]).await, "k\nv\n");

    etcd.resume_member(second);
    etcd.move_leader(second).await;
    assert_eq!(etcd.leader().await, second);
}

#[tokio::test]
async fn tls_refuses_strangers() {
    let asks = EtcdOptions::new().tls_with_client_certificates().start().await;
    let trusts = EtcdOptions::new().tls().start().await;

    for etcd in [&asks, &trusts] {
        assert!(etcd.tls_url().starts_with("etcds://localhost:"));
        etcd.ctl(&["put", "k", "v"]).await;
    }
    let without_certificate = ["get", "k", "--cert", "", "--key", ""];
    refuses(&asks, &without_certificate).await;
    let other_authority = asks.certificates().authority();
    refuses(&trusts, &["get", "k", "--cacert", other_authority.to_str().unwrap()]).await;
    let plain = format!("http://{}", trusts.endpoints()[0]);
    refuses(&trusts, &["get", "k", "--endpoints", &plain]).await;
}

async fn refuses(etcd: &Etcd, args: &[&str]) {
    let args = [args, &["--command-timeout", "500ms", "--dial-timeout", "500ms"]].concat();
    etcd.try_ctl(&args).await.unwrap_err();
}

#[tokio::test]
async fn users_stay_within_their_prefix() {
    let etcd = EtcdOptions::new().user("locker", "secret", "lock/").start().await;
    etcd.ctl(&["put", "k", "v"]).await;
    let as_user = async |user: &'static str, args: &[&str]| {
        let args = [args, &["--user", user]].concat();
        etcd.try_ctl(&args).await
    };

    as_user("locker:secret", &["put", "lock/k", "v"]).await.unwrap();
    let elsewhere = as_user("locker:secret", &["put", "k", "v"]).await.unwrap_err();
    assert!(elsewhere.contains("permission denied"), "{elsewhere}");
    let stranger = as_user("locker:guess", &["get", "lock/k"]).await.unwrap_err();
    assert!(stranger.contains("invalid user ID or password"), "{stranger}");
}

#[tokio::test]
async fn the_old_one_is_of_version_3_4() {
    let etcd = EtcdOptions::new().old().user("locker", "secret", "lock/").start().await;

    let status = etcd.ctl(&["endpoint", "status"]).await;

    assert!(status.contains(", 3.4."), "{status}");
    assert_eq!(etcd.leader().await, 0);
}

#[tokio::test]
async fn leases_are_revoked_and_history_is_forgotten() {
    let etcd = Etcd::start().await;
    for key in ["a", "b"] {
        let lease = etcd.ctl(&["lease", "grant", "60"]).await;
        let lease = lease.split(' ').nth(1).unwrap();
        etcd.ctl(&["put", key, "v", "--lease", lease]).await;
    }

    etcd.revoke_all_leases().await;
    assert_eq!(etcd.ctl(&["get", "", "--prefix"]).await, "");

    etcd.compact().await;
    let past = etcd.try_ctl(&["get", "a", "--rev", "2"]).await.unwrap_err();
    assert!(past.contains("compacted"), "{past}");
}

#[tokio::test]
async fn metrics_count_requests() {
    let etcd = Etcd::start().await;
    let puts = r#"grpc_server_handled_total{grpc_method="Put",grpc_code="OK"}"#;
    let before = etcd.metric(0, puts).await;

    etcd.ctl(&["put", "k", "v"]).await;

    assert_eq!(etcd.metric(0, puts).await, before + 1.0);
}

#[tokio::test]
async fn a_lock_of_etcdctl_is_held_for_as_long_as_it_runs() {
    let etcd = Etcd::start().await;
    let held = async || !etcd.ctl(&["get", "lock", "--prefix"]).await.is_empty();

    let lock = etcd.ctl_command(&["lock", "lock"]).stdout(std::process::Stdio::null()).spawn();
    while !held().await {
        sleep(Duration::from_millis(10)).await;
    }
    drop(lock.unwrap());

    assert!(held().await, "its lease outlives it");
}

#[tokio::test]
async fn a_proxy_cuts_off_one_member() {
    let etcd = EtcdOptions::new().members(3).start().await;
    let proxies = etcd.proxies().await;
    let put = async |i: usize, limit: &str| {
        let endpoint = proxies[i].address();
        etcd.try_ctl(&["put", "k", "v", "--command-timeout", limit, "--endpoints", &endpoint]).await
    };
    put(0, "15s").await.unwrap();

    proxies[0].set_network_fault(NetworkFault::BlackHole);

    assert!(put(0, "500ms").await.is_err());
    put(1, "15s").await.unwrap();
}
