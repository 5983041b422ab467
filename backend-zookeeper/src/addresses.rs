//! The addresses of servers. A name may have several, and some of them may not answer.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::net::lookup_host;

use crate::error::{self, Failure};
use crate::sync::locked;

/// The addresses of servers, each `ip:port`.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// The address at which each server answered last.
    good: Mutex<HashMap<String, String>>,
    /// The addresses of all names, in place of the resolver's.
    #[cfg(test)]
    pub(crate) fixed: Option<Vec<String>>,
}

impl Addresses {
    pub(crate) fn new() -> Self {
        Self {
            good: Mutex::default(),
            #[cfg(test)]
            fixed: None,
        }
    }

    /// The addresses of a server, `host:port`. The address at which it answered last comes first.
    pub(crate) async fn of(&self, server: &str) -> Result<Vec<String>, Failure> {
        let mut addresses = self.resolve(server).await?;
        if let Some(good) = locked(&self.good).get(server) {
            addresses.sort_by_key(|address| address != good);
        }
        Ok(addresses)
    }

    /// The server has answered at this address.
    pub(crate) fn worked(&self, server: &str, address: &str) {
        locked(&self.good).insert(server.to_owned(), address.to_owned());
    }

    async fn resolve(&self, server: &str) -> Result<Vec<String>, Failure> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let found = lookup_host(server).await;
        let found = found.map_err(|failed| Failure::ServerDown(error::refused(&failed)))?;
        let mut addresses = Vec::new();
        for address in found.map(|address| address.to_string()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}
