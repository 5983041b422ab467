//! Resolves all addresses of a server, so that each address can be tried.

use std::net::SocketAddr;

use leasehold_core::Error;
use tokio::net::lookup_host;

use crate::address::Address;
use crate::error::unreachable;

/// Returns the IP addresses of a server without duplicates. A Unix socket has no IP address.
///
/// # Errors
///
/// Returns [`Unavailable`](leasehold_core::ErrorKind::Unavailable) if the name has no address.
pub(crate) async fn addresses_of(address: &Address) -> Result<Vec<Option<SocketAddr>>, Error> {
    let Address::Tcp(server) = address else { return Ok(vec![None]) };
    let found = lookup_host((server.host.as_str(), server.port)).await;
    let found = found.map_err(|error| unreachable(&format!("{error:?}")))?;
    let mut addresses = Vec::new();
    for at in found {
        if !addresses.contains(&Some(at)) {
            addresses.push(Some(at));
        }
    }
    if addresses.is_empty() { Err(unreachable("No address associated")) } else { Ok(addresses) }
}
