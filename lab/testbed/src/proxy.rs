//! A TCP proxy that delays, holds back and cuts traffic, as networks do.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// A fault of the network, which also affects connections that are already open.
///
/// When the fault ends, the proxy forwards the traffic that it has held back, because TCP repeats lost packets. Traffic on a connection that
/// was reset in the meantime is lost.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum NetworkFault {
    /// The proxy forwards all traffic.
    #[default]
    None,
    /// The proxy forwards all traffic, with this delay in each direction.
    Slow(Duration),
    /// The proxy forwards nothing, and keeps connections open.
    BlackHole,
    /// The proxy forwards requests but not replies.
    HoldReplies,
    /// Open and new connections are reset.
    Reset,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Request,
    Reply,
}

impl NetworkFault {
    fn lets_pass(self, way: Way) -> bool {
        match self {
            Self::None | Self::Slow(_) => true,
            Self::HoldReplies => way == Way::Request,
            Self::BlackHole | Self::Reset => false,
        }
    }

    fn delay(self) -> Duration {
        match self {
            Self::Slow(delay) => delay,
            _ => Duration::ZERO,
        }
    }
}

/// A proxy in front of a server on loopback. It ends when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<FaultState>,
    server: watch::Sender<String>,
    connections: Connections,
    task: AbortHandle,
}

/// The open connections, each of which listens: they are reset when something is said.
type Connections = Arc<Mutex<watch::Sender<()>>>;

impl FaultProxy {
    /// Starts a proxy in front of `server`, on the runtime of the caller.
    ///
    /// # Panics
    ///
    /// If loopback has no port to give.
    pub async fn start(server: impl Into<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::<FaultState>::default();
        let server = watch::Sender::new(server.into());
        let connections = Connections::default();
        let gate = Gate {
            listener,
            server: server.subscribe(),
            state: Arc::clone(&state),
            connections: Arc::clone(&connections),
        };
        let task = tokio::spawn(gate.accept()).abort_handle();
        Self { address, state, server, connections, task }
    }

    /// Its address, to be used in the place of the server's.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The port of its address.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sets the fault for all traffic.
    pub fn set_network_fault(&self, fault: NetworkFault) {
        self.state.set_all(fault);
    }

    /// Sets the fault for traffic that comes from an address.
    pub fn set_network_fault_from(&self, source: Ipv4Addr, fault: NetworkFault) {
        self.state.set(IpAddr::V4(source), fault);
    }

    /// Redirects new connections to a different server, like a changed DNS name or a load balancer.
    /// Open connections are not redirected.
    pub fn lead_to(&self, server: impl Into<String>) {
        self.server.send_replace(server.into());
    }

    /// Resets all open connections, and returns when they are closed. New connections can be opened
    /// immediately.
    pub async fn disconnect(&self) {
        let reset =
            mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        reset.send_replace(());
        reset.closed().await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The current faults, which may differ by the address that traffic comes from.
#[derive(Debug, Default)]
struct FaultState(Mutex<FaultsBySource>);

#[derive(Debug, Default)]
struct FaultsBySource {
    /// For addresses that have not sent any traffic yet.
    otherwise: NetworkFault,
    by_source: HashMap<IpAddr, watch::Sender<NetworkFault>>,
}

impl FaultState {
    fn subscribe(&self, source: IpAddr) -> watch::Receiver<NetworkFault> {
        self.faults().of(source).subscribe()
    }

    fn set(&self, source: IpAddr, fault: NetworkFault) {
        self.faults().of(source).send_replace(fault);
    }

    fn set_all(&self, fault: NetworkFault) {
        let mut faults = self.faults();
        faults.otherwise = fault;
        for source in faults.by_source.values() {
            source.send_replace(fault);
        }
    }

    fn faults(&self) -> MutexGuard<'_, FaultsBySource> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultsBySource {
    fn of(&mut self, source: IpAddr) -> &watch::Sender<NetworkFault> {
        let otherwise = self.otherwise;
        self.by_source.entry(source).or_insert_with(|| watch::Sender::new(otherwise))
    }
}

/// The end at which connections arrive.
struct Gate {
    listener: TcpListener,
    server: watch::Receiver<String>,
    state: Arc<FaultState>,
    connections: Connections,
}

impl Gate {
    async fn accept(self) {
        loop {
            let Ok((client, from)) = self.listener.accept().await else {
                continue;
            };
            let fault = self.state.subscribe(from.ip());
            let reset = self.connections.lock().unwrap_or_else(PoisonError::into_inner).subscribe();
            let server = self.server.borrow().clone();
            // It ends with its connection, or when the proxy is dropped.
            tokio::spawn(connect(client, server, fault, reset));
        }
    }
}

async fn connect(
    mut client: TcpStream,
    server: String,
    mut fault: watch::Receiver<NetworkFault>,
    mut reset: watch::Receiver<()>,
) {
    let for_traffic = fault.clone();
    let passing = async {
        let mut server = TcpStream::connect(server).await?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let (from_server, to_server) = server.split();
        let (from_client, to_client) = client.split();
        tokio::select! {
            end = pass(from_client, to_server, for_traffic.clone(), Way::Request) => end,
            end = pass(from_server, to_client, for_traffic.clone(), Way::Reply) => end,
        }
    };
    let is_reset = tokio::select! {
        _ = passing => false,
        is_broken = fault.wait_for(|fault| *fault == NetworkFault::Reset) => is_broken.is_ok(),
        reset = reset.changed() => reset.is_ok(),
    };
    if is_reset {
        // Closed without lingering, the connection is reset instead of ended.
        drop(client.set_zero_linger());
    }
    drop(client);
    // Only now, since a caller that resets connections waits for this.
    drop(reset);
}

/// Passes on one direction until it ends.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut fault: watch::Receiver<NetworkFault>,
    way: Way,
) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let mut for_delays = fault.clone();
    // With its sender, it ends the other half, which first passes on all that came before.
    let read = async move {
        loop {
            let mut chunk = vec![0; 16 * 1024];
            let len = from.read(&mut chunk).await?;
            if len == 0 {
                return Ok(());
            }
            chunk.truncate(len);
            let delay = for_delays.borrow_and_update().delay();
            // The other half is in the same future, so it is still there.
            drop(sender.send((Instant::now() + delay, chunk)));
        }
    };
    let write = async {
        while let Some((due, chunk)) = receiver.recv().await {
            // A timer takes a millisecond even if it is due already.
            if due > Instant::now() {
                sleep_until(due).await;
            }
            let allowed = fault.wait_for(|fault| fault.lets_pass(way)).await;
            allowed.map_err(io::Error::other)?;
            to.write_all(&chunk).await?;
        }
        Ok(())
    };
    tokio::try_join!(read, write).map(drop)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    /// An echo server with a proxy in front, and a connection through it.
    async fn echo() -> (FaultProxy, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        let proxy = FaultProxy::start(address).await;
        let stream = TcpStream::connect(proxy.address()).await.unwrap();
        (proxy, stream)
    }

    async fn say(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut reply = vec![0; text.len()];
        timeout(SOON, stream.read_exact(&mut reply)).await??;
        Ok(reply)
    }

    #[tokio::test]
    async fn traffic_passes_without_a_fault() {
        let (_proxy, mut stream) = echo().await;

        assert_eq!(say(&mut stream, b"hello").await.unwrap(), b"hello");
    }

    #[tokio::test]
    async fn slow_network_delays_each_way() {
        let (proxy, mut stream) = echo().await;
        proxy.set_network_fault(NetworkFault::Slow(Duration::from_millis(40)));

        let start = Instant::now();
        say(&mut stream, b"hello").await.unwrap();

        assert!(start.elapsed() >= Duration::from_millis(80));
    }

    #[tokio::test]
    async fn bytes_that_a_black_hole_held_back_pass_afterwards() {
        let (proxy, mut stream) = echo().await;
        proxy.set_network_fault(NetworkFault::BlackHole);
        stream.write_all(b"hello").await.unwrap();
        let mut reply = [0; 5];
        let nothing = timeout(Duration::from_millis(100), stream.read_exact(&mut reply)).await;
        assert!(nothing.is_err());

        proxy.set_network_fault(NetworkFault::None);

        timeout(SOON, stream.read_exact(&mut reply)).await.unwrap().unwrap();
        assert_eq!(&reply, b"hello");
    }

    #[tokio::test]
    async fn a_reset_ends_old_and_new_connections() {
        let (proxy, mut stream) = echo().await;
        say(&mut stream, b"hello").await.unwrap();

        proxy.set_network_fault(NetworkFault::Reset);

        let error = timeout(SOON, stream.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let mut new = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(say(&mut new, b"hello").await.is_err());
    }

    #[tokio::test]
    async fn a_disconnected_client_is_gone_and_may_come_again() {
        let (proxy, mut stream) = echo().await;
        say(&mut stream, b"hello").await.unwrap();

        timeout(SOON, proxy.disconnect()).await.unwrap();

        assert_eq!(stream.try_write(b"hello").unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let mut new = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(say(&mut new, b"hello").await.unwrap(), b"hello");
        proxy.disconnect().await;
        assert!(say(&mut new, b"hello").await.is_err());
    }
}
