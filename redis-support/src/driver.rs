//! The duties of a driver: connect to one server with a client crate, send requests to it, and pass on its push messages.
//!
//! The backend, not the driver, chooses the server, limits the time of a reply, gives up connections and repeats
//! requests: client crates differ in these points, and a lock must know them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;

use crate::address::{Address, Endpoints};
use crate::dial::addresses_of;
use crate::reply::Received;
use crate::words::{Shape, Words};

/// The driver of a client crate, ready to connect.
pub trait Driver: Clone + fmt::Debug + Send + Sync + 'static {
    /// How errors and logs name the backend.
    const NAME: &'static str;

    /// The client crate's own configuration.
    type Native;

    /// A connection.
    type Connection: Connection;

    /// A client that uses TLS, or none.
    ///
    /// # Errors
    ///
    /// [`Invalid`](leasehold_core::ErrorKind::Invalid) if the certificates cannot be used,
    /// [`Unsupported`](leasehold_core::ErrorKind::Unsupported) if TLS was not compiled in.
    fn new(tls: Option<Tls>) -> Result<Self, Error>;

    /// A client with the TLS settings of `native`, its servers and its credentials.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](leasehold_core::ErrorKind::Unsupported) if `native` has a setting that Leasehold lacks.
    fn adopt(native: Self::Native) -> Result<(Self, Endpoints, Access), Error>;

    /// Whether the connections are encrypted.
    fn is_encrypted(&self) -> bool;

    /// The destinations to try for a server: those of all addresses of its name.
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

    /// Makes one connection to one server, as the user that `access` names, and passes the server's push messages to `listener`.
    ///
    /// The caller limits the time by dropping the future. TCP keeps the connection alive as [`KeepAlive::ALL`] says.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Protocol`] if the server does not know `protocol`, else [`ConnectError::Failed`]: as
    /// [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if it cannot be reached, as
    /// [`Denied`](leasehold_core::ErrorKind::Denied) if it does not let us in or is not trusted, as
    /// [`Invalid`](leasehold_core::ErrorKind::Invalid) if the address cannot be one, as
    /// [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if it speaks another protocol.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the connection that was being made ends, and nothing is left running.
    fn connect(
        &self,
        to: Destination<'_>,
        access: &Access,
        protocol: Protocol,
        listener: PushHandler,
    ) -> impl Future<Output = Result<Self::Connection, ConnectError>> + Send;
}

/// Where a connection leads.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    /// The server. Its certificate must be for this host.
    pub address: &'a Address,
    /// The address of the host to connect to. If it is `None`, the client crate looks the host up.
    pub at: Option<SocketAddr>,
}

impl<'a> From<&'a Address> for Destination<'a> {
    fn from(address: &'a Address) -> Self {
        Self { address, at: None }
    }
}

/// A connection to one server while it lasts. Clones share it; the last one closes it.
///
/// Errors are of requests that were, or may have been, sent, and the connection is given up after one. Nothing is ever sent twice.
pub trait Connection: Clone + fmt::Debug + Send + Sync + 'static {
    /// Sends `requests` at once, to be done in this order with none of another call between them, and waits for as many replies as long as
    /// the connection lasts.
    ///
    /// # Errors
    ///
    /// [`Indeterminate`](leasehold_core::ErrorKind::Indeterminate) if the connection ended or a reply makes no sense; the server may
    /// have run some of the requests by then. A refusal by the server is no error but a reply, and it runs the requests after that one
    /// all the same.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The server may run any of the requests; the connection takes their late replies and drops them.
    fn send(
        &self,
        requests: Vec<Request<'_>>,
    ) -> impl Future<Output = Result<Vec<Received>, Error>> + Send;

    /// Subscribes the connection to `channel`. Only with [`Protocol::Resp3`].
    ///
    /// # Errors
    ///
    /// The errors of [`Driver::connect`]: this is a part of connecting, and without it the connection is given up.
    ///
    /// # Cancel safety
    ///
    /// Drop the connection as well: a refusal that comes later may be taken for the reply to another request.
    fn subscribe(&self, channel: &str) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A request to a server.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// A script that the server knows, by its hash.
    ByHash(Run<'a>),
    /// A script, in full.
    BySource(Run<'a>),
    /// Any other command, by its words.
    Words(&'a [&'a str]),
}

impl Request<'_> {
    /// Its first word.
    pub fn command(&self) -> &str {
        match self {
            Self::ByHash(_) => "EVALSHA",
            Self::BySource(_) => "EVAL",
            Self::Words(words) => words[0],
        }
    }

    /// How many words it has, and how many bytes they take: a word that is a number may count as a few bytes more.
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

    /// Passes all words after the first to `add`.
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

/// The same requests, where the first run of each script brings the source along, and the others find it there.
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

/// A run of a script.
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

/// When TCP asks whether the other side of an idle connection is still there.
///
/// Firewalls and address translators forget idle connections, most after five minutes or more, and tell neither side. Nothing of ours asks
/// while a connection is only listened to. So TCP asks after 15 s, every 5 s, and gives up after three questions without an answer: a
/// waiter misses news for no longer than a lease with the default TTL of 30 s lasts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KeepAlive {
    /// How long a connection is idle before the first question.
    pub idle: Duration,
    /// The time between two questions.
    pub interval: Duration,
    /// How many remain without an answer before the connection ends.
    pub retries: u32,
}

impl KeepAlive {
    /// The same for all connections: those to stores and those to sentinels.
    pub const ALL: Self =
        Self { idle: Duration::from_secs(15), interval: Duration::from_secs(5), retries: 3 };
}

/// The protocols that servers speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// The old one, in which servers say nothing unasked.
    Resp2,
    /// The one in which they do.
    Resp3,
}

/// The credentials of a connection. `Debug` does not show them.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Access {
    /// The user, if it is not the server's default one.
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

/// How TLS is spoken: with certificates and keys in PEM. `Debug` keeps them to itself.
#[derive(Clone, Default)]
pub struct Tls {
    /// The authority to trust; without it, those that the system trusts.
    pub authority: Option<Vec<u8>>,
    /// The certificate of this client, and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// The server does not know the protocol.
    Protocol,
    /// Anything else.
    Failed(Error),
}

/// Receives the push messages of a server, in the connection's own task. It must not wait.
pub type PushHandler = Arc<dyn Fn(Push) + Send + Sync>;

/// A push message of a server. `Debug` does not show published texts, which hold lease ids.
#[derive(Clone)]
#[non_exhaustive]
pub enum Push {
    /// These keys were changed, and the server forgets that we want to hear of them.
    Changed(Vec<Vec<u8>>),
    /// All keys were, or anything may have been said that was not heard.
    AllChanged,
    /// This was published on a channel.
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
