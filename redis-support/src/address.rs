//! The addresses of servers.

use std::fmt;
use std::path::PathBuf;

use leasehold_settings::Server;

/// A server's address, without credentials.
///
/// [`Endpoints`] contains addresses.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// A host and a port.
    Tcp(Server),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Where to find the servers.
///
/// [`Config::from_url`](crate::Config::from_url) reads the endpoints from a URL, and
/// [`Driver::adopt`](crate::Driver::adopt) returns the endpoints.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Endpoints {
    /// A single server.
    Single(Address),
    /// A primary that sentinels report. The primary may change.
    Sentinel {
        /// The addresses of some or all sentinels.
        sentinels: Vec<Address>,
        /// The name of the primary in the sentinels' configuration.
        master: String,
    },
    /// A cluster, in which each server stores a part of the keys and knows all servers.
    Cluster {
        /// The addresses of some or all servers.
        seeds: Vec<Address>,
    },
}

impl Address {
    /// Returns whether the address is on this machine. Requests to such an address do not cross a
    /// network.
    ///
    /// ```
    /// use leasehold_redis_support::Address;
    ///
    /// assert!(Address::Unix("/run/redis.sock".into()).is_local());
    /// ```
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(server) => server.is_local(),
            Self::Unix(_) => true,
        }
    }

    /// Parses `host:port` in the format that servers use. An empty host means the host of `asked`.
    pub(crate) fn read(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, asked)
    }

    /// Creates an address from a host and a port. A server that does not know its own host reports
    /// an empty string or a question mark.
    pub(crate) fn of(host: &str, port: u16, asked: &Self) -> Option<Self> {
        let host = match (host.trim_start_matches('[').trim_end_matches(']'), asked) {
            ("" | "?", Self::Tcp(server)) => server.host.clone(),
            ("" | "?", Self::Unix(_)) => return None,
            (host, _) => host.to_owned(),
        };
        Some(Self::Tcp(Server { host, port }))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(server) => server.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(Server { host: host.to_owned(), port })
    }

    #[test]
    fn servers_name_others_by_host_and_port_and_themselves_perhaps_not_at_all() {
        let asked = tcp("asked", 1);
        for (text, expected) in [
            ("10.0.0.1:7000", Some(tcp("10.0.0.1", 7000))),
            ("node.example:7000", Some(tcp("node.example", 7000))),
            ("fe80::1:7000", Some(tcp("fe80::1", 7000))),
            ("[fe80::1]:7000", Some(tcp("fe80::1", 7000))),
            (":7000", Some(tcp("asked", 7000))),
            ("?:7000", Some(tcp("asked", 7000))),
            ("host", None),
            ("host:port", None),
            ("host:70000", None),
        ] {
            assert_eq!(Address::read(text, &asked), expected, "{text}");
        }
        assert_eq!(Address::read(":7000", &Address::Unix("/socket".into())), None);
    }

    #[test]
    fn a_printed_address_can_be_read() {
        assert_eq!(tcp("fe80::1", 7000).to_string(), "[fe80::1]:7000");
        assert_eq!(tcp("host", 7000).to_string(), "host:7000");
        assert_eq!(Address::Unix("/run/redis.sock".into()).to_string(), "/run/redis.sock");
    }
}
