//! A server that applies changes later than the others.

use std::io;
use std::time::Duration;

use leasehold_core::backend::{Attempt, Claim, Grant, Lease, LockBackend, Patience, Release};
use leasehold_testbed::{ZooKeeperOptions, until};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{TICK, connect_patiently, is_granted, kept};

/// The number of `create2` in ZooKeeper's protocol.
const CREATE: u32 = 15;

/// The number of `getChildren2`.
const LOOK: u32 = 12;

/// No lease ends before the test does.
const LONG: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_is_read_late_has_the_highest_token() {
    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let server = servers.endpoints().remove(0);
    let (late, catch_up) = late_server(server.clone()).await;
    let (ours, others) = (connect_patiently([late]).await, connect_patiently([server]).await);
    let [first, second, third] = [(); 3].map(|()| kept("job").with_ttl(LONG));
    assert!(is_granted(&others, &first).await);
    assert!(grant(&others, &second).await.is_none());

    let meanwhile = async {
        let in_line = async || others.inspect(first.key()).await.unwrap().waiting() == Some(2);
        until("both stand in line", in_line).await;
        assert_eq!(others.release(&first).await.unwrap(), Release::Released);
        let before = grant(&others, &second).await.unwrap();
        assert_eq!(others.release(&second).await.unwrap(), Release::Released);
        catch_up.send_replace(true);
        before
    };
    let (before, last) = tokio::join!(meanwhile, grant(&ours, &third));

    let last = last.unwrap();
    assert!(last.token() > before.token(), "{last:?} after {before:?}");
}

async fn grant(backend: &ZooKeeperBackend, lease: &Lease) -> Option<Grant> {
    let claim = Claim::new(lease.clone()).with_patience(Patience::Waits);
    match backend.try_acquire(&claim).await.unwrap() {
        Attempt::Granted(grant) => Some(grant),
        Attempt::Held(_) => None,
    }
}

/// The address of a server that makes nodes, and reads a queue after that only when it is told that it has caught up.
async fn late_server(server: String) -> (String, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (catch_up, has_caught_up) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(pass(client, server, has_caught_up.clone()));
        }
    });
    (address, catch_up)
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    mut has_caught_up: watch::Receiver<bool>,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    let mut last = None;
    loop {
        let mut request = vec![0; from_client.read_u32().await?.try_into().unwrap()];
        from_client.read_exact(&mut request).await?;
        // The number of the request comes first, and then that of its operation.
        let operation = request[4..8].try_into().map(u32::from_be_bytes).ok();
        if (last, operation) == (Some(CREATE), Some(LOOK)) {
            has_caught_up.wait_for(|it| *it).await.map_err(io::Error::other)?;
        }
        last = operation;
        let length = u32::try_from(request.len()).unwrap().to_be_bytes();
        to_server.write_all(&[&length[..], &request].concat()).await?;
    }
}
