//! Reads the URLs of servers.

use std::path::PathBuf;

use leasehold_core::Error;
use leasehold_settings::{Authority, Credentials, StoreUrl, decode, invalid};

use super::{Config, Endpoints, Replicas};
use crate::address::Address;
use crate::driver::{Access, Driver, Protocol};

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

fn read<D: Driver>(url: &str) -> Result<Config<D>, Error> {
    let url = StoreUrl::parse(url)?;
    let (scheme, is_encrypted) = Scheme::read(url.scheme())?;
    let mut options = url.options()?;
    let prefix = options.text("prefix")?;
    let timeout = options.millis("timeout-ms")?;
    let push = options.choice("push", [("on", true), ("off", false)])?;
    let protocols = [("resp2", Protocol::Resp2), ("resp3", Protocol::Resp3)];
    let protocol = options.choice("protocol", protocols)?;
    let replicas = options.text("wait-replicas")?.as_deref().map(replicas).transpose()?;
    let replicas_timeout = options.millis("wait-replicas-ms")?;
    let sentinel_access = Access {
        user: options.text("sentinel-user")?,
        password: options.text("sentinel-pass")?,
        database: 0,
    };
    let files = options.tls(["ca", "cert", "key"])?;
    let mut access = Access {
        database: options.number("db")?.unwrap_or(0),
        user: options.text("user")?,
        password: options.text("pass")?,
    };
    // The `client` parameter belongs to the `leasehold` crate.
    options.text("client")?;
    options.finish()?;

    let topology = match scheme {
        Scheme::Unix => Endpoints::Single(socket(url.location())?),
        Scheme::Single | Scheme::Sentinel | Scheme::Cluster => {
            servers(scheme, &url.authority()?, &mut access)?
        }
    };
    let tls = files.read_if(is_encrypted, "rediss://")?;
    let mut config = Config::new(D::new(tls)?, topology, access);
    config.sentinel_access = sentinel_access;
    config.push = push.unwrap_or(config.push);
    config.protocol = protocol.unwrap_or(config.protocol);
    if let Some(prefix) = prefix {
        config = config.prefix(prefix)?;
    }
    if let Some(timeout) = timeout {
        config = config.timeout(timeout)?;
    }
    let wait = replicas_timeout.unwrap_or(config.timeout);
    config.wait_replicas(replicas.unwrap_or_default(), wait)
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
fn socket(location: &str) -> Result<Address, Error> {
    let path = decode(location)?;
    if !path.starts_with('/') {
        return Err(invalid(
            "the URL must contain the absolute path of a socket, as in unix:///path/to/socket; \
             user and password follow the path, as in unix:///path/to/socket?user=NAME&pass=PASSWORD",
        ));
    }
    Ok(Address::Unix(PathBuf::from(path)))
}

fn servers(
    scheme: Scheme,
    authority: &Authority<'_>,
    access: &mut Access,
) -> Result<Endpoints, Error> {
    if let Some(Credentials { user, password }) = &authority.credentials {
        access.user = Some(user.clone()).filter(|user| !user.is_empty());
        access.password = password.clone().filter(|password| !password.is_empty());
    }
    let port = if scheme == Scheme::Sentinel { SENTINEL_PORT } else { PORT };
    let mut addresses: Vec<Address> =
        authority.servers(port)?.into_iter().map(Address::Tcp).collect();
    let path = authority.path.trim_end_matches('/');
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

fn read_database(text: &str, access: &mut Access) -> Result<(), Error> {
    if !text.is_empty() {
        let database = text.parse();
        access.database =
            database.map_err(|_| invalid("the database in the URL must be a number"))?;
    }
    Ok(())
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
