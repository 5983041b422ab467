//! Reads the URL of an ensemble.

use std::time::Duration;

use leasehold_core::Error;
use url::{Url, form_urlencoded};
use zookeeper_client::Connector;

use super::{ZooKeeperConfig, invalid};

const DEFAULT_PORT: u16 = 2181;

/// Reads a URL and its parameters.
pub(super) fn read(url: &str) -> Result<ZooKeeperConfig, Error> {
    let (is_secure, rest) = match url.split_once("://") {
        Some(("zookeeper", rest)) => (false, rest),
        Some(("zookeepers", rest)) => (true, rest),
        _ => return Err(invalid("the URL must start with zookeeper:// or zookeepers://")),
    };
    if rest.contains('#') {
        return Err(invalid("the URL must not contain #"));
    }
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    // Otherwise a part of the password would become the prefix, which errors show.
    if path.contains('@') {
        return Err(invalid(
            "the URL contains an @ after a /; write %2F for a / in a password, and set a prefix that contains an @ with the prefix=… parameter",
        ));
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    let params = Params::read(query)?;
    let mut config = ZooKeeperConfig::from_servers(hosts.split(','))?;
    config.is_secure = is_secure;
    config.connector = with_user(config.connector, user, params.auth)?;
    config.connector = with_tls(config.connector, is_secure, &params.tls)?;
    config.has_password = user.is_some();
    match (path, params.prefix) {
        ("", None) => {}
        ("", Some(prefix)) => config = config.prefix(prefix)?,
        (path, None) => config = config.prefix(format!("/{path}"))?,
        _ => {
            return Err(invalid(
                "the URL contains two prefixes, in the path and in the prefix parameter; use only one of them",
            ));
        }
    }
    if let Some(timeout) = params.timeout {
        config = config.timeout(timeout)?;
    }
    if let Some(tick) = params.tick {
        config = config.tick(tick)?;
    }
    Ok(config)
}

/// Returns the address of a server with its port.
///
/// The URL parser supports only one host, so each host is parsed as a separate URL.
pub(super) fn address(host: &str) -> Result<String, Error> {
    let read = Url::parse(&format!("http://{host}"));
    let url = read.map_err(|error| invalid(format!("invalid host in the URL: {error}")))?;
    let is_plain = url.path() == "/" && url.query().is_none() && url.username().is_empty();
    let name = url.host_str().filter(|_| !host.is_empty() && is_plain);
    let name = name.ok_or_else(|| invalid("the URL has no host"))?;
    // The URL parser drops a port that is the default port of the scheme.
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    match url.port_or_known_default().filter(|_| has_port).unwrap_or(DEFAULT_PORT) {
        0 => Err(invalid("the port of a server must not be 0")),
        port => Ok(format!("{name}:{port}")),
    }
}

/// The authentication method.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum Auth {
    #[default]
    Digest,
    Sasl,
}

fn with_user(connector: Connector, user: Option<&str>, auth: Auth) -> Result<Connector, Error> {
    let Some(user) = user else {
        return match auth {
            Auth::Digest => Ok(connector),
            Auth::Sasl => Err(invalid("auth=sasl in the URL requires a user and a password")),
        };
    };
    let Some((name, password)) = user.split_once(':') else {
        return Err(invalid("a user in the URL requires a password; write user:password@"));
    };
    let (name, password) = (decode(name)?, decode(password)?);
    match auth {
        Auth::Digest => Ok(connector.with_auth("digest", format!("{name}:{password}").as_bytes())),
        Auth::Sasl => with_sasl(connector, name, password),
    }
}

#[cfg(feature = "sasl")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature, it fails")]
fn with_sasl(connector: Connector, name: String, password: String) -> Result<Connector, Error> {
    use zookeeper_client::SaslOptions;

    Ok(connector.with_sasl(SaslOptions::digest_md5(name, password)))
}

#[cfg(not(feature = "sasl"))]
fn with_sasl(_connector: Connector, _name: String, _password: String) -> Result<Connector, Error> {
    let message = "SASL is disabled; enable the feature \"sasl\" of leasehold-zookeeper, or \"zookeeper-sasl\" of leasehold";
    Err(Error::new(leasehold_core::ErrorKind::Unsupported, message))
}

/// Decodes the percent-encoding in a part of the URL.
fn decode(text: &str) -> Result<String, Error> {
    // The form decoder would convert a plus sign to a space.
    let pair = format!("x={}", text.replace('+', "%2B"));
    let (_, value) = form_urlencoded::parse(pair.as_bytes()).next().expect("it is one pair");
    if text.contains('&') || value.contains('\u{fffd}') {
        return Err(invalid("user and password in the URL must be percent-encoded"));
    }
    Ok(value.into_owned())
}

/// The parameters of a URL.
#[derive(Default)]
struct Params {
    prefix: Option<String>,
    timeout: Option<Duration>,
    tick: Option<Duration>,
    auth: Auth,
    tls: TlsFiles,
}

/// The paths of PEM files.
#[derive(Default)]
struct TlsFiles {
    authority: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Params {
    fn read(query: &str) -> Result<Self, Error> {
        let mut params = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match (&*name, &*value) {
                ("prefix", _) => params.prefix = Some(value),
                ("timeout-ms", _) => params.timeout = Some(millis(&value)?),
                ("tick-ms", _) => params.tick = Some(millis(&value)?),
                ("auth", "digest") => params.auth = Auth::Digest,
                ("auth", "sasl") => params.auth = Auth::Sasl,
                ("auth", _) => return Err(invalid("auth in the URL must be digest or sasl")),
                ("ca", _) => params.tls.authority = Some(value),
                ("cert", _) => params.tls.certificate = Some(value),
                ("key", _) => params.tls.key = Some(value),
                _ => {
                    // The error does not show the parameter, because it may be a part of a password
                    // that contains a `?`.
                    return Err(invalid(
                        "the URL has an unknown parameter; known parameters are prefix, timeout-ms, tick-ms, auth, ca, cert, key; \
                         a ? in a password is written %3F",
                    ));
                }
            }
        }
        Ok(params)
    }
}

fn millis(value: &str) -> Result<Duration, Error> {
    let millis =
        value.parse().map_err(|_| invalid("timeout-ms and tick-ms in the URL must be numbers"))?;
    Ok(Duration::from_millis(millis))
}

#[cfg(feature = "tls")]
fn with_tls(connector: Connector, is_secure: bool, files: &TlsFiles) -> Result<Connector, Error> {
    use zookeeper_client::TlsOptions;

    if !is_secure {
        return without_tls(connector, files);
    }
    // The error does not show the path, because it may be a part of a password.
    let read = |name: &str, path: &String| {
        std::fs::read_to_string(path).map_err(|error| {
            invalid(format!("cannot read the file of the URL parameter {name}: {error}"))
        })
    };
    let unusable = |error: zookeeper_client::Error| {
        invalid(format!("cannot use a PEM file of the URL: {error}"))
    };
    let Some(authority) = &files.authority else {
        return Err(invalid(
            "zookeepers:// requires ca=…, the path of a PEM file with the certificate authority",
        ));
    };
    let mut options = TlsOptions::new().with_pem_ca(&read("ca", authority)?).map_err(unusable)?;
    match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let (certificate, key) = (read("cert", certificate)?, read("key", key)?);
            options = options.with_pem_identity(&certificate, &key).map_err(unusable)?;
        }
        (None, None) => {}
        _ => return Err(invalid("the URL parameters cert and key must be used together")),
    }
    // The client crate needs a process-wide crypto provider. If two providers are compiled in,
    // there is no default provider. A provider that the application has installed is not replaced.
    drop(rustls::crypto::ring::default_provider().install_default());
    Ok(connector.with_tls(options))
}

#[cfg(not(feature = "tls"))]
fn with_tls(connector: Connector, is_secure: bool, files: &TlsFiles) -> Result<Connector, Error> {
    if is_secure {
        let message = "TLS is disabled; enable the feature \"tls\" of leasehold-zookeeper, or \"zookeeper-tls\" of leasehold";
        return Err(Error::new(leasehold_core::ErrorKind::Unsupported, message));
    }
    without_tls(connector, files)
}

fn without_tls(connector: Connector, files: &TlsFiles) -> Result<Connector, Error> {
    let TlsFiles { authority, certificate, key } = files;
    if authority.is_some() || certificate.is_some() || key.is_some() {
        return Err(invalid("the URL parameters ca, cert and key require zookeepers://"));
    }
    Ok(connector)
}
