//! Reads the URL of a cluster.

use std::time::Duration;

use etcd_client::ConnectOptions;
use leasehold_core::Error;
use url::{Url, form_urlencoded};

use super::{EtcdConfig, invalid};

const DEFAULT_PORT: u16 = 2379;

/// Reads a URL and its parameters.
///
/// The URL parser supports only one host, so each host is parsed as a separate URL.
pub(super) fn read(url: &str) -> Result<EtcdConfig, Error> {
    let (secure, rest) = match url.split_once("://") {
        Some(("etcd", rest)) => (false, rest),
        Some(("etcds", rest)) => (true, rest),
        _ => return Err(invalid("the URL must start with etcd:// or etcds://")),
    };
    if rest.contains('#') {
        return Err(invalid("the URL must not contain #"));
    }
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    if path.contains('@') {
        return Err(invalid(
            "the URL contains an @ after a /; write %2F for a / in a password, and set the prefix with the prefix=… parameter",
        ));
    }
    if !path.is_empty() {
        return Err(invalid(
            "the URL must not have a path; set the prefix with the prefix=… parameter",
        ));
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    let endpoints: Vec<String> =
        hosts.split(',').map(|host| endpoint(host, secure)).collect::<Result<_, _>>()?;
    let params = Params::read(query)?;
    let mut options = ConnectOptions::new();
    if let Some(user) = user {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        options = options.with_user(decode(name)?, decode(password)?);
    }
    let mut config = with_tls(EtcdConfig::from_options(endpoints, options)?, secure, &params.tls)?;
    config.has_password = user.is_some();
    if let Some(prefix) = params.prefix {
        config = config.prefix(prefix)?;
    }
    if let Some(timeout) = params.timeout {
        config = config.timeout(timeout)?;
    }
    Ok(config)
}

/// Returns the address of a member in the form that the client crate expects.
fn endpoint(host: &str, secure: bool) -> Result<String, Error> {
    let scheme = if secure { "https" } else { "http" };
    let read = Url::parse(&format!("{scheme}://{host}"));
    let url = read.map_err(|error| invalid(format!("invalid host in the URL: {error}")))?;
    let name = url.host_str().filter(|_| !host.is_empty());
    let name = name.ok_or_else(|| invalid("the URL has no host"))?;
    // The URL parser drops a port that is the default port of the scheme.
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    let port = url.port_or_known_default().filter(|_| has_port).unwrap_or(DEFAULT_PORT);
    Ok(format!("{scheme}://{name}:{port}"))
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
            match &*name {
                "prefix" => params.prefix = Some(value),
                "timeout-ms" => params.timeout = Some(millis(&value)?),
                "ca" => params.tls.authority = Some(value),
                "cert" => params.tls.certificate = Some(value),
                "key" => params.tls.key = Some(value),
                _ => {
                    // The error does not show the parameter, because it may be a part of a password
                    // that contains a `?`.
                    return Err(invalid(
                        "the URL has an unknown parameter; known parameters are prefix, timeout-ms, ca, cert, key; \
                         a ? in a password is written %3F",
                    ));
                }
            }
        }
        Ok(params)
    }
}

fn millis(value: &str) -> Result<Duration, Error> {
    let millis = value.parse().map_err(|_| invalid("timeout-ms in the URL must be a number"))?;
    Ok(Duration::from_millis(millis))
}

#[cfg(feature = "tls")]
fn with_tls(config: EtcdConfig, secure: bool, files: &TlsFiles) -> Result<EtcdConfig, Error> {
    use etcd_client::{Certificate, Identity, TlsOptions};

    if !secure {
        return without_tls(config, files);
    }
    // The error does not show the path, because it may be a part of a password.
    let read = |name: &str, path: &String| {
        std::fs::read(path).map_err(|error| {
            invalid(format!("cannot read the file of the URL parameter {name}: {error}"))
        })
    };
    let mut tls = match &files.authority {
        Some(path) => TlsOptions::new().ca_certificate(Certificate::from_pem(read("ca", path)?)),
        None => TlsOptions::new().with_native_roots(),
    };
    match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            tls = tls.identity(Identity::from_pem(read("cert", certificate)?, read("key", key)?));
        }
        (None, None) => {}
        _ => return Err(invalid("the URL parameters cert and key must be used together")),
    }
    Ok(EtcdConfig { tls: Some(tls), ..config })
}

#[cfg(not(feature = "tls"))]
fn with_tls(config: EtcdConfig, secure: bool, files: &TlsFiles) -> Result<EtcdConfig, Error> {
    if secure {
        let message = "TLS is disabled; enable the feature \"tls\" of leasehold-etcd, or \"etcd-tls\" of leasehold";
        return Err(Error::new(leasehold_core::ErrorKind::Unsupported, message));
    }
    without_tls(config, files)
}

fn without_tls(config: EtcdConfig, files: &TlsFiles) -> Result<EtcdConfig, Error> {
    let TlsFiles { authority, certificate, key } = files;
    if authority.is_some() || certificate.is_some() || key.is_some() {
        return Err(invalid("the URL parameters ca, cert and key require etcds://"));
    }
    Ok(config)
}
