//! The `fred` crate as the client: a connection while it lasts.

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
#[derive(Clone, Debug)]
pub struct FredConnection(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    /// Is closed when the connection has ended.
    ended: watch::Sender<()>,
    task: Task,
}

/// The task of fred that has the connection, and closes it when it ends.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FredConnection {
    /// Connects. The connection ends if the call is dropped, and when its last clone is.
    pub(crate) async fn connect(
        client: Client,
        database: u32,
        listener: PushHandler,
    ) -> Result<Self, FredError> {
        // fred's own way to wait for the connection leaves its task behind if the wait is dropped.
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
        // All connections begin with the first database, and few users may select it.
        if database != 0 {
            connection.select(database).await?;
        }
        Ok(connection)
    }

    /// Names the connection to the server.
    ///
    /// The content of the reply does not matter, but its arrival does: fred takes a connection that
    /// is closed while it is being set up for a good one.
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

    /// Waits for a reply as long as one may come. fred keeps a request that comes too late for its next connection, and there
    /// is none.
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
                // Is only noted, and sent with the others.
                pipeline.custom_raw(command, arguments).await?;
            }
            Ok(pipeline.try_all::<Value>().await)
        });
        let replies = replies.await.map_err(error::exchange)?;
        if replies.len() != count {
            // An error of all requests is reported once.
            let failure = replies.into_iter().find_map(Result::err);
            return Err(error::exchange(failure.unwrap_or_else(error::closed)));
        }
        let replies: Result<_, _> = replies.into_iter().map(received).collect();
        replies.map_err(error::exchange)
    }

    async fn subscribe(&self, channel: &str) -> Result<(), Error> {
        // fred expects no reply but the push message that confirms, so that it takes a refusal for the reply to the next request.
        // That is HELLO, which every user may send and which changes nothing, and it is sent before the reply can come.
        let subscribed = self.while_open(async {
            let pipeline = self.0.client.pipeline();
            pipeline.subscribe(channel.to_owned()).await?;
            let (command, arguments) = command(Request::Words(&["HELLO"]));
            pipeline.custom_raw(command, arguments).await?;
            pipeline.last::<Value>().await
        });
        subscribed.await.map(drop).map_err(|error| {
            // All further replies would be taken for those to other requests.
            self.0.task.0.abort();
            error::connect(error)
        })
    }
}

/// Hides the type of a future. The futures of fred are nested so deeply that the compiler loses count in the futures that
/// await ours.
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
    // All of them share one allocation. fred would make two for each.
    let (text, mut start) = (Bytes::from(text), 0);
    let argument = |end| Value::Bytes(text.slice(mem::replace(&mut start, end)..end));
    let arguments = ends.into_iter().map(argument).collect();
    // There is one server, and so no key to choose it by.
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

/// Passes on push messages and, as the last one, the end of the connection.
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
                // Before the offers: news of a key that a waiter hears once it holds the key says that the lease may be lost.
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
        // Also if the runtime ends before the connection.
        (self.listener)(Push::Closed);
    }
}
