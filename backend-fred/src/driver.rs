//! Connects with the `fred` crate.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fred::clients::Client as Connection;
use fred::error::Error as FredError;
use fred::types::RespVersion;
use fred::types::config::{
    Config, ConnectionConfig, CredentialProvider, PerformanceConfig, Server, ServerConfig,
    TcpConfig, UnresponsiveConfig,
};
use leasehold_core::{Error, ErrorKind};
use leasehold_redis_support::{
    Access, Address, ConnectError, Destination, Driver, Endpoints, KeepAlive, Protocol,
    PushHandler, Tls,
};
use socket2::TcpKeepalive;

use crate::connection::{FredConnection, boxed};
use crate::error;

/// The capacity of the queues for push messages. fred allocates each queue in advance, nearly 1 kB
/// in total. A receiver that falls behind must assume that any key may have changed.
const NEWS_QUEUE: usize = 256;

/// fred's value for an unlimited queue. Requests would fail if the queue were full, which would end
/// the connection.
const UNLIMITED: usize = 0;

/// Opens connections with the `fred` crate.
///
/// [`FredBackend`](crate::FredBackend) uses this driver. The crate's example shows how to connect
/// to a server.
#[derive(Clone)]
pub struct FredDriver {
    /// The settings that all connections share, which include the encryption but not the
    /// credentials.
    common: Config,
}

impl Driver for FredDriver {
    const NAME: &'static str = error::BACKEND;

    type Native = Config;
    type Connection = FredConnection;

    fn new(tls: Option<Tls>) -> Result<Self, Error> {
        let common = match tls {
            Some(tls) => with_tls(&tls)?,
            None => Config::default(),
        };
        Ok(Self { common })
    }

    fn adopt(native: Config) -> Result<(Self, Endpoints, Access), Error> {
        if native.credential_provider.is_some() {
            return Err(unsupported(
                "the client uses a credential provider, which Leasehold does not support",
            ));
        }
        ensure_own_names(&native)?;
        let topology = match &native.server {
            ServerConfig::Centralized { server } => Endpoints::Single(address(server)),
            ServerConfig::Unix { path } => Endpoints::Single(Address::Unix(path.clone())),
            ServerConfig::Clustered { hosts, .. } => {
                Endpoints::Cluster { seeds: hosts.iter().map(address).collect() }
            }
            ServerConfig::Sentinel { hosts, service_name, .. } => Endpoints::Sentinel {
                sentinels: hosts.iter().map(address).collect(),
                master: service_name.clone(),
            },
        };
        let access = Access {
            user: native.username.clone(),
            password: native.password.clone(),
            database: native.database.unwrap_or_default().into(),
        };
        let common = Config { username: None, password: None, ..native };
        Ok((Self { common }, topology, access))
    }

    fn is_encrypted(&self) -> bool {
        self.common.uses_tls()
    }

    async fn connect(
        &self,
        to: Destination<'_>,
        access: &Access,
        protocol: Protocol,
        listener: PushHandler,
    ) -> Result<FredConnection, ConnectError> {
        let client = self.prepare(to, access, protocol);
        let connected = boxed(FredConnection::connect(client, access.database, listener)).await;
        connected.map_err(|error| {
            if error::speaks_only_resp2(&error) && protocol == Protocol::Resp3 {
                ConnectError::Protocol
            } else {
                ConnectError::Failed(error::connect(error))
            }
        })
    }
}

impl FredDriver {
    /// Prepares a connection to one server without opening it. The connection never retries a
    /// connection attempt or a request.
    fn prepare(&self, to: Destination<'_>, access: &Access, protocol: Protocol) -> Connection {
        let config = Config {
            fail_fast: true,
            server: match to.address {
                Address::Tcp(server) => ServerConfig::Centralized {
                    server: self.server(&server.host, server.port, to.at),
                },
                Address::Unix(path) => ServerConfig::Unix { path: path.clone() },
            },
            version: match protocol {
                Protocol::Resp2 => RespVersion::RESP2,
                Protocol::Resp3 => RespVersion::RESP3,
            },
            username: access.user.clone(),
            password: access.password.clone(),
            // Without a credential provider, fred would send PING over RESP2, and few users have
            // the permission for PING.
            credential_provider: access.password.is_none().then(|| Arc::new(NoCredentials) as _),
            // fred supports only database numbers up to 255.
            database: None,
            ..self.common.clone()
        };
        let performance = PerformanceConfig {
            default_command_timeout: Duration::ZERO,
            broadcast_channel_capacity: NEWS_QUEUE,
            ..PerformanceConfig::default()
        };
        // The caller limits the time of each connection attempt and each request. For fred, zero
        // means no limit.
        let connection = ConnectionConfig {
            connection_timeout: Duration::ZERO,
            internal_command_timeout: Duration::ZERO,
            unresponsive: UnresponsiveConfig { max_timeout: None, ..Default::default() },
            max_command_attempts: 1,
            max_command_buffer_len: UNLIMITED,
            reconnect_on_auth_error: false,
            auto_client_setname: false,
            // Requests are small, and callers wait for the replies. Delaying packets would only add
            // latency.
            tcp: TcpConfig {
                nodelay: Some(true),
                keepalive: Some(keepalive()),
                ..TcpConfig::default()
            },
            ..ConnectionConfig::default()
        };
        let no_reconnecting = None;
        Connection::new(config, Some(performance), Some(connection), no_reconnecting)
    }

    /// Returns the server at an address. TLS checks the certificate against the host name.
    fn server(&self, host: &str, port: u16, at: Option<SocketAddr>) -> Server {
        // If only the application enabled TLS in fred, fred does not support a host name that
        // differs from the address.
        let Some(at) = at.filter(|_| cfg!(feature = "tls") || !self.is_encrypted()) else {
            return Server::new(host, port);
        };
        let text = at.to_string();
        let (ip, port) = (text.rsplit_once(':').map_or(&*text, |(ip, _)| ip), at.port());
        #[cfg_attr(not(feature = "tls"), expect(unused_mut))]
        let mut server = Server::new(without_brackets(ip), port);
        #[cfg(feature = "tls")]
        {
            server.tls_server_name = Some(host.into());
        }
        server
    }
}

fn without_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn keepalive() -> TcpKeepalive {
    let KeepAlive { idle, interval, retries, .. } = KeepAlive::ALL;
    TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(retries)
}

impl fmt::Debug for FredDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FredDriver").field("tls", &self.is_encrypted()).finish_non_exhaustive()
    }
}

/// A credential provider without credentials.
#[derive(Debug)]
struct NoCredentials;

#[async_trait]
impl CredentialProvider for NoCredentials {
    async fn fetch(
        &self,
        _: Option<&Server>,
    ) -> Result<(Option<String>, Option<String>), FredError> {
        Ok((None, None))
    }
}

fn address(server: &Server) -> Address {
    let host = without_brackets(&server.host).to_owned();
    Address::Tcp(leasehold_redis_support::Server { host, port: server.port })
}

#[cfg(feature = "tls")]
fn with_tls(tls: &Tls) -> Result<Config, Error> {
    let connector = fred::types::config::TlsConnector::from(tls.client_config()?);
    Ok(Config { tls: Some(connector.into()), ..Config::default() })
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: &Tls) -> Result<Config, Error> {
    Err(leasehold_settings::disabled("TLS", "fred", "tls"))
}

/// Rejects servers whose TLS name differs from the name that is used to find them.
#[cfg(feature = "tls")]
fn ensure_own_names(native: &Config) -> Result<(), Error> {
    use fred::types::config::TlsHostMapping;

    let mapped = native.tls.as_ref().is_some_and(|tls| tls.hostnames != TlsHostMapping::None);
    let renamed = native.server.hosts().iter().any(|server| server.tls_server_name.is_some());
    if mapped || renamed {
        return Err(unsupported(
            "the client overrides the TLS names of servers, which Leasehold does not support",
        ));
    }
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn ensure_own_names(_: &Config) -> Result<(), Error> {
    // If only the application enabled TLS in fred, the worst case is that a server with a different
    // name is rejected.
    Ok(())
}

fn unsupported(message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, message).with_backend(error::BACKEND)
}
