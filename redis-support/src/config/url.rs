//! Reads the URLs of servers.

use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::Error;
use url::{Url, form_urlencoded};

use super::{Config, Endpoints, Replicas, invalid};
use crate::address::Address;
use crate::driver::{Access, Driver, Protocol, Tls};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

impl<D: Driver> Config<D> {
    /// Reads the URL of a server, of sentinels or of a cluster.
    ///
    /// | URL | servers |
    /// | --- | --- |
    /// | `redis://[user[:password]@]host[:port][/database]` | a single server |
    /// | `unix:///path/to/socket[?db=n&user=…&pass=…]` | a single server, over a Unix socket |
    /// | `redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/master[/database]` | the primary that these sentinels report |
    /// | `redis-cluster://[user[:password]@]host[:port][,host[:port]…]` | a cluster; list some or all of its servers |
    /// | `rediss://…`, `rediss-sentinel://…`, `rediss-cluster://…` | the same servers over TLS, including connections to discovered servers |
    ///
    /// `valkey` and `valkeys` are synonyms for `redis` and `rediss`. The URL may contain these
    /// parameters after `?`:
    ///
    /// | parameter | meaning |
    /// | --- | --- |
    /// | `prefix`, `timeout-ms` | see [`prefix`](Self::prefix) and [`timeout`](Self::timeout) |
    /// | `wait-replicas`, `wait-replicas-ms` | `none`, a number or `majority`, and the timeout; see [`wait_replicas`](Self::wait_replicas) |
    /// | `push=off` | see [`without_push`](Self::without_push) |
    /// | `protocol=resp2` | see [`resp2`](Self::resp2) |
    /// | `sentinel-user`, `sentinel-pass` | see [`sentinel_access`](Self::sentinel_access) |
    /// | `ca`, `cert`, `key` | with TLS: the paths of PEM files |
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`](leasehold_core::ErrorKind::Invalid) if the URL is not valid. Returns
    /// [`Unsupported`](leasehold_core::ErrorKind::Unsupported) if the URL requires TLS and the
    /// `tls` Cargo feature is disabled. No error shows the URL, because it may contain a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        read(url).map_err(|error| error.with_backend(D::NAME))
    }
}

/// Reads a URL and its parameters.
///
/// The URL parser supports only one host, so each host is parsed as a separate URL.
fn read<D: Driver>(url: &str) -> Result<Config<D>, Error> {
    let (scheme, rest) = url.split_once("://").ok_or_else(unknown_scheme)?;
    let (scheme, encrypted) = Scheme::read(scheme)?;
    if rest.contains('#') {
        return Err(invalid("the URL must not contain #"));
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let params = Params::read(query)?;
    let mut access = params.access.clone();
    let topology = match scheme {
        Scheme::Unix => Endpoints::Single(socket(place)?),
        Scheme::Single | Scheme::Sentinel | Scheme::Cluster => {
            let (authority, path) = place.split_once('/').unwrap_or((place, ""));
            // Otherwise a part of the password would become the name of a database or of a master,
            // which errors show.
            if path.contains('@') {
                return Err(invalid(
                    "the URL contains an @ after a /; write %2F for a / in a password, and %40 for an @ in a name",
                ));
            }
            let hosts = match authority.rsplit_once('@') {
                Some((user, hosts)) => {
                    read_user(user, &mut access)?;
                    hosts
                }
                None => authority,
            };
            servers(scheme, hosts, path, &mut access)?
        }
    };
    if !encrypted && !params.tls.is_empty() {
        return Err(invalid("the URL parameters ca, cert and key require TLS; use rediss://"));
    }
    let tls = if encrypted { Some(params.tls.read_files()?) } else { None };
    let mut config = Config::new(D::new(tls)?, topology, access);
    config.sentinel_access = params.sentinel_access;
    config.push = params.push;
    config.protocol = params.protocol;
    if let Some(prefix) = params.prefix {
        config = config.prefix(prefix)?;
    }
    if let Some(timeout) = params.timeout {
        config = config.timeout(timeout)?;
    }
    let wait = params.replicas_timeout.unwrap_or(config.timeout);
    config.wait_replicas(params.replicas, wait)
}

/// The scheme of the URL.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Scheme {
    Single,
    Sentinel,
    Cluster,
    Unix,
}

impl Scheme {
    /// Returns the scheme, and whether it uses TLS.
    fn read(scheme: &str) -> Result<(Self, bool), Error> {
        Ok(match scheme {
            "redis" | "valkey" => (Self::Single, false),
            "rediss" | "valkeys" => (Self::Single, true),
            "redis-sentinel" | "valkey-sentinel" => (Self::Sentinel, false),
            "rediss-sentinel" | "valkeys-sentinel" => (Self::Sentinel, true),
            "redis-cluster" | "valkey-cluster" => (Self::Cluster, false),
            "rediss-cluster" | "valkeys-cluster" => (Self::Cluster, true),
            "unix" | "redis+unix" => (Self::Unix, false),
            _ => return Err(unknown_scheme()),
        })
    }
}

fn unknown_scheme() -> Error {
    invalid(
        "the URL must start with redis://, redis-sentinel:// or redis-cluster://, with rediss for TLS, or with unix://",
    )
}

/// Reads the absolute path of a socket. Text in front of the path may be a password, so the error
/// does not show it.
fn socket(place: &str) -> Result<Address, Error> {
    let path = decode(place)?;
    if !path.starts_with('/') {
        return Err(invalid(
            "the URL must contain the absolute path of a socket, as in unix:///path/to/socket; \
             user and password follow the path, as in unix:///path/to/socket?user=NAME&pass=PASSWORD",
        ));
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

/// Parses `user`, `user:password` or `:password`.
fn read_user(text: &str, access: &mut Access) -> Result<(), Error> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(decode(password)?)),
        None => (text, None),
    };
    access.user = Some(decode(user)?).filter(|user| !user.is_empty());
    access.password = password.filter(|password| !password.is_empty());
    Ok(())
}

fn servers(
    scheme: Scheme,
    hosts: &str,
    path: &str,
    access: &mut Access,
) -> Result<Endpoints, Error> {
    let port = if scheme == Scheme::Sentinel { SENTINEL_PORT } else { PORT };
    let hosts = hosts.split(',').map(|host| address(host, port));
    let mut addresses = hosts.collect::<Result<Vec<_>, _>>()?;
    let path = path.trim_end_matches('/');
    match scheme {
        Scheme::Sentinel => {
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                let message = "the URL must name the master that the sentinels monitor, as in redis-sentinel://host/master";
                return Err(invalid(message));
            }
            read_database(database, access)?;
            Ok(Endpoints::Sentinel { sentinels: addresses, master: decode(master)? })
        }
        Scheme::Cluster if !path.is_empty() || access.database != 0 => {
            Err(invalid("the URL of a cluster must not name a database"))
        }
        Scheme::Cluster => Ok(Endpoints::Cluster { seeds: addresses }),
        _ if addresses.len() > 1 => {
            Err(invalid("several hosts require redis-sentinel:// or redis-cluster://"))
        }
        _ => {
            read_database(path, access)?;
            Ok(Endpoints::Single(addresses.remove(0)))
        }
    }
}

fn address(host: &str, default_port: u16) -> Result<Address, Error> {
    if host.is_empty() || host.starts_with(':') {
        return Err(invalid("the URL has no host; for this machine, write redis://localhost"));
    }
    // With `ftp`, the URL parser checks the host. The default port of `ftp` is never used for
    // Redis.
    let read = Url::parse(&format!("ftp://{host}"));
    let url = read.map_err(|error| invalid(format!("invalid host in the URL: {error}")))?;
    let name = url.host_str().filter(|name| !name.is_empty() && *name != "0.0.0.0");
    let name = name.ok_or_else(|| invalid("the URL has no host"))?;
    let has_port = !host.ends_with(name);
    let port = url.port_or_known_default().filter(|_| has_port).unwrap_or(default_port);
    let host = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Address::Tcp { host, port })
}

fn read_database(text: &str, access: &mut Access) -> Result<(), Error> {
    if !text.is_empty() {
        let database = text.parse();
        access.database =
            database.map_err(|_| invalid("the database in the URL must be a number"))?;
    }
    Ok(())
}

/// Decodes the percent-encoding in a part of the URL.
fn decode(text: &str) -> Result<String, Error> {
    // The form decoder would convert a plus sign to a space.
    let pair = format!("x={}", text.replace('+', "%2B"));
    let (_, value) = form_urlencoded::parse(pair.as_bytes()).next().expect("it is one pair");
    if text.contains('&') || value.contains('\u{fffd}') {
        return Err(invalid("names and passwords in the URL must be percent-encoded"));
    }
    Ok(value.into_owned())
}

/// The parameters of a URL.
struct Params {
    prefix: Option<String>,
    timeout: Option<Duration>,
    push: bool,
    protocol: Protocol,
    replicas: Replicas,
    replicas_timeout: Option<Duration>,
    access: Access,
    sentinel_access: Access,
    tls: TlsFiles,
}

impl Params {
    fn read(query: &str) -> Result<Self, Error> {
        let mut params = Self {
            prefix: None,
            timeout: None,
            push: true,
            protocol: Protocol::Resp3,
            replicas: Replicas::None,
            replicas_timeout: None,
            access: Access::default(),
            sentinel_access: Access::default(),
            tls: TlsFiles::default(),
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "prefix" => params.prefix = Some(value),
                "timeout-ms" => params.timeout = Some(millis("timeout-ms", &value)?),
                "push" => params.push = push(&value)?,
                "protocol" => params.protocol = protocol(&value)?,
                "wait-replicas" => params.replicas = replicas(&value)?,
                "wait-replicas-ms" => {
                    params.replicas_timeout = Some(millis("wait-replicas-ms", &value)?);
                }
                "db" => read_database(&value, &mut params.access)?,
                "user" => params.access.user = Some(value),
                "pass" => params.access.password = Some(value),
                "sentinel-user" => params.sentinel_access.user = Some(value),
                "sentinel-pass" => params.sentinel_access.password = Some(value),
                "ca" => params.tls.authority = Some(value),
                "cert" => params.tls.certificate = Some(value),
                "key" => params.tls.key = Some(value),
                // The `client` parameter belongs to the `leasehold` crate.
                "client" => {}
                _ => {
                    // The error does not show the parameter, because it may be a part of a password
                    // that contains a `?`.
                    return Err(invalid(
                        "the URL has an unknown parameter; known parameters are prefix, timeout-ms, push, protocol, \
                         wait-replicas, wait-replicas-ms, sentinel-user, sentinel-pass, ca, cert, key, db, user, \
                         pass, client; a ? in a password is written %3F",
                    ));
                }
            }
        }
        Ok(params)
    }
}

fn millis(name: &str, value: &str) -> Result<Duration, Error> {
    let millis =
        value.parse().map_err(|_| invalid(format!("{name} in the URL must be a number")))?;
    Ok(Duration::from_millis(millis))
}

fn push(value: &str) -> Result<bool, Error> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(invalid("push in the URL must be on or off")),
    }
}

fn protocol(value: &str) -> Result<Protocol, Error> {
    match value {
        "resp2" => Ok(Protocol::Resp2),
        "resp3" => Ok(Protocol::Resp3),
        _ => Err(invalid("protocol in the URL must be resp2 or resp3")),
    }
}

fn replicas(value: &str) -> Result<Replicas, Error> {
    match value {
        "none" => Ok(Replicas::None),
        "majority" => Ok(Replicas::Majority),
        number => number
            .parse()
            .map(Replicas::AtLeast)
            .map_err(|_| invalid("wait-replicas in the URL must be none, a number, or majority")),
    }
}

/// The paths of PEM files.
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

    fn read_files(&self) -> Result<Tls, Error> {
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some((read_file("cert", certificate)?, read_file("key", key)?))
            }
            (None, None) => None,
            _ => return Err(invalid("the URL parameters cert and key must be used together")),
        };
        let authority = self.authority.as_deref().map(|path| read_file("ca", path)).transpose()?;
        Ok(Tls { authority, identity })
    }
}

/// Reads the file of the `name` parameter. The error does not show the path, because it may be a
/// part of a password.
fn read_file(name: &str, path: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| {
        invalid(format!("cannot read the file of the URL parameter {name}: {error}"))
    })
}
