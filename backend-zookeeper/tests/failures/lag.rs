//! A server that applies changes later than the others.

use std::io;
use std::time::Duration;

use leasehold_core::admin::Revocation;
use leasehold_core::backend::{
    Attempt, Claim, Grant, Lease, LockBackend, Mode, Patience, Release, Renewal, StoreAdmin,
};
use leasehold_testbed::{ZooKeeperOptions, until};
use leasehold_zookeeper::ZooKeeperBackend;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

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
    let late = LateServer::start(server.clone()).await;
    late.create.send_replace(true);
    let (ours, others) =
        (connect_patiently([&late.address]).await, connect_patiently([server]).await);
    let [first, second, third] = [(); 3].map(|()| kept("job").with_ttl(LONG));
    assert!(is_granted(&others, &first).await);
    assert!(grant(&others, &second).await.is_none());

    let meanwhile = async {
        let in_line = async || others.inspect(first.key()).await.unwrap().waiting() == Some(2);
        until("both stand in line", in_line).await;
        assert_eq!(others.release(&first).await.unwrap(), Release::Released);
        let before = grant(&others, &second).await.unwrap();
        assert_eq!(others.release(&second).await.unwrap(), Release::Released);
        late.catch_up.send_replace(true);
        before
    };
    let (before, last) = tokio::join!(meanwhile, grant(&ours, &third));

    let last = last.unwrap();
    assert!(last.token() > before.token(), "{last:?} after {before:?}");
}

async fn grant(backend: &ZooKeeperBackend, lease: &Lease) -> Option<Grant> {
    let claim = Claim::new(lease.clone()).with_patience(Patience::Waits);
    match backend.acquire(&claim).await.unwrap() {
        Attempt::Granted(grant) => Some(grant),
        Attempt::Held(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_not_granted_is_shown_as_no_holder() {
    let servers = ZooKeeperOptions::new().tick(TICK).start().await;
    let server = servers.endpoints().remove(0);
    for (name, mode) in [("job", Mode::Exclusive), ("units", Mode::Units { units: 1, limit: 1 })] {
        let late = LateServer::start(server.clone()).await;
        let ours = connect_patiently([&late.address]).await;
        let others = connect_patiently([&server]).await;
        let lease = || kept(name).with_ttl(LONG).with_mode(mode);
        let (held, tried, again) = (lease(), lease(), lease());
        let key = held.key();
        // It makes the lock's node.
        assert!(is_granted(&others, &held).await);
        assert_eq!(others.release(&held).await.unwrap(), Release::Released);

        let meanwhile = async {
            late.holds_a_creation().await;
            assert!(is_granted(&others, &again).await);
            late.create.send_replace(true);
            let is_made = async || others.inspect(key).await.unwrap().waiting() != Some(0);
            until("the node of the other claim is made", is_made).await;

            // Its client does not know yet that it came second.
            let seen = others.inspect(key).await.unwrap();
            let [holder] = seen.holders() else { panic!("{seen:?}") };
            assert_eq!(holder.fingerprint(), again.id().fingerprint());
            assert_eq!(others.request_revocation(key, None).await.unwrap(), Revocation::Requested);
            assert_eq!(others.renew(&again).await.unwrap(), Renewal::RevocationRequested);
            assert_eq!(others.release(&again).await.unwrap(), Release::Released);

            // Now it is the first, and its client does not know that either.
            let seen = others.inspect(key).await.unwrap();
            assert!(!seen.is_held(), "{seen:?}");
            assert_eq!(others.request_revocation(key, None).await.unwrap(), Revocation::NotHeld);
            assert!(others.force_release(key, None).await.unwrap().ended().is_empty());
            let busy = others.acquire(&Claim::new(lease())).await.unwrap();
            let Attempt::Held(contention) = busy else { panic!("{busy:?}") };
            assert!(contention.holder().is_none(), "{contention:?}");
            late.catch_up.send_replace(true);
        };
        let ((), granted) = tokio::join!(meanwhile, is_granted(&ours, &tried));

        assert!(granted);
        let seen = others.inspect(key).await.unwrap();
        let [holder] = seen.holders() else { panic!("{seen:?}") };
        assert_eq!(holder.fingerprint(), tried.id().fingerprint());
    }
}

/// A server that makes a node, and reads a queue after that, only when it is told to.
pub(super) struct LateServer {
    pub(super) address: String,
    pub(super) create: watch::Sender<bool>,
    pub(super) catch_up: watch::Sender<bool>,
    holds: watch::Sender<bool>,
    accepting: AbortHandle,
}

impl LateServer {
    pub(super) async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let [create, catch_up, holds] = [(); 3].map(|()| watch::channel(false).0);
        let [creates, looks] = [&create, &catch_up].map(watch::Sender::subscribe);
        let holding = holds.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass(
                    client,
                    server,
                    [creates.clone(), looks.clone()],
                    holding.clone(),
                ));
            }
        });
        Self { address, create, catch_up, holds, accepting: accepting.abort_handle() }
    }

    /// Refuses new connections from now on.
    pub(super) fn refuse(&self) {
        self.accepting.abort();
    }

    pub(super) async fn holds_a_creation(&self) {
        self.holds.subscribe().wait_for(|it| *it).await.unwrap();
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    [mut creates, mut looks]: [watch::Receiver<bool>; 2],
    holds: watch::Sender<bool>,
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
        if operation == Some(CREATE) {
            holds.send_replace(true);
            creates.wait_for(|it| *it).await.map_err(io::Error::other)?;
        }
        if (last, operation) == (Some(CREATE), Some(LOOK)) {
            looks.wait_for(|it| *it).await.map_err(io::Error::other)?;
        }
        last = operation;
        let length = u32::try_from(request.len()).unwrap().to_be_bytes();
        to_server.write_all(&[&length[..], &request].concat()).await?;
    }
}
