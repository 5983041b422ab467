//! A connection of the `fred` crate.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use fred::bytes::Bytes;
use fred::clients::Client;
use fred::error::Error as FredError;
use fred::interfaces::{ClientLike, EventInterface, PubsubInterface, TrackingInterface};
use fred::types::client::Invalidation;
use fred::types::{ClusterHash, ConnectHandle, CustomCommand, Message, Resp3Frame, Value};
use leasehold_core::Error;
use leasehold_redis_support::{Connection, Push, PushHandler, Received, Reply, Request};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::error;

/// A connection that many callers share.
///
/// [`FredDriver`](crate::FredDriver) opens connections. The crate's example shows how to connect to
/// a server.
#[derive(Clone, Debug)]
pub struct FredConnection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    /// A channel whose receiver is dropped when the connection ends.
    ended: watch::Sender<()>,
    task: Task,
}

/// fred's task that drives the connection. Aborting it closes the connection.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FredConnection {
    /// Opens a connection, which is closed if the call is dropped or when the connection's last
    /// clone is dropped.
    pub(crate) async fn connect(
        client: Client,
        database: u32,
        listener: PushHandler,
    ) -> Result<Self, FredError> {
        // fred's method that waits for the connection leaves its task running if the caller is
        // dropped.
        let mut connected = client.reconnect_rx();
        let (invalidations, messages) = (client.invalidation_rx(), client.message_rx());
        let mut connecting = client.connect();
        let task = Task(connecting.abort_handle());
        tokio::select! {
            biased;
            ended = &mut connecting => {
                let ended = ended.unwrap_or_else(|_panicked| Err(error::closed()));
                return Err(ended.err().unwrap_or_else(error::closed));
            }
            _server = connected.recv() => {}
        }
        let (ended, open) = watch::channel(());
        let ear = Ear { listener, invalidations, messages, task: connecting, _open: open };
        tokio::spawn(ear.hear());
        let connection = Self(Arc::new(Inner { client, ended, task }));
        connection.introduce().await?;
        // Every connection starts with database 0, and few users have the permission to select a
        // database.
        if database != 0 {
            connection.select(database).await?;
        }
        Ok(connection)
    }

    /// Sends the name of the client library to the server.
    ///
    /// The reply must arrive, but its content does not matter. If a connection is closed while fred
    /// sets it up, fred still reports success.
    async fn introduce(&self) -> Result<(), FredError> {
        let words = ["CLIENT", "SETINFO", "LIB-NAME", "leasehold"];
        self.frame(Request::Words(&words)).await.map(drop)
    }

    async fn select(&self, database: u32) -> Result<(), FredError> {
        let words = ["SELECT", &database.to_string()];
        Value::try_from(self.frame(Request::Words(&words)).await?).map(drop)
    }

    async fn frame(&self, request: Request<'_>) -> Result<Resp3Frame, FredError> {
        let (command, arguments) = command(request);
        self.while_open(self.0.client.custom_raw(command, arguments)).await
    }

    /// Waits for a reply while the connection is open. fred would keep a late request for the next
    /// connection, which never exists here.
    async fn while_open<T>(
        &self,
        reply: impl Future<Output = Result<T, FredError>> + Send,
    ) -> Result<T, FredError> {
        let reply = boxed(reply);
        tokio::select! {
            biased;
            reply = reply => reply,
            () = self.0.ended.closed() => Err(error::closed()),
        }
    }
}

impl Connection for FredConnection {
    async fn send(&self, requests: Vec<Request<'_>>) -> Result<Vec<Received>, Error> {
        if let [request] = requests[..] {
            let reply = self.frame(request).await.map_err(error::exchange)?;
            return Ok(vec![received(Value::try_from(reply)).map_err(error::exchange)?]);
        }
        let count = requests.len();
        let replies = self.while_open(async {
            let pipeline = self.0.client.pipeline();
            for (command, arguments) in requests.into_iter().map(command) {
                // This call only adds the request to the pipeline.
                pipeline.custom_raw(command, arguments).await?;
            }
            Ok(pipeline.try_all::<Value>().await)
        });
        let replies = replies.await.map_err(error::exchange)?;
        if replies.len() != count {
            // fred reports an error that affects the whole pipeline only once.
            let failure = replies.into_iter().find_map(Result::err);
            return Err(error::exchange(failure.unwrap_or_else(error::closed)));
        }
        let replies: Result<_, _> = replies.into_iter().map(received).collect();
        replies.map_err(error::exchange)
    }

    async fn subscribe(&self, channel: &str) -> Result<(), Error> {
        // fred does not expect a reply to this command, only the push message that confirms it. If
        // the server rejects the command, fred assigns the error to the next request. HELLO serves
        // as the next request, because every user may send HELLO and it does not change data.
        let subscribed = self.while_open(async {
            let pipeline = self.0.client.pipeline();
            pipeline.subscribe(channel.to_owned()).await?;
            let (command, arguments) = command(Request::Words(&["HELLO"]));
            pipeline.custom_raw(command, arguments).await?;
            pipeline.last::<Value>().await
        });
        subscribed.await.map(drop).map_err(|error| {
            // Without this step, all later replies would be assigned to the wrong requests.
            self.0.task.0.abort();
            error::connect(error)
        })
    }
}

/// Hides the type of a future. fred's futures are nested so deeply that the compiler exceeds its
/// recursion limit in callers.
pub(crate) fn boxed<'a, T>(
    future: impl Future<Output = T> + Send + 'a,
) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    Box::pin(future)
}

fn command(request: Request<'_>) -> (CustomCommand, Vec<Value>) {
    let (words, bytes) = request.size();
    let (mut text, mut ends) = (String::with_capacity(bytes), Vec::with_capacity(words));
    request.for_each_argument(|argument| {
        text.push_str(argument);
        ends.push(text.len());
    });
    // All arguments share one allocation. fred would make two allocations for each argument.
    let (text, mut start) = (Bytes::from(text), 0);
    let argument = |end| Value::Bytes(text.slice(mem::replace(&mut start, end)..end));
    let arguments = ends.into_iter().map(argument).collect();
    // There is only one server, so a key is not necessary to select a server.
    (CustomCommand::new(request.command(), ClusterHash::Random, false), arguments)
}

fn received(reply: Result<Value, FredError>) -> Result<Received, FredError> {
    match reply {
        Ok(value) => Ok(Ok(to_reply(value))),
        Err(error) => error::server(error).map(Err),
    }
}

fn to_reply(value: Value) -> Reply {
    match value {
        Value::Array(values) => Reply::Array(values.into_iter().map(to_reply).collect()),
        Value::Map(map) => {
            let pairs = map.inner().into_iter();
            let flat = pairs
                .flat_map(|(key, value)| [Reply::Bytes(key.as_bytes().to_vec()), to_reply(value)]);
            Reply::Array(flat.collect())
        }
        Value::Bytes(bytes) => Reply::Bytes(bytes.to_vec()),
        Value::String(text) => Reply::Bytes(text.as_bytes().to_vec()),
        Value::Integer(int) => Reply::Int(int),
        Value::Null => Reply::Nil,
        _ => Reply::Other,
    }
}

/// Forwards push messages. The last message reports the end of the connection.
struct Ear {
    listener: PushHandler,
    invalidations: broadcast::Receiver<Invalidation>,
    messages: broadcast::Receiver<Message>,
    task: ConnectHandle,
    _open: watch::Receiver<()>,
}

impl Ear {
    async fn hear(mut self) {
        loop {
            let said = tokio::select! {
                biased;
                // Changes take precedence over reservations. If a change of the key arrived after a
                // waiter had received the key, the waiter would have to assume that its lease may
                // be lost.
                invalidation = self.invalidations.recv() => match invalidation {
                    Ok(Invalidation { keys, .. }) => {
                        Push::Changed(keys.iter().map(|key| key.as_bytes().to_vec()).collect())
                    }
                    Err(RecvError::Lagged(_)) => Push::AllChanged,
                    Err(RecvError::Closed) => return,
                },
                message = self.messages.recv() => match message {
                    Ok(message) => Push::Published(payload(message)),
                    Err(RecvError::Lagged(_)) => Push::AllChanged,
                    Err(RecvError::Closed) => return,
                },
                _ended = &mut self.task => return,
            };
            (self.listener)(said);
        }
    }
}

fn payload(message: Message) -> Vec<u8> {
    message.value.into_bytes().map_or_else(Vec::new, |bytes| bytes.to_vec())
}

impl Drop for Ear {
    fn drop(&mut self) {
        // This code also runs if the runtime shuts down before the connection ends.
        (self.listener)(Push::Closed);
    }
}
