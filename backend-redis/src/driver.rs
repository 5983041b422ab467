//! Connects with the `redis` crate.

use std::convert::Infallible;
use std::iter;
use std::net::SocketAddr;

use leasehold_core::{Error, ErrorKind};
use leasehold_redis_support::{
    Access, Address, ConnectError, Destination, Driver, Endpoints, KeepAlive, Protocol, Push,
    PushHandler, Server, Tls,
};
use redis::io::AsyncDNSResolver;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind as RedisKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisFuture, Value,
};

use crate::connection::RedisConnection;
use crate::error;

/// The number of requests that may wait to be written. With the client crate's default of 50,
/// callers would wait for a free slot.
const WRITE_QUEUE: usize = 1_024;

/// Opens connections with the `redis` crate.
///
/// [`RedisBackend`](crate::RedisBackend) uses this driver. The crate's example shows how to connect
/// to a server.
#[derive(Clone, Debug)]
pub struct RedisDriver {
    tls: Encryption,
}

/// The encryption of connections.
#[derive(Clone, Debug)]
enum Encryption {
    None,
    /// TLS with these certificates.
    Tls(Tls),
    /// The encryption settings of an application's client, from an address.
    Like(ConnectionAddr),
}

impl Driver for RedisDriver {
    const NAME: &'static str = error::BACKEND;

    type Native = redis::Client;
    type Connection = RedisConnection;

    fn new(tls: Option<Tls>) -> Result<Self, Error> {
        let Some(tls) = tls else {
            return Ok(Self { tls: Encryption::None });
        };
        ensure_tls()?;
        let client = Self { tls: Encryption::Tls(tls) };
        // Unusable certificates are reported now, instead of on the first connection.
        let nowhere = Address::Tcp(Server { host: "localhost".to_owned(), port: 1 });
        client.open(&nowhere, &Access::default(), Protocol::Resp3).map_err(error::config)?;
        Ok(client)
    }

    fn adopt(native: redis::Client) -> Result<(Self, Endpoints, Access), Error> {
        let info = native.get_connection_info();
        let (address, tls) = match info.addr().clone() {
            ConnectionAddr::Tcp(host, port) => {
                (Address::Tcp(Server { host, port }), Encryption::None)
            }
            ConnectionAddr::Unix(path) => (Address::Unix(path), Encryption::None),
            like @ ConnectionAddr::TcpTls { .. } => {
                // Without the `tls` feature, the application that created the client has already
                // prepared TLS.
                drop(ensure_tls());
                let ConnectionAddr::TcpTls { host, port, .. } = like.clone() else {
                    unreachable!()
                };
                (Address::Tcp(Server { host, port }), Encryption::Like(like))
            }
            _ => {
                let message = "the client uses a type of address that Leasehold does not support";
                return Err(Error::new(ErrorKind::Unsupported, message).with_backend(Self::NAME));
            }
        };
        let settings = info.redis_settings();
        let access = Access {
            user: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            database: u32::try_from(settings.db()).map_err(|_| {
                let message = "the client uses a database number that Leasehold does not support";
                Error::new(ErrorKind::Unsupported, message).with_backend(Self::NAME)
            })?,
        };
        Ok((Self { tls }, Endpoints::Single(address), access))
    }

    fn is_encrypted(&self) -> bool {
        !matches!(self.tls, Encryption::None)
    }

    async fn connect(
        &self,
        to: Destination<'_>,
        access: &Access,
        protocol: Protocol,
        listener: PushHandler,
    ) -> Result<RedisConnection, ConnectError> {
        let failed = |error| ConnectError::Failed(error::connect(error));
        let client = self.open(to.address, access, protocol).map_err(failed)?;
        // The caller limits the time of each connection attempt and each request.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE);
        if let Some(at) = to.at {
            config = config.set_dns_resolver(OneAddress(at));
        }
        if protocol == Protocol::Resp3 {
            config = config.set_push_sender(move |push| hear(&listener, push));
        }
        match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => Ok(RedisConnection::new(connection)),
            Err(error) if speaks_only_resp2(&error) => Err(ConnectError::Protocol),
            Err(error) => Err(failed(error)),
        }
    }
}

impl RedisDriver {
    fn open(
        &self,
        address: &Address,
        access: &Access,
        protocol: Protocol,
    ) -> Result<redis::Client, RedisError> {
        let address = match (address.clone(), &self.tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path),
            (Address::Tcp(Server { host, port }), Encryption::None) => {
                ConnectionAddr::Tcp(host, port)
            }
            (Address::Tcp(Server { host, port }), Encryption::Tls(_)) => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            }
            (Address::Tcp(Server { host, port }), Encryption::Like(like)) => {
                like_that(like, host, port)
            }
        };
        let mut settings = RedisConnectionInfo::default()
            .set_db(i64::from(access.database))
            .set_protocol(match protocol {
                Protocol::Resp2 => ProtocolVersion::RESP2,
                Protocol::Resp3 => ProtocolVersion::RESP3,
            })
            .set_lib_name("leasehold", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &access.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &access.password {
            settings = settings.set_password(password);
        }
        // Requests are small, and callers wait for the replies. Delaying packets would only add
        // latency.
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
        let info = address.into_connection_info()?;
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        match &self.tls {
            Encryption::Tls(tls) => open_with_tls(info, tls),
            Encryption::None | Encryption::Like(_) => redis::Client::open(info),
        }
    }
}

/// A resolver that returns one fixed address for each name.
struct OneAddress(SocketAddr);

impl AsyncDNSResolver for OneAddress {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _host: &'b str,
        _port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async { Ok(Box::new(iter::once(self.0)) as Box<_>) })
    }
}

fn keepalive() -> TcpKeepalive {
    let KeepAlive { idle, interval, retries, .. } = KeepAlive::ALL;
    TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(retries)
}

/// Returns the address of a different host, with the encryption settings of `like`.
fn like_that(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like.clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

#[cfg(feature = "tls")]
fn open_with_tls(info: redis::ConnectionInfo, tls: &Tls) -> Result<redis::Client, RedisError> {
    let client_tls = tls
        .identity
        .clone()
        .map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
    let certificates = redis::TlsCertificates { client_tls, root_cert: tls.authority.clone() };
    redis::Client::build_with_tls(info, certificates)
}

#[cfg(not(feature = "tls"))]
fn open_with_tls(_: redis::ConnectionInfo, _: &Tls) -> Result<redis::Client, RedisError> {
    unreachable!("TLS was refused before")
}

#[cfg(feature = "tls")]
fn ensure_tls() -> Result<(), Error> {
    // The client crate uses the process-wide crypto provider and panics if none is installed. An
    // error means that the application has already installed a provider, which is then used.
    drop(rustls::crypto::ring::default_provider().install_default());
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn ensure_tls() -> Result<(), Error> {
    Err(leasehold_settings::disabled("TLS", "redis", "tls"))
}

/// Handles a push message from the server.
fn hear(listener: &PushHandler, push: PushInfo) -> Result<(), Infallible> {
    match push.kind {
        PushKind::Invalidate => {
            for value in push.data {
                match value {
                    Value::Array(keys) => {
                        let keys = keys.into_iter().filter_map(bytes).collect();
                        listener(Push::Changed(keys));
                    }
                    Value::Nil => listener(Push::AllChanged),
                    _ => {}
                }
            }
        }
        // The data consists of the channel and the published message.
        PushKind::Message => {
            listener(Push::Published(
                push.data.into_iter().nth(1).and_then(bytes).unwrap_or_default(),
            ));
        }
        PushKind::Disconnection => listener(Push::Closed),
        _ => {}
    }
    Ok(())
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn speaks_only_resp2(error: &RedisError) -> bool {
    error.kind() == RedisKind::RESP3NotSupported || error.code() == Some("NOPROTO")
}
