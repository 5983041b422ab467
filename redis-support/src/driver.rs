//! The interface of a driver, which connects to one server with a client crate, sends requests, and
//! forwards push messages.
//!
//! The backend chooses the server, limits the time for replies, drops connections and retries
//! requests. The driver does not perform these tasks, because locks depend on them and client
//! crates handle them differently.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_settings::Tls;

use crate::address::{Address, Endpoints};
use crate::dial::addresses_of;
use crate::reply::Received;
use crate::words::{Shape, Words};

/// Opens connections with a client crate.
///
/// The `leasehold-redis` and `leasehold-fred` crates contain complete implementations.
pub trait Driver: Clone + fmt::Debug + Send + Sync + 'static {
    /// The name of the backend in errors and logs.
    const NAME: &'static str;

    /// The client crate's own configuration.
    type Native;

    /// The type of a connection.
    type Connection: Connection;

    /// Creates a driver that uses TLS if `tls` is given.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`](leasehold_core::ErrorKind::Invalid) if the certificates cannot be used,
    /// and [`Unsupported`](leasehold_core::ErrorKind::Unsupported) if TLS was not compiled in.
    fn new(tls: Option<Tls>) -> Result<Self, Error>;

    /// Creates a driver with the TLS settings of `native`. Also returns the servers and the
    /// credentials of `native`.
    ///
    /// # Errors
    ///
    /// Returns [`Unsupported`](leasehold_core::ErrorKind::Unsupported) if `native` has a setting
    /// that Leasehold does not support.
    fn adopt(native: Self::Native) -> Result<(Self, Endpoints, Access), Error>;

    /// Returns whether connections are encrypted.
    fn is_encrypted(&self) -> bool;

    /// Returns the IP addresses to try for a server, which are all addresses of its name.
    ///
    /// # Errors
    ///
    /// Returns [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if the name has no address.
    fn addresses(
        &self,
        address: &Address,
    ) -> impl Future<Output = Result<Vec<Option<SocketAddr>>, Error>> + Send {
        addresses_of(address)
    }

    /// Opens a connection to one server with the credentials in `access`, and passes the server's
    /// push messages to `listener`.
    ///
    /// The caller enforces the time limit by dropping the future. TCP keep-alive must use
    /// [`KeepAlive::ALL`].
    ///
    /// # Errors
    ///
    /// Returns [`ConnectError::Protocol`] if the server does not support `protocol`, and otherwise
    /// [`ConnectError::Failed`] with one of these errors:
    ///
    /// - [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if the server cannot be reached;
    /// - [`Denied`](leasehold_core::ErrorKind::Denied) if the server rejects the credentials or is
    ///   not trusted;
    /// - [`Invalid`](leasehold_core::ErrorKind::Invalid) if the address is not valid;
    /// - [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if the server does not support the
    ///   Redis protocol.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe. If the future is dropped, the connection attempt must
    /// end, and no task may continue.
    fn connect(
        &self,
        to: Destination<'_>,
        access: &Access,
        protocol: Protocol,
        listener: PushHandler,
    ) -> impl Future<Output = Result<Self::Connection, ConnectError>> + Send;
}

/// The destination of a connection.
///
/// [`Driver::connect`] takes an argument of this type.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The server. The server's certificate must be valid for this host.
    pub address: &'a Address,
    /// The IP address to connect to. If `None`, the client crate resolves the host.
    pub at: Option<SocketAddr>,
}

impl<'a> From<&'a Address> for Destination<'a> {
    fn from(address: &'a Address) -> Self {
        Self { address, at: None }
    }
}

/// A connection to one server. Clones share the connection, and dropping the last clone closes it.
///
/// If [`send`](Self::send) returns an error, the server may have received the requests, and the
/// connection is not used again. A connection must never send a request twice.
///
/// The `leasehold-redis` and `leasehold-fred` crates contain complete implementations.
pub trait Connection: Clone + fmt::Debug + Send + Sync + 'static {
    /// Sends `requests` without waiting, and returns one reply per request. The server runs the
    /// requests in order, without requests from concurrent calls in between.
    ///
    /// The first poll of the future must send the requests or add them to the connection's queue,
    /// so that the server receives them before the requests of all futures that are first polled
    /// later. The backend locks a mutex during the first poll, and every call needs this mutex to
    /// send requests. The first poll must therefore not block, call the [`PushHandler`] or send
    /// requests through the backend.
    ///
    /// # Errors
    ///
    /// Returns [`Indeterminate`](leasehold_core::ErrorKind::Indeterminate) if the connection ended
    /// or a reply cannot be read. The server may have run some of the requests. If the server
    /// rejects a request, the rejection is a reply, not an error, and the following requests still
    /// run.
    ///
    /// # Cancel safety
    ///
    /// Implementations must be cancel safe. If the future is dropped, the server may run any of the
    /// requests, and the connection discards their replies.
    fn send(
        &self,
        requests: Vec<Request<'_>>,
    ) -> impl Future<Output = Result<Vec<Received>, Error>> + Send;

    /// Subscribes the connection to `channel`. The backend calls this method only with
    /// [`Protocol::Resp3`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Driver::connect`], because the connection is not ready until it is
    /// subscribed. After an error, the connection is not used again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the caller must also drop the connection. Otherwise, a late error
    /// reply could be assigned to a different request.
    fn subscribe(&self, channel: &str) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A request to a server.
///
/// [`Connection::send`] takes an argument of this type.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// A script by its hash. The server must already have the script.
    ByHash(Run<'a>),
    /// A script with its source.
    BySource(Run<'a>),
    /// The words of a command that does not run a script.
    Words(&'a [&'a str]),
}

impl Request<'_> {
    /// Returns the first word.
    pub fn command(&self) -> &str {
        match self {
            Self::ByHash(_) => "EVALSHA",
            Self::BySource(_) => "EVAL",
            Self::Words(words) => words[0],
        }
    }

    /// Returns the number of words and their total size in bytes. The computed size of a number may
    /// be a few bytes too large.
    pub fn size(&self) -> (usize, usize) {
        let (Run { shape, words }, text) = match self {
            Self::ByHash(run) => (run, run.shape.script.hash()),
            Self::BySource(run) => (run, run.shape.script.source()),
            Self::Words(words) => return (words.len(), words.iter().map(|word| word.len()).sum()),
        };
        let (keys, args) = (shape.keys.clone(), shape.args.clone());
        let bytes = words.bytes_of(keys.clone()) + words.bytes_of(args.clone());
        let count = "65536".len();
        (3 + keys.len() + args.len(), self.command().len() + text.len() + count + bytes)
    }

    /// Calls `add` with each word of the request except the first word.
    pub fn for_each_argument(&self, mut add: impl FnMut(&str)) {
        let Run { shape, words } = match self {
            Self::ByHash(run) => {
                add(run.shape.script.hash());
                run
            }
            Self::BySource(run) => {
                add(run.shape.script.source());
                run
            }
            Self::Words(words) => return words[1..].iter().copied().for_each(add),
        };
        add(&shape.keys.len().to_string());
        words.in_range(shape.keys.clone()).for_each(&mut add);
        words.in_range(shape.args.clone()).for_each(add);
    }
}

/// Replaces the hash with the source in the first run of each script. Later runs find the script on
/// the server.
pub(crate) fn in_full(mut requests: Vec<Request<'_>>) -> Vec<Request<'_>> {
    let mut brought = Vec::new();
    for request in &mut requests {
        if let Request::ByHash(run) = *request
            && !brought.contains(&run.shape.script)
        {
            brought.push(run.shape.script);
            *request = Request::BySource(run);
        }
    }
    requests
}

/// A script with its keys and arguments.
///
/// [`Request`] contains a value of this type.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) words: &'a Words,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Run").field(&self.shape.script).finish()
    }
}

/// The TCP keep-alive settings of a connection.
///
/// Firewalls and address translators drop idle connections silently, most of them after five
/// minutes or more. A connection that is used only for notifications may be idle for longer than
/// that, because nothing is sent on it between two notifications. On an idle connection, TCP
/// therefore sends a probe after 15 s and then every 5 s, and closes the connection after three
/// unanswered probes. If a connection is dropped silently, a waiter therefore misses notifications
/// for at most 30 s, which is the default TTL.
///
/// ```
/// use leasehold_redis_support::KeepAlive;
///
/// assert_eq!(KeepAlive::ALL.idle.as_secs(), 15);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KeepAlive {
    /// How long a connection is idle before the first probe.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// The number of unanswered probes after which the connection is closed.
    pub retries: u32,
}

impl KeepAlive {
    /// The settings for all connections, both to servers that store locks and to sentinels.
    pub const ALL: Self =
        Self { idle: Duration::from_secs(15), interval: Duration::from_secs(5), retries: 3 };
}

/// The versions of the Redis protocol.
///
/// [`Driver::connect`] takes an argument of this type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// RESP2, in which servers do not send push messages.
    Resp2,
    /// RESP3, in which servers send push messages.
    Resp3,
}

/// The credentials and the database of a connection. `Debug` shows neither the user nor the
/// password.
///
/// [`Driver::connect`] takes an argument of this type.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Access {
    /// The user, or `None` for the server's default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("database", &self.database).finish_non_exhaustive()
    }
}

/// Why a connection could not be opened.
///
/// [`Driver::connect`] returns this type.
#[derive(Debug)]
pub enum ConnectError {
    /// The server does not support the protocol version.
    Protocol,
    /// A different error.
    Failed(Error),
}

/// Receives a server's push messages, in the connection's task. The handler must not block.
///
/// [`Driver::connect`] takes a handler as an argument.
pub type PushHandler = Arc<dyn Fn(Push) + Send + Sync>;

/// A push message from a server. `Debug` does not show published messages, because they contain
/// lease IDs.
///
/// A [`PushHandler`] receives these messages.
#[derive(Clone)]
#[non_exhaustive]
pub enum Push {
    /// The given keys have changed. The server does not report further changes of these keys until
    /// they are read again.
    Changed(Vec<Vec<u8>>),
    /// All keys may have changed, or messages may have been missed.
    AllChanged,
    /// A message was published on a channel.
    Published(Vec<u8>),
    /// The connection has ended.
    Closed,
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(keys) => f.debug_tuple("Changed").field(&keys.len()).finish(),
            Self::AllChanged => f.write_str("AllChanged"),
            Self::Published(_) => f.debug_struct("Published").finish_non_exhaustive(),
            Self::Closed => f.write_str("Closed"),
        }
    }
}
