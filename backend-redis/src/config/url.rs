//! A server's URL.

use std::time::Duration;

use leasehold_core::Error;
use redis::{Client, IntoConnectionInfo, ProtocolVersion};
use url::Url;

use super::{Push, RedisConfig, invalid};
use crate::error;

/// Reads a URL and what its parameters say.
pub(super) fn read(url: &str) -> Result<RedisConfig, Error> {
    let url = Url::parse(url).map_err(|error| invalid(format!("the URL: {error}")))?;
    let params = Params::read(&url)?;
    let mut config = RedisConfig::from_client(client(url, &params.tls)?);
    config.push = params.push;
    config.protocol = params.protocol;
    if let Some(prefix) = params.prefix {
        config = config.prefix(prefix)?;
    }
    if let Some(timeout) = params.timeout {
        config = config.timeout(timeout)?;
    }
    Ok(config)
}

/// The parameters of a URL that are ours.
struct Params {
    prefix: Option<String>,
    timeout: Option<Duration>,
    push: Push,
    protocol: ProtocolVersion,
    tls: TlsFiles,
}

/// Paths of PEM files.
#[derive(Default)]
struct TlsFiles {
    authority: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl TlsFiles {
    fn is_empty(&self) -> bool {
        self.authority.is_none() && self.certificate.is_none() && self.key.is_none()
    }
}

impl Params {
    fn read(url: &Url) -> Result<Self, Error> {
        let mut params = Self {
            prefix: None,
            timeout: None,
            push: Push::Wanted,
            protocol: ProtocolVersion::RESP3,
            tls: TlsFiles::default(),
        };
        for (name, value) in url.query_pairs() {
            let value = value.into_owned();
            match &*name {
                "prefix" => params.prefix = Some(value),
                "timeout-ms" => params.timeout = Some(millis(&value)?),
                "push" => params.push = push(&value)?,
                "protocol" => params.protocol = protocol(&value)?,
                "ca" => params.tls.authority = Some(value),
                "cert" => params.tls.certificate = Some(value),
                "key" => params.tls.key = Some(value),
                // Those of the client crate.
                "db" | "user" | "pass" => {}
                _ => {
                    return Err(invalid(format!(
                        "the URL has an unknown parameter {name:?}; known are prefix, timeout-ms, push, \
                         protocol, ca, cert, key, db, user, pass"
                    )));
                }
            }
        }
        if url.fragment().is_some() {
            return Err(invalid("the URL must not have a part after #"));
        }
        Ok(params)
    }
}

fn millis(value: &str) -> Result<Duration, Error> {
    let millis = value.parse().map_err(|_| invalid("timeout-ms in the URL must be a number"))?;
    Ok(Duration::from_millis(millis))
}

fn push(value: &str) -> Result<Push, Error> {
    match value {
        "on" => Ok(Push::Wanted),
        "off" => Ok(Push::Off),
        _ => Err(invalid("push in the URL must be on or off")),
    }
}

fn protocol(value: &str) -> Result<ProtocolVersion, Error> {
    match value {
        "resp2" => Ok(ProtocolVersion::RESP2),
        "resp3" => Ok(ProtocolVersion::RESP3),
        _ => Err(invalid("protocol in the URL must be resp2 or resp3")),
    }
}

fn client(url: Url, tls: &TlsFiles) -> Result<Client, Error> {
    let secure = matches!(url.scheme(), "rediss" | "valkeys");
    if secure {
        ensure_tls()?;
    }
    let info = url.into_connection_info().map_err(error::config)?;
    if tls.is_empty() {
        return Client::open(info).map_err(error::config);
    }
    if !secure {
        return Err(invalid("ca, cert and key in the URL need rediss://"));
    }
    client_with_files(info, tls)
}

#[cfg(feature = "tls")]
pub(super) fn ensure_tls() -> Result<(), Error> {
    // The client crate takes the process's provider of cryptography and panics if there is none. An
    // error means that the application has installed one already, which is then used.
    drop(rustls::crypto::ring::default_provider().install_default());
    Ok(())
}

#[cfg(not(feature = "tls"))]
pub(super) fn ensure_tls() -> Result<(), Error> {
    let message = "TLS needs the Cargo feature `tls` of leasehold-redis (`redis-tls` of leasehold)";
    Err(Error::new(leasehold_core::ErrorKind::Unsupported, message))
}

#[cfg(feature = "tls")]
fn client_with_files(info: redis::ConnectionInfo, files: &TlsFiles) -> Result<Client, Error> {
    let read = |path: &String| {
        std::fs::read(path)
            .map_err(|error| invalid(format!("{path}, named in the URL, cannot be read: {error}")))
    };
    let client_tls = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            Some(redis::ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        }
        (None, None) => None,
        _ => return Err(invalid("cert and key in the URL need each other")),
    };
    let root_cert = files.authority.as_ref().map(read).transpose()?;
    let certificates = redis::TlsCertificates { client_tls, root_cert };
    Client::build_with_tls(info, certificates).map_err(error::config)
}

#[cfg(not(feature = "tls"))]
fn client_with_files(_: redis::ConnectionInfo, _: &TlsFiles) -> Result<Client, Error> {
    unreachable!("TLS was refused before")
}
