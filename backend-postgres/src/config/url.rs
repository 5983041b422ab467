//! A database's URL.

use std::time::Duration;

use form_urlencoded::{Serializer, parse};
use leasehold_core::Error;

use super::{PostgresConfig, Source};
use crate::error::invalid;
use crate::tls::{Tls, TlsFiles};

/// Reads a URL. What is not ours to read, the driver reads.
pub(super) fn read(url: &str) -> Result<PostgresConfig, Error> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(invalid("the URL must begin with postgres:// or postgresql://"));
    }
    if url.contains('#') {
        return Err(invalid("the URL must not have a part after #"));
    }
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let mut theirs = Serializer::new(String::new());
    let mut config = PostgresConfig::from_options(tokio_postgres::Config::new());
    let mut files = TlsFiles::default();
    let mut is_encrypted = false;
    for (name, value) in parse(query.as_bytes()) {
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
            "push" if value == "off" => config = config.without_push(),
            "tables" if value == "exist" => config = config.without_creating_tables(),
            "sslmode" => is_encrypted = is_to_be_encrypted(&value)?,
            "sslrootcert" => files.authority = Some(value),
            "sslcert" => files.certificate = Some(value),
            "sslkey" => files.key = Some(value),
            _ => {
                theirs.append_pair(&name, &value);
            }
        }
    }
    let tls = Tls::new(is_encrypted, &files)?;
    // Spaces are no plus signs to the driver.
    let url = format!("{address}?{}", theirs.finish().replace('+', "%20"));
    // Unnamed: after a ? in a password, its rest looks like a parameter.
    let options = url.parse().map_err(|_| {
        invalid(
            "the URL cannot be read: a host, a port or a parameter is unknown; \
             in user and password, : / ? # @ % are written %3A %2F %3F %23 %40 %25",
        )
    })?;
    config.source = Source::Own { options: Box::new(options), tls };
    Ok(config)
}

fn number<T: std::str::FromStr>(value: &str, otherwise: &'static str) -> Result<T, Error> {
    value.parse().map_err(|_| invalid(otherwise))
}

/// `prefer` and `allow` would send a password in the clear to anyone who says that there is no TLS.
fn is_to_be_encrypted(mode: &str) -> Result<bool, Error> {
    match mode {
        "disable" => Ok(false),
        "require" | "verify-ca" | "verify-full" => Ok(true),
        _ => Err(invalid("sslmode in the URL must be disable, require, verify-ca or verify-full")),
    }
}
