//! Resolves the addresses of servers. A host name may have several addresses, some of which may not
//! reply.

use std::collections::HashMap;
use std::sync::Mutex;

use leasehold_core::backend::unpoisoned;
use tokio::net::lookup_host;

use crate::error::{self, Failure};

/// The addresses of servers, in the form `ip:port`.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// For each server, the address that replied last.
    good: Mutex<HashMap<String, String>>,
    /// Addresses for tests, which replace the resolver for all names.
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

    /// Returns the addresses of the server `host:port`. The address that replied last comes first.
    pub(crate) async fn of(&self, server: &str) -> Result<Vec<String>, Failure> {
        let mut addresses = self.resolve(server).await?;
        if let Some(good) = unpoisoned(&self.good).get(server) {
            addresses.sort_by_key(|address| address != good);
        }
        Ok(addresses)
    }

    /// Records that the server has replied at this address.
    pub(crate) fn worked(&self, server: &str, address: &str) {
        unpoisoned(&self.good).insert(server.to_owned(), address.to_owned());
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
