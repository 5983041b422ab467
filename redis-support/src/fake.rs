//! A driver for tests, in which functions act as the servers.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold_core::clock::SystemClock;
use leasehold_core::{Error, ErrorKind};
use leasehold_settings::{Server, Tls};

use crate::address::{Address, Endpoints};
use crate::connection::{ConnectionManager, Role};
use crate::context::Context;
use crate::driver::{
    Access, ConnectError, Connection, Destination, Driver, Protocol, PushHandler, Request,
};
use crate::layout::Layout;
use crate::reply::Received;
use crate::watch::News;

/// A function that returns the reply of a server to a command, or `None` if the server hangs.
pub(crate) type Answer = Arc<dyn Fn(&[String]) -> Option<Received> + Send + Sync>;

/// The servers by their addresses.
#[derive(Clone, Default)]
pub(crate) struct Fake {
    pub(crate) encrypted: bool,
    servers: Arc<Mutex<HashMap<String, Answer>>>,
    delays: Arc<Mutex<HashMap<String, Duration>>>,
    old: Arc<Mutex<Vec<String>>>,
    listeners: Arc<Mutex<Vec<(String, PushHandler)>>>,
    open: Arc<Mutex<Vec<Weak<()>>>>,
    round_trips: Arc<Mutex<Vec<usize>>>,
    mute: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Fake {
    /// Adds an address that accepts connections and never replies to the names of all servers. The
    /// new address is tried first.
    pub(crate) fn add_mute_address(&self) {
        self.mute.lock().unwrap().push(([192, 0, 2, 1], 1).into());
    }

    /// Delays the replies of all later round trips to a server.
    pub(crate) fn delay(&self, address: &str, delay: Duration) {
        self.delays.lock().unwrap().insert(address.to_owned(), delay);
    }

    /// Adds a server, or replaces the server at this address.
    pub(crate) fn serve(
        &self,
        address: &str,
        answer: impl Fn(&[String]) -> Option<Received> + Send + Sync + 'static,
    ) {
        self.servers.lock().unwrap().insert(address.to_owned(), Arc::new(answer));
    }

    /// Makes a server support only RESP2.
    pub(crate) fn speak_resp2(&self, address: &str) {
        self.old.lock().unwrap().push(address.to_owned());
    }

    /// Removes the server at this address.
    pub(crate) fn remove(&self, address: &str) {
        self.servers.lock().unwrap().remove(address);
    }

    /// Returns all push handlers of a server.
    pub(crate) fn listeners(&self, address: &str) -> Vec<PushHandler> {
        let listeners = self.listeners.lock().unwrap();
        let of_this = listeners.iter().filter(|(of, _)| of == address);
        of_this.map(|(_, listener)| Arc::clone(listener)).collect()
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.open.lock().unwrap().iter().filter(|open| open.strong_count() > 0).count()
    }

    /// Returns the number of requests in each round trip.
    pub(crate) fn round_trips(&self) -> Vec<usize> {
        self.round_trips.lock().unwrap().clone()
    }

    /// Returns a connection to the first server, with a time limit of 500 ms for replies.
    pub(crate) fn connection(&self, layout: &Layout) -> Arc<ConnectionManager<Self>> {
        let (news, clock) = (Arc::new(News::new(layout.clone())), Arc::new(SystemClock));
        let timeout = Duration::from_millis(500);
        let context = Context::new(self.clone(), timeout, clock, news, true, Protocol::Resp3);
        ConnectionManager::new(Self::address(1), Access::default(), Role::Store, &context)
    }

    /// Returns the address of a server in the form that other servers report.
    pub(crate) fn address(port: u16) -> Address {
        Address::Tcp(Server { host: "h".to_owned(), port })
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

impl Driver for Fake {
    const NAME: &'static str = "fake";

    type Native = ();
    type Connection = FakeConnection;

    fn new(tls: Option<Tls>) -> Result<Self, Error> {
        Ok(Self { encrypted: tls.is_some(), ..Self::default() })
    }

    fn adopt((): ()) -> Result<(Self, Endpoints, Access), Error> {
        let topology = Endpoints::Single(Self::address(6379));
        Ok((Self::default(), topology, Access::default()))
    }

    fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    async fn addresses(&self, _address: &Address) -> Result<Vec<Option<SocketAddr>>, Error> {
        let mute = self.mute.lock().unwrap();
        Ok(mute.iter().map(|at| Some(*at)).chain([None]).collect())
    }

    async fn connect(
        &self,
        to: Destination<'_>,
        _access: &Access,
        protocol: Protocol,
        listener: PushHandler,
    ) -> Result<FakeConnection, ConnectError> {
        let address = to.address.to_string();
        if to.at.is_some() {
            std::future::pending::<()>().await;
        }
        if !self.servers.lock().unwrap().contains_key(&address) {
            let error = Error::new(ErrorKind::Unavailable, "no server listens there");
            return Err(ConnectError::Failed(error));
        }
        if protocol == Protocol::Resp3 && self.old.lock().unwrap().contains(&address) {
            return Err(ConnectError::Protocol);
        }
        self.listeners.lock().unwrap().push((address.clone(), listener));
        let (servers, delays) = (Arc::clone(&self.servers), Arc::clone(&self.delays));
        let open = Arc::new(());
        self.open.lock().unwrap().push(Arc::downgrade(&open));
        let round_trips = Arc::clone(&self.round_trips);
        Ok(FakeConnection { address, servers, delays, round_trips, _open: open })
    }
}

#[derive(Clone)]
pub(crate) struct FakeConnection {
    address: String,
    servers: Arc<Mutex<HashMap<String, Answer>>>,
    delays: Arc<Mutex<HashMap<String, Duration>>>,
    round_trips: Arc<Mutex<Vec<usize>>>,
    _open: Arc<()>,
}

impl fmt::Debug for FakeConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl FakeConnection {
    async fn ask(&self, request: Request<'_>) -> Result<Received, Error> {
        let mut words = vec![request.command().to_owned()];
        request.for_each_argument(|argument| words.push(argument.to_owned()));
        let answer = self.servers.lock().unwrap().get(&self.address).cloned();
        let Some(answer) = answer else {
            return Err(Error::new(ErrorKind::Indeterminate, "the connection broke"));
        };
        match answer(&words) {
            Some(received) => Ok(received),
            None => std::future::pending().await,
        }
    }
}

impl Connection for FakeConnection {
    async fn send(&self, requests: Vec<Request<'_>>) -> Result<Vec<Received>, Error> {
        self.round_trips.lock().unwrap().push(requests.len());
        let delay = self.delays.lock().unwrap().get(&self.address).copied();
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
        let mut replies = Vec::new();
        for request in requests {
            replies.push(self.ask(request).await?);
        }
        Ok(replies)
    }

    async fn subscribe(&self, _channel: &str) -> Result<(), Error> {
        Ok(())
    }
}
