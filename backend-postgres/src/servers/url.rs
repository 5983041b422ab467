//! Reads the URL of a database.

use form_urlencoded::{Serializer, parse};
use leasehold_core::Error;
use leasehold_sql_support::remote::{Settings, invalid};

use super::Servers;
use crate::tls::{Tls, TlsFiles};

/// PostgreSQL's default directory for sockets depends on the build, so the URL must contain the
/// directory.
const NO_HOST: &str = "the URL must name a host, as in postgres://HOST/DATABASE; for a Unix socket, name its directory, as in postgres:///DATABASE?host=/run/postgresql";

impl Servers {
    /// Reads a URL. `settings` receives the parameters that all databases support. All remaining
    /// parameters are passed to the driver.
    pub(crate) fn from_url(url: &str, settings: &mut Settings) -> Result<Self, Error> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid("the URL must start with postgres:// or postgresql://"));
        }
        if url.contains('#') {
            return Err(invalid("the URL must not contain #"));
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        // The driver ends the password at the first @, so the text after it would become the name
        // of a host or of a database, which errors show.
        if address.matches('@').count() > 1 {
            return Err(invalid(
                "the URL contains more than one @; write %40 for an @ in a password or in a name",
            ));
        }
        let mut theirs = Serializer::new(String::new());
        let mut files = TlsFiles::default();
        let mut is_encrypted = false;
        for (name, value) in parse(query.as_bytes()) {
            match &*name {
                "push" if value == "off" => settings.push = false,
                "sslmode" => is_encrypted = is_to_be_encrypted(&value)?,
                "sslrootcert" => files.authority = Some(value.into_owned()),
                "sslcert" => files.certificate = Some(value.into_owned()),
                "sslkey" => files.key = Some(value.into_owned()),
                _ if settings.read(&name, &value)? => {}
                _ => {
                    theirs.append_pair(&name, &value);
                }
            }
        }
        let tls = Tls::new(is_encrypted, &files)?;
        // The driver does not decode a plus sign as a space.
        let url = format!("{address}?{}", theirs.finish().replace('+', "%20"));
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

/// Returns whether connections must be encrypted. `prefer` and `allow` are rejected, because an
/// attacker in the network could then disable TLS.
fn is_to_be_encrypted(mode: &str) -> Result<bool, Error> {
    match mode {
        "disable" => Ok(false),
        "require" | "verify-ca" | "verify-full" => Ok(true),
        _ => Err(invalid("sslmode in the URL must be disable, require, verify-ca or verify-full")),
    }
}
