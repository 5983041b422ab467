//! One node of a cluster.

use std::path::PathBuf;

use crate::port::free_port;
use crate::proxy::{FaultProxy, NetworkFault};

use super::super::node::Node;
use super::super::server::Login;

/// A node, the port on which it talks to the other nodes, and the id by which they know it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) node: Node,
    pub(super) bus_port: u16,
    pub(super) id: String,
    bus_proxy: Option<FaultProxy>,
}

impl Member {
    pub(super) fn new(folder: PathBuf, login: Option<Login>) -> Self {
        let node = Node::new(folder, login);
        Self { node, bus_port: free_port(), id: new_id(), bus_proxy: None }
    }

    /// Stands behind proxies from now on, as the nth of all.
    pub(super) async fn hide(&mut self, n: usize) {
        self.node.hide(n).await;
        self.bus_proxy = Some(FaultProxy::start(format!("127.0.0.1:{}", self.bus_port)).await);
    }

    /// The port on which the other nodes talk to it.
    pub(super) fn announced_bus_port(&self) -> u16 {
        let Some(proxy) = &self.bus_proxy else { return self.bus_port };
        let address = proxy.address();
        let (_, port) = address.split_once(':').expect("it is an address of IPv4");
        port.parse().expect("it is a port")
    }

    /// Sets the network fault between two nodes, for replicas and for the cluster's bus.
    ///
    /// # Panics
    ///
    /// If they are not behind proxies.
    pub(super) fn set_network_fault_between(&self, other: &Self, fault: NetworkFault) {
        self.node.set_network_fault_between(&other.node, fault);
        for (to, from) in [(self, other), (other, self)] {
            let proxy = to.bus_proxy.as_ref().expect("it was started behind proxies");
            proxy.set_network_fault_from(from.node.source().expect("as before"), fault);
        }
    }

    /// Lets the nodes talk to it again.
    pub(super) fn heal(&self) {
        if let Some(proxy) = &self.bus_proxy {
            proxy.set_network_fault(NetworkFault::None);
        }
    }
}

/// An id that no other node has: forty hexadecimal digits.
pub(super) fn new_id() -> String {
    format!("{:032x}{:08x}", fastrand::u128(..), fastrand::u32(..))
}
