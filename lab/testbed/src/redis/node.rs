//! A server in a group of servers.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::port::free_port;
use crate::proxy::{FaultProxy, NetworkFault};

use super::server::{Login, Server};

/// A server and the address by which clients and the other servers know it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: Server,
    port: u16,
    proxy: Option<FaultProxy>,
    source: Option<Ipv4Addr>,
}

impl Node {
    pub(super) fn new(folder: PathBuf, login: Option<Login>) -> Self {
        Self { server: Server::new(folder, login), port: free_port(), proxy: None, source: None }
    }

    /// Puts the server, which has the number `n` in its group, behind a proxy. Proxies recognize
    /// the server by the address that it connects from.
    pub(super) async fn hide(&mut self, n: usize) {
        self.proxy = Some(FaultProxy::start(format!("127.0.0.1:{}", self.port)).await);
        let n = u8::try_from(n).expect("they are few");
        self.source = Some(Ipv4Addr::new(127, 0, 0, 2 + n));
    }

    /// The port on which it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The address that all know.
    pub(super) fn address(&self) -> String {
        self.proxy.as_ref().map_or_else(|| format!("127.0.0.1:{}", self.port), FaultProxy::address)
    }

    /// The port of that address.
    pub(super) fn announced_port(&self) -> String {
        let address = self.address();
        let (_, port) = address.split_once(':').expect("it is an address of IPv4");
        port.to_owned()
    }

    pub(super) fn proxy(&self) -> Option<&FaultProxy> {
        self.proxy.as_ref()
    }

    /// The address from which the server connects, if it is behind a proxy.
    pub(super) fn source(&self) -> Option<Ipv4Addr> {
        self.source
    }

    /// Sets the network fault between two nodes, in both directions.
    ///
    /// # Panics
    ///
    /// If they are not behind proxies.
    pub(super) fn set_network_fault_between(&self, other: &Self, fault: NetworkFault) {
        for (to, from) in [(self, other), (other, self)] {
            let source = from.source.expect("it was started behind proxies");
            to.proxy().expect("as before").set_network_fault_from(source, fault);
        }
    }

    /// # Panics
    ///
    /// If there is no proxy in front of it.
    pub(super) fn set_network_fault(&self, fault: NetworkFault) {
        self.proxy.as_ref().expect("it was started behind proxies").set_network_fault(fault);
    }
}
