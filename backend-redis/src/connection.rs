//! A connection of the `redis` crate.

use leasehold_core::Error;
use leasehold_redis_support::{Connection, Received, Reply, Request};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};

use crate::error;

/// A connection that many callers share.
///
/// [`RedisDriver`](crate::RedisDriver) opens connections. The crate's example shows how to connect
/// to a server.
#[derive(Clone, Debug)]
pub struct RedisConnection(MultiplexedConnection);

impl RedisConnection {
    pub(crate) fn new(connection: MultiplexedConnection) -> Self {
        Self(connection)
    }
}

impl Connection for RedisConnection {
    async fn send(&self, requests: Vec<Request<'_>>) -> Result<Vec<Received>, Error> {
        let mut connection = self.0.clone();
        if let [request] = requests[..] {
            let reply = command(request).query_async::<Value>(&mut connection).await;
            return Ok(vec![received(reply).map_err(error::exchange)?]);
        }
        let mut pipeline = redis::pipe();
        for request in requests {
            pipeline.add_command(command(request));
        }
        pipeline.ignore_errors();
        let replies = pipeline.query_async::<Vec<RedisResult<Value>>>(&mut connection).await;
        let replies = replies.and_then(|replies| replies.into_iter().map(received).collect());
        replies.map_err(error::exchange)
    }

    async fn subscribe(&self, channel: &str) -> Result<(), Error> {
        self.0.clone().subscribe(channel).await.map_err(error::connect)
    }
}

fn command(request: Request<'_>) -> Cmd {
    // A request may be long. Reserving space for it avoids copies while the request is built.
    let (words, bytes) = request.size();
    let mut command = Cmd::with_capacity(words, bytes);
    command.arg(request.command());
    request.for_each_argument(|argument| {
        command.arg(argument);
    });
    command
}

fn received(reply: RedisResult<Value>) -> Result<Received, RedisError> {
    match reply {
        Ok(value) => Ok(Ok(to_reply(value))),
        Err(error) => error::server(error).map(Err),
    }
}

fn to_reply(value: Value) -> Reply {
    match value {
        Value::Array(values) => Reply::Array(values.into_iter().map(to_reply).collect()),
        Value::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            Reply::Array(flat.map(to_reply).collect())
        }
        Value::BulkString(bytes) => Reply::Bytes(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            Reply::Bytes(text.into_bytes())
        }
        Value::Okay => Reply::Bytes(b"OK".to_vec()),
        Value::Int(int) => Reply::Int(int),
        Value::Nil => Reply::Nil,
        _ => Reply::Other,
    }
}
