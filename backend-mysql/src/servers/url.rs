//! Reads the URL of a database.

use leasehold_core::Error;
use leasehold_settings::{StoreUrl, decode, invalid};
use leasehold_sql_support::remote::Settings;
use mysql_async::OptsBuilder;

use super::Servers;
use crate::tls;

const DEFAULT_PORT: u16 = 3306;

impl Servers {
    /// Reads a URL. `settings` receives the parameters that all databases support.
    pub(crate) fn from_url(url: &str, settings: &mut Settings) -> Result<Self, Error> {
        let url = StoreUrl::parse(url)?;
        if !matches!(url.scheme(), "mysql" | "mariadb") {
            return Err(invalid("the URL must start with mysql:// or mariadb://"));
        }
        let mut options = url.options()?;
        settings.read(&mut options)?;
        let socket = options.text("socket")?;
        let mode = options.text("ssl-mode")?;
        let is_encrypted = mode.as_deref().map(is_to_be_encrypted).transpose()?.unwrap_or(false);
        let files = options.tls(["ssl-ca", "ssl-cert", "ssl-key"])?;
        options.finish()?;
        let authority = url.authority()?;
        let servers = authority.servers(DEFAULT_PORT)?;
        let [server] = &servers[..] else {
            return Err(invalid("the URL must name one host"));
        };
        let database = decode(authority.path)?;
        if database.is_empty() || database.contains('/') {
            return Err(invalid("the URL must name a database, as in mysql://host/database"));
        }
        let mut options = OptsBuilder::default()
            .ip_or_hostname(&server.host)
            .tcp_port(server.port)
            .db_name(Some(database))
            .socket(socket);
        if let Some(credentials) = authority.credentials {
            let user = Some(credentials.user).filter(|user| !user.is_empty());
            options = options.user(user).pass(credentials.password);
        }
        match files.read_if(is_encrypted, "ssl-mode=verify_identity")? {
            Some(files) => tls::add(options, files).map(Self::from),
            None => Ok(Self::from(options)),
        }
    }
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
