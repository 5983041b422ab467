//! The addresses of servers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use leasehold_core::Error;

use crate::invalid;

/// A server's host and port. `Display` shows both as in a URL.
///
/// ```
/// use leasehold_settings::Server;
///
/// let server = Server::parse("[::1]", 6379)?;
///
/// assert_eq!((&*server.host, server.port), ("::1", 6379));
/// assert_eq!(server.to_string(), "[::1]:6379");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Server {
    /// The name in lower case, or the IP address. An IPv6 address is not in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Server {
    /// Parses `host` or `host:port`. An IPv6 address must be in brackets.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the host or the port
    /// is not valid.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, Error> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (text, ""),
        };
        Ok(Self { host: parse_host(host)?, port: parse_port(port, default_port)? })
    }

    /// Returns whether the server is on this machine, so that requests do not cross a network.
    pub fn is_local(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

fn parse_host(text: &str) -> Result<String, Error> {
    if text.is_empty() {
        return Err(invalid("the URL has no host; for this machine, write localhost"));
    }
    let in_brackets = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let host = match in_brackets {
        Some(address) => address.parse::<Ipv6Addr>().ok().map(|address| address.to_string()),
        None => text.bytes().all(is_plain).then(|| text.to_ascii_lowercase()),
    };
    let host = host.ok_or_else(|| {
        invalid(
            "invalid host in the URL; a host is an IPv4 address, an IPv6 address in brackets, or a name of ASCII letters, digits, - . and _",
        )
    })?;
    if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
        return Err(invalid(
            "invalid host in the URL; servers listen on 0.0.0.0 and [::], but clients must name one host",
        ));
    }
    Ok(host)
}

fn parse_port(text: &str, default: u16) -> Result<u16, Error> {
    if text.is_empty() {
        return Ok(default);
    }
    let port = text.parse().ok().filter(|port| *port > 0 && !text.starts_with('+'));
    port.ok_or_else(|| invalid("a port in the URL must be a number between 1 and 65535"))
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            host if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_have_one_form() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1:9"),
            ("127.0.0.1:21", "127.0.0.1:21"),
            ("Db-1.Example", "db-1.example:9"),
            ("db_1:80", "db_1:80"),
            ("db:", "db:9"),
            ("[::1]", "[::1]:9"),
            ("[::0001]:7000", "[::1]:7000"),
        ] {
            assert_eq!(Server::parse(text, 9).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_hosts_and_ports_are_refused() {
        for (text, reason) in [
            ("", "no host"),
            (":9", "no host"),
            ("::1", "IPv6 address in brackets"),
            ("[::1", "IPv6 address in brackets"),
            ("[::1]7", "IPv6 address in brackets"),
            ("[host]", "IPv6 address in brackets"),
            ("a b", "ASCII letters"),
            ("bücher.example", "ASCII letters"),
            ("a%41", "ASCII letters"),
            ("u@host", "ASCII letters"),
            ("0.0.0.0", "listen on"),
            ("[::]", "listen on"),
            ("host:x", "between 1 and 65535"),
            ("host:0", "between 1 and 65535"),
            ("host:+1", "between 1 and 65535"),
            ("host:65536", "between 1 and 65535"),
        ] {
            let error = Server::parse(text, 9).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn only_loopback_addresses_are_local() {
        let is_local = |text| Server::parse(text, 9).unwrap().is_local();

        assert!(["localhost", "127.0.0.2", "[::1]"].map(is_local).into_iter().all(|it| it));
        assert!(!["localhost.example", "10.0.0.1", "[fe80::1]"].map(is_local).contains(&true));
    }
}
