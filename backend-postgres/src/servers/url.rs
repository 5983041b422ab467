//! Reads the URL of a database.

use leasehold_core::Error;
use leasehold_settings::{StoreUrl, invalid};
use leasehold_sql_support::remote::Settings;

use super::Servers;
use crate::tls::Tls;

/// PostgreSQL's default directory for sockets depends on the build, so the URL must contain the
/// directory.
const NO_HOST: &str = "the URL must name a host, as in postgres://HOST/DATABASE; for a Unix socket, name its directory, as in postgres:///DATABASE?host=/run/postgresql";

impl Servers {
    /// Reads a URL. `settings` receives the parameters that all databases support. All remaining
    /// parameters are passed to the driver.
    pub(crate) fn from_url(url: &str, settings: &mut Settings) -> Result<Self, Error> {
        let url = StoreUrl::parse(url)?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(invalid("the URL must start with postgres:// or postgresql://"));
        }
        let mut options = url.options()?;
        settings.read(&mut options)?;
        if let Some(push) = options.choice("push", [("on", true), ("off", false)])? {
            settings.push = push;
        }
        if let Some(lazy) = options.choice("release", [("durable", false), ("lazy", true)])? {
            settings.lazy_releases = lazy;
        }
        // `prefer` and `allow` are rejected, because an attacker in the network could then disable
        // TLS.
        let modes =
            [("disable", false), ("require", true), ("verify-ca", true), ("verify-full", true)];
        let is_encrypted = options.choice("sslmode", modes)?.unwrap_or(false);
        let files = options.tls(["sslrootcert", "sslcert", "sslkey"])?;
        let authority = url.authority()?;
        let tls = files.read_if(is_encrypted, "sslmode=verify-full")?;
        let tls = tls.as_ref().map(Tls::new).transpose()?;
        // The driver parses the hosts, because they can be directories of sockets. In the driver's
        // syntax, the first @ ends the password.
        let user = match &authority.credentials {
            Some(_) => authority.encoded_credentials().replace('@', "%40") + "@",
            None => String::new(),
        };
        let hosts = authority.hosts().collect::<Vec<_>>().join(",");
        let url = format!("postgres://{user}{hosts}/{}?{}", authority.path, options.rest());
        // The error does not show the parameter, because it may be a part of a password that
        // contains a `?`.
        let options: tokio_postgres::Config = url.parse().map_err(|_| {
            invalid(
                "invalid host, port or parameter in the URL; \
                 in user and password, : / ? # @ % are written %3A %2F %3F %23 %40 %25",
            )
        })?;
        if options.get_hosts().is_empty() && options.get_hostaddrs().is_empty() {
            return Err(invalid(NO_HOST));
        }
        Ok(Self::new(options, tls))
    }
}
