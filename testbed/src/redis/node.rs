//! A server among others.

use std::path::PathBuf;

use crate::port::free_port;
use crate::proxy::{FaultProxy, Weather};

use super::server::{Login, Server};

/// A server and the address by which clients and the other servers know it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) server: Server,
    port: u16,
    proxy: Option<FaultProxy>,
}

impl Node {
    pub(super) fn new(folder: PathBuf, login: Option<Login>) -> Self {
        Self { server: Server::new(folder, login), port: free_port(), proxy: None }
    }

    /// Stands behind a proxy from now on.
    pub(super) async fn hide(&mut self) {
        self.proxy = Some(FaultProxy::start(format!("127.0.0.1:{}", self.port)).await);
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

    /// # Panics
    ///
    /// If there is no proxy in front of it.
    pub(super) fn set_weather(&self, weather: Weather) {
        self.proxy.as_ref().expect("it was started behind proxies").set_weather(weather);
    }
}
