//! Where servers are.

use std::fmt;
use std::path::PathBuf;

/// Where a server is, without credentials.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    /// A host's name or address, and a port.
    Tcp {
        /// Without brackets, if it is an IPv6 address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// How the servers are found.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Endpoints {
    /// There is one.
    Single(Address),
    /// There is one at a time, and sentinels know which.
    Sentinel {
        /// Some or all of the sentinels.
        sentinels: Vec<Address>,
        /// The sentinels' name of the master.
        master: String,
    },
    /// Each has a part of the keys, and all know which.
    Cluster {
        /// Some or all of the servers.
        seeds: Vec<Address>,
    },
}

impl Address {
    /// On this machine: traffic to it crosses no network.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp { host, .. } => {
                host == "localhost"
                    || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            Self::Unix(_) => true,
        }
    }

    /// Reads `host:port` as servers write it; an empty host is the one that `asked` is on.
    pub(crate) fn read(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, asked)
    }

    /// The same, in two parts. A server that does not know its own host says nothing, or a question mark.
    pub(crate) fn of(host: &str, port: u16, asked: &Self) -> Option<Self> {
        let host = match (host.trim_start_matches('[').trim_end_matches(']'), asked) {
            ("" | "?", Self::Tcp { host, .. }) => host.clone(),
            ("" | "?", Self::Unix(_)) => return None,
            (host, _) => host.to_owned(),
        };
        Some(Self::Tcp { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
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
