//! Reads the URL of an ensemble.

use leasehold_core::Error;
use leasehold_settings::{Credentials, Server, StoreUrl, Tls, decode, invalid};
use zookeeper_client::Connector;

use super::{DEFAULT_PORT, ZooKeeperConfig, in_backend};

impl ZooKeeperConfig {
    /// Reads a URL such as `zookeeper://[user:password@]host[:port][,host[:port]…][/prefix]`.
    /// `zookeepers://` enables TLS.
    ///
    /// The default port is 2181. The user and password are used for ZooKeeper's `digest`
    /// authentication, and only this user can access the created nodes. With `auth=sasl`, the user
    /// and password are used for SASL authentication (DIGEST-MD5). The `prefix`, `timeout-ms` and
    /// `tick-ms` parameters correspond to [`prefix`](Self::prefix), [`timeout`](Self::timeout) and
    /// [`tick`](Self::tick). With TLS, the parameters `ca`, `cert` and `key` are paths of PEM
    /// files.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL is not valid.
    /// Returns [`ErrorKind::Unsupported`](leasehold_core::ErrorKind::Unsupported) if the URL
    /// requires TLS or SASL and the corresponding Cargo feature (`tls` or `sasl`) is disabled. No
    /// error shows the URL, because it may contain a password.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use leasehold_zookeeper::ZooKeeperConfig;
    ///
    /// let config = ZooKeeperConfig::from_url("zookeeper://10.0.0.1,10.0.0.2,10.0.0.3")?
    ///     .prefix("/shop")?
    ///     .timeout(Duration::from_millis(500))?;
    /// # let _ = config;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        read(url).map_err(in_backend)
    }
}

fn read(url: &str) -> Result<ZooKeeperConfig, Error> {
    let url = StoreUrl::parse(url)?;
    let is_secure = match url.scheme() {
        "zookeeper" => false,
        "zookeepers" => true,
        _ => return Err(invalid("the URL must start with zookeeper:// or zookeepers://")),
    };
    let mut options = url.options()?;
    let prefix = options.text("prefix")?;
    let timeout = options.millis("timeout-ms")?;
    let tick = options.millis("tick-ms")?;
    let auth = options.choice("auth", [("digest", Auth::Digest), ("sasl", Auth::Sasl)])?;
    let files = options.tls(["ca", "cert", "key"])?;
    options.finish()?;
    let authority = url.authority()?;
    let servers = authority.servers(DEFAULT_PORT)?;
    let mut config = ZooKeeperConfig::from_servers(servers.iter().map(Server::to_string))?;
    config.is_secure = is_secure;
    config.has_password = authority.credentials.is_some();
    config.exposes_password = authority.exposes_password(&servers, is_secure);
    config.connector =
        with_user(config.connector, authority.credentials, auth.unwrap_or_default())?;
    if let Some(tls) = files.read_if(is_secure, "zookeepers://")? {
        config.connector = with_tls(config.connector, &tls)?;
    }
    match (authority.path, prefix) {
        ("", None) => {}
        ("", Some(prefix)) => config = config.prefix(prefix)?,
        (path, None) => config = config.prefix(format!("/{}", decode(path)?))?,
        _ => {
            return Err(invalid(
                "the URL contains two prefixes, in the path and in the prefix parameter; use only one of them",
            ));
        }
    }
    if let Some(timeout) = timeout {
        config = config.timeout(timeout)?;
    }
    if let Some(tick) = tick {
        config = config.tick(tick)?;
    }
    Ok(config)
}

/// The authentication method.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum Auth {
    #[default]
    Digest,
    Sasl,
}

fn with_user(
    connector: Connector,
    credentials: Option<Credentials>,
    auth: Auth,
) -> Result<Connector, Error> {
    let Some(Credentials { user, password }) = credentials else {
        return match auth {
            Auth::Digest => Ok(connector),
            Auth::Sasl => Err(invalid("auth=sasl in the URL requires a user and a password")),
        };
    };
    let Some(password) = password else {
        return Err(invalid("a user in the URL requires a password; write user:password@"));
    };
    match auth {
        Auth::Digest => Ok(connector.with_auth("digest", format!("{user}:{password}").as_bytes())),
        Auth::Sasl => with_sasl(connector, user, password),
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
    Err(leasehold_settings::disabled("SASL", "zookeeper", "sasl"))
}

#[cfg(feature = "tls")]
fn with_tls(connector: Connector, files: &Tls) -> Result<Connector, Error> {
    use zookeeper_client::TlsOptions;

    let unusable = |error: zookeeper_client::Error| {
        invalid(format!("cannot use a PEM file of the URL: {error}"))
    };
    let text = |pem| str::from_utf8(pem).map_err(|_| invalid("a PEM file of the URL is not text"));
    let Some(authority) = &files.authority else {
        return Err(invalid(
            "zookeepers:// requires ca=…, the path of a PEM file with the certificate authority",
        ));
    };
    let mut options = TlsOptions::new().with_pem_ca(text(authority)?).map_err(unusable)?;
    if let Some((certificate, key)) = &files.identity {
        let identity = options.with_pem_identity(text(certificate)?, text(key)?);
        options = identity.map_err(unusable)?;
    }
    // The client crate needs a process-wide crypto provider. If two providers are compiled in,
    // there is no default provider. A provider that the application has installed is not replaced.
    drop(rustls::crypto::ring::default_provider().install_default());
    Ok(connector.with_tls(options))
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: Connector, _: &Tls) -> Result<Connector, Error> {
    Err(leasehold_settings::disabled("TLS", "zookeeper", "tls"))
}
