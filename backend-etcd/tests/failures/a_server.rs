//! The only server, which fails.

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

async fn acquire(backend: &EtcdBackend, name: &str) -> Result<(), Error> {
    let lease = Lease::new(&LockKey::new(name).unwrap(), LONG).with_tenure(Tenure::Kept);
    backend.acquire(&Claim::new(lease)).await.map(drop)
}

fn lazily(url: &str) -> EtcdBackend {
    EtcdBackend::connect_lazily(EtcdConfig::from_url(url).unwrap())
}

#[tokio::test]
async fn that_is_down_is_an_error_at_once_and_every_time() {
    measure(async || {
        let stalls = Stalls::watch();
        let url = format!("etcd://127.0.0.1:{}", free_port());
        let refused = EtcdBackend::connect(&url).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");

        let backend = lazily(&url);
        for _ in 0..20 {
            let start = Instant::now();
            let error = acquire(&backend, "job").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            stalls.in_time("an error at once", start.elapsed(), PROMPT)?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn that_was_never_there_is_passed_over() {
    let etcd = Etcd::start().await;
    let url = format!("etcd://127.0.0.1:{},{}", free_port(), etcd.endpoints()[0]);

    let client = client(&url, LONG).await;

    lock(&client, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn that_swallows_connections_is_an_error_in_time_for_all_callers() {
    measure(async || {
        // A listener that never accepts: the kernel completes connections until its backlog is full.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = lazily(&format!("etcd://{}", silent.local_addr().unwrap()));

        let mut calls = JoinSet::new();
        for n in 0..50 {
            let backend = backend.clone();
            calls.spawn(async move { acquire(&backend, &n.to_string()).await.unwrap_err() });
        }

        // A call that was about to give up may try once more.
        let bound = Duration::from_secs(2) + PROMPT;
        for error in Stalls::watch().promptly("errors for all", bound, calls.join_all()).await? {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn that_is_no_etcd_is_an_error_in_time() {
    for greeting in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("etcd://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                drop(tokio::io::AsyncWriteExt::write_all(&mut stream, greeting.as_bytes()).await);
            }
        });

        let bound = EtcdConfig::DEFAULT_TIMEOUT + PROMPT;
        let connects = || EtcdBackend::connect(&url);
        let refused = async || Stalls::watch().promptly("the error", bound, connects()).await;
        let error = measure(refused).await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unavailable, "{greeting:?}: {error}");
    }
}

#[tokio::test]
async fn is_spoken_to_no_more_once_the_backend_is_closed() {
    let etcd = Etcd::start().await;
    let backend = EtcdBackend::connect(&etcd.url()).await.unwrap();

    backend.close().await;

    let error = acquire(&backend, "job").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}
