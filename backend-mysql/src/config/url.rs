//! A database's URL.

use std::str::FromStr;
use std::time::Duration;

use leasehold_core::Error;
use mysql_async::OptsBuilder;
use percent_encoding::percent_decode_str;
use url::Url;

use super::tls::TlsFiles;
use super::{MysqlConfig, Source, tls};
use crate::error::invalid;

const DEFAULT_PORT: u16 = 3306;

/// Reads a URL and what its parameters say.
pub(super) fn read(url: &str) -> Result<MysqlConfig, Error> {
    if !url.starts_with("mysql://") && !url.starts_with("mariadb://") {
        return Err(invalid("the URL must begin with mysql:// or mariadb://"));
    }
    // Unnamed: after a ? in a password, its rest looks like a parameter.
    let read = Url::parse(url).map_err(|error| {
        invalid(format!(
            "the URL cannot be read ({error}); in user and password, : / ? # @ % are written %3A %2F %3F %23 %40 %25"
        ))
    })?;
    if read.fragment().is_some() {
        return Err(invalid("the URL must not have a part after #"));
    }
    let host = read.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| invalid("the URL names no host"))?;
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
        return Err(invalid("the URL must name a database: mysql://host/database"));
    }
    with_params(options.db_name(Some(database)), &read)
}

fn with_params(mut options: OptsBuilder, url: &Url) -> Result<MysqlConfig, Error> {
    let mut config = MysqlConfig::from_options(OptsBuilder::default());
    let mut files = TlsFiles::default();
    let mut is_encrypted = false;
    for (name, value) in url.query_pairs() {
        let value = value.into_owned();
        match &*name {
            "prefix" => config = config.prefix(value)?,
            "schema" => config = config.schema(value)?,
            "timeout-ms" => {
                let millis = number(&value, "timeout-ms in the URL must be a number")?;
                config = config.timeout(Duration::from_millis(millis))?;
            }
            "connections" => {
                let connections = number(&value, "connections in the URL must be a number")?;
                config = config.connections(connections)?;
            }
            "tables" if value == "exist" => config = config.without_creating_tables(),
            "socket" => options = options.socket(Some(value)),
            "ssl-mode" => is_encrypted = is_to_be_encrypted(&value)?,
            "ssl-ca" => files.authority = Some(value),
            "ssl-cert" => files.certificate = Some(value),
            "ssl-key" => files.key = Some(value),
            _ => {
                return Err(invalid(
                    "the URL has an unknown parameter; known are prefix, schema, timeout-ms, connections, tables=exist, \
                     socket, ssl-mode, ssl-ca, ssl-cert, ssl-key; a ? in a password is written %3F",
                ));
            }
        }
    }
    config.source = Source::Own(Box::new(tls::add(options, is_encrypted, files)?));
    Ok(config)
}

fn decode(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| invalid("the URL must be UTF-8, percent-encoded"))?;
    Ok(decoded.into_owned())
}

fn number<T: FromStr>(value: &str, otherwise: &'static str) -> Result<T, Error> {
    value.parse().map_err(|_| invalid(otherwise))
}

/// `preferred` would go on in the clear with anyone who says that there is no TLS.
fn is_to_be_encrypted(mode: &str) -> Result<bool, Error> {
    match &*mode.to_ascii_lowercase().replace('-', "_") {
        "disabled" => Ok(false),
        "required" | "verify_ca" | "verify_identity" => Ok(true),
        _ => Err(invalid(
            "ssl-mode in the URL must be disabled, required, verify_ca or verify_identity",
        )),
    }
}
