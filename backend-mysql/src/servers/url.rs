//! Reads the URL of a database.

use leasehold_core::Error;
use leasehold_sql_support::remote::{Settings, invalid};
use mysql_async::OptsBuilder;
use percent_encoding::percent_decode_str;
use url::Url;

use super::Servers;
use crate::tls::{self, TlsFiles};

const DEFAULT_PORT: u16 = 3306;

impl Servers {
    /// Reads a URL. `settings` receives the parameters that all databases support.
    pub(crate) fn from_url(url: &str, settings: &mut Settings) -> Result<Self, Error> {
        if !url.starts_with("mysql://") && !url.starts_with("mariadb://") {
            return Err(invalid("the URL must start with mysql:// or mariadb://"));
        }
        // The error does not show the parameter, because it may be a part of a password that
        // contains a `?`.
        let read = Url::parse(url).map_err(|error| {
            invalid(format!(
                "the URL cannot be read ({error}); in user and password, : / ? # @ % are written %3A %2F %3F %23 %40 %25"
            ))
        })?;
        if read.fragment().is_some() {
            return Err(invalid("the URL must not contain #"));
        }
        // Otherwise a part of the password would become the name of a database, which errors show.
        if read.path().contains('@') {
            return Err(invalid(
                "the URL contains an @ after a /; write %2F for a / in a password, and %40 for an @ in a name",
            ));
        }
        let host = read.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid("the URL has no host"))?;
        let mut options = OptsBuilder::default()
            .ip_or_hostname(host.trim_matches(['[', ']']))
            .tcp_port(read.port().unwrap_or(DEFAULT_PORT));
        if !read.username().is_empty() {
            options = options.user(Some(decode(read.username())?));
        }
        if let Some(password) = read.password() {
            options = options.pass(Some(decode(password)?));
        }
        let database = decode(read.path().trim_start_matches('/'))?;
        if database.is_empty() || database.contains('/') {
            return Err(invalid("the URL must name a database, as in mysql://host/database"));
        }
        with_params(options.db_name(Some(database)), &read, settings).map(Self::from)
    }
}

fn with_params(
    mut options: OptsBuilder,
    url: &Url,
    settings: &mut Settings,
) -> Result<OptsBuilder, Error> {
    let mut files = TlsFiles::default();
    let mut is_encrypted = false;
    for (name, value) in url.query_pairs() {
        match &*name {
            "socket" => options = options.socket(Some(value)),
            "ssl-mode" => is_encrypted = is_to_be_encrypted(&value)?,
            "ssl-ca" => files.authority = Some(value.into_owned()),
            "ssl-cert" => files.certificate = Some(value.into_owned()),
            "ssl-key" => files.key = Some(value.into_owned()),
            _ if settings.read(&name, &value)? => {}
            _ => {
                return Err(invalid(
                    "the URL has an unknown parameter; known parameters are prefix, schema, timeout-ms, connections, tables=exist, \
                     socket, ssl-mode, ssl-ca, ssl-cert, ssl-key; a ? in a password is written %3F",
                ));
            }
        }
    }
    tls::add(options, is_encrypted, files)
}

fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| invalid("the URL must be percent-encoded UTF-8"))?;
    Ok(decoded.into_owned())
}

/// Returns whether connections must be encrypted. `preferred` is rejected, because an attacker in
/// the network could then disable TLS.
fn is_to_be_encrypted(mode: &str) -> Result<bool, Error> {
    match &*mode.to_ascii_lowercase().replace('-', "_") {
        "disabled" => Ok(false),
        "required" | "verify_ca" | "verify_identity" => Ok(true),
        _ => Err(invalid(
            "ssl-mode in the URL must be disabled, required, verify_ca or verify_identity",
        )),
    }
}
