//! The thread that drives all connections.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use leasehold_core::{Error, ErrorKind as Kind};
use spawns_core::{Spawn, Task};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;
use zookeeper_client::{Client, Connector, Error as ClientError};

use crate::error::{self, Failure};

/// How long to wait for a server to close a connection. A server at its connection limit closes new
/// connections as soon as it has accepted them.
const SILENCE: Duration = Duration::from_millis(10);

/// The thread that drives connections, so that connections do not end with a caller's runtime.
pub(crate) struct Driver {
    /// The runtime, or `None` after the driver was dropped.
    runtime: Option<Runtime>,
    pub(crate) handle: Handle,
}

impl Driver {
    pub(crate) fn start() -> Result<Self, Error> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("leasehold-zookeeper").enable_all();
        let runtime = builder.build().map_err(|error| {
            let message = "cannot start the thread for connections";
            Error::new(Kind::Refused, message).with_source(error)
        })?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Connects to one server. Returns the connection and the task that drives it.
    pub(crate) async fn connect(
        &self,
        connector: Connector,
        endpoint: String,
    ) -> Result<(Client, AbortHandle), ClientError> {
        let spawner = Spawner { handle: self.handle.clone(), spawned: Arc::default() };
        let spawned = Arc::clone(&spawner.spawned);
        let connecting = async move { connector.connect(&endpoint).await };
        let connecting = Scoped { spawner, future: Box::pin(connecting) };
        let client = Connecting(self.handle.spawn(connecting)).await?;
        let task = unpoisoned(&spawned).take();
        let task = task.ok_or(ClientError::ClientClosed)?;
        Ok((client, task))
    }

    /// Opens an additional connection to determine, within `limit`, why a server did not create a
    /// session. The client crate does not report the reason.
    pub(crate) async fn why_down(&self, address: String, limit: Duration) -> Failure {
        let closes = self.handle.spawn(async move { timeout(limit, closes(&address)).await });
        match closes.await {
            Ok(Ok(Ok(true))) => Failure::NoRoom(error::no_room()),
            Ok(Ok(Err(refused))) => Failure::ServerDown(error::refused(&refused)),
            // The server may accept connections again.
            _ => Failure::NoRoom(error::unreachable()),
        }
    }

    /// Returns whether a server rejects one of two new connections.
    pub(crate) async fn is_full(&self, address: String, limit: Duration) -> bool {
        let answer = self.handle.spawn(async move { timeout(limit, answer_of(&address)).await });
        matches!(answer.await, Ok(Ok(Err(error))) if is_end(&error))
    }
}

/// Sends a command on the second of two connections. A server replies even if its operator has not
/// allowed the command.
async fn answer_of(address: &str) -> io::Result<u8> {
    let _first = TcpStream::connect(address).await?;
    let mut second = TcpStream::connect(address).await?;
    second.write_all(b"srvr").await?;
    second.read_u8().await
}

/// Returns whether the server has closed a connection.
fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::NotConnected
            | ErrorKind::UnexpectedEof
    )
}

/// Returns whether a server closes a new connection on which nothing was sent. A server below its
/// connection limit waits for a request.
async fn closes(address: &str) -> io::Result<bool> {
    let mut stream = match TcpStream::connect(address).await {
        Err(error) if is_end(&error) => return Ok(true),
        connected => connected?,
    };
    // The connection is closed soon, because other clients may need it.
    let read = timeout(SILENCE, stream.read_u8()).await;
    Ok(matches!(read, Ok(Err(error)) if is_end(&error)))
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Inside a runtime, waiting for the end of a runtime is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// A task that connects, which is aborted when its caller stops waiting.
struct Connecting(JoinHandle<Result<Client, ClientError>>);

impl Future for Connecting {
    type Output = Result<Client, ClientError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let joined = std::task::ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(joined.unwrap_or(Err(ClientError::ClientClosed)))
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sets the runtime for the client crate's tasks. The client crate uses the runtime of the thread
/// that polls its futures.
struct Scoped<F> {
    spawner: Spawner,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { spawner, future } = &mut *self;
        let _scope = spawns_core::enter(spawner);
        future.as_mut().poll(cx)
    }
}

/// Spawns the client crate's tasks and keeps the handle of the last task.
struct Spawner {
    handle: Handle,
    spawned: Arc<StdMutex<Option<AbortHandle>>>,
}

impl Spawn for Spawner {
    fn spawn(&self, task: Task) {
        let spawned = self.handle.spawn(Box::into_pin(task.future));
        *unpoisoned(&self.spawned) = Some(spawned.abort_handle());
    }
}
