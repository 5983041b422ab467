//! Reads the URL of a cluster.

use etcd_client::ConnectOptions;
use leasehold_core::Error;
use leasehold_settings::{StoreUrl, Tls, invalid};

use super::{EtcdConfig, in_backend};

const DEFAULT_PORT: u16 = 2379;

impl EtcdConfig {
    /// Reads a URL such as `etcd://[user[:password]@]host[:port][,host[:port]…]`. `etcds://`
    /// enables TLS.
    ///
    /// The default port is 2379. The `prefix` and `timeout-ms` parameters correspond to
    /// [`prefix`](Self::prefix) and [`timeout`](Self::timeout). With TLS, the parameters `ca`,
    /// `cert` and `key` are paths of PEM files.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL is not valid.
    /// Returns [`ErrorKind::Unsupported`](leasehold_core::ErrorKind::Unsupported) if the URL
    /// requires TLS and the `tls` Cargo feature is disabled. No error shows the URL, because it may
    /// contain a password.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use leasehold_etcd::EtcdConfig;
    ///
    /// let config = EtcdConfig::from_url("etcd://10.0.0.1,10.0.0.2,10.0.0.3")?
    ///     .prefix("shop/")?
    ///     .timeout(Duration::from_millis(500))?;
    /// # let _ = config;
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        read(url).map_err(in_backend)
    }
}

fn read(url: &str) -> Result<EtcdConfig, Error> {
    let url = StoreUrl::parse(url)?;
    let scheme = match url.scheme() {
        "etcd" => "http",
        "etcds" => "https",
        _ => return Err(invalid("the URL must start with etcd:// or etcds://")),
    };
    let mut options = url.options()?;
    let prefix = options.text("prefix")?;
    let timeout = options.millis("timeout-ms")?;
    let files = options.tls(["ca", "cert", "key"])?;
    options.finish()?;
    let authority = url.authority()?;
    if !authority.path.is_empty() {
        return Err(invalid(
            "the URL must not have a path; set the prefix with the prefix=… parameter",
        ));
    }
    let servers = authority.servers(DEFAULT_PORT)?;
    let tls = files.read_if(scheme == "https", "etcds://")?;
    let exposes_password = authority.exposes_password(&servers, tls.is_some());
    let options = match authority.credentials {
        Some(it) => ConnectOptions::new().with_user(it.user, it.password.unwrap_or_default()),
        None => ConnectOptions::new(),
    };
    let endpoints = servers.iter().map(|server| format!("{scheme}://{server}"));
    let mut config = EtcdConfig::from_options(endpoints, options)?;
    if let Some(tls) = tls {
        config = with_tls(config, tls)?;
    }
    config.exposes_password = exposes_password;
    if let Some(prefix) = prefix {
        config = config.prefix(prefix)?;
    }
    if let Some(timeout) = timeout {
        config = config.timeout(timeout)?;
    }
    Ok(config)
}

#[cfg(feature = "tls")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature, it fails")]
fn with_tls(config: EtcdConfig, files: Tls) -> Result<EtcdConfig, Error> {
    use etcd_client::{Certificate, Identity, TlsOptions};

    let mut tls = match files.authority {
        Some(pem) => TlsOptions::new().ca_certificate(Certificate::from_pem(pem)),
        None => TlsOptions::new().with_native_roots(),
    };
    if let Some((certificate, key)) = files.identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    Ok(EtcdConfig { tls: Some(tls), ..config })
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: EtcdConfig, _: Tls) -> Result<EtcdConfig, Error> {
    Err(leasehold_settings::disabled("TLS", "etcd", "tls"))
}
