//! Encrypts connections.

use leasehold_core::Error;
use leasehold_sql_support::remote::invalid;
use mysql_async::OptsBuilder;

/// The paths of PEM files.
#[derive(Default)]
pub(crate) struct TlsFiles {
    pub(crate) authority: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

/// Enables TLS in `options` if connections must be encrypted.
pub(crate) fn add(
    options: OptsBuilder,
    is_encrypted: bool,
    files: TlsFiles,
) -> Result<OptsBuilder, Error> {
    if is_encrypted {
        return encrypted(options, files);
    }
    let TlsFiles { authority, certificate, key } = files;
    if authority.is_some() || certificate.is_some() || key.is_some() {
        return Err(invalid(
            "the URL parameters ssl-ca, ssl-cert and ssl-key require ssl-mode=verify_identity",
        ));
    }
    Ok(options)
}

#[cfg(not(feature = "tls"))]
fn encrypted(_: OptsBuilder, _: TlsFiles) -> Result<OptsBuilder, Error> {
    let message = "TLS is disabled; enable the feature \"tls\" of leasehold-mysql, or \"mysql-tls\" of leasehold";
    Err(Error::new(leasehold_core::ErrorKind::Unsupported, message))
}

#[cfg(feature = "tls")]
fn encrypted(options: OptsBuilder, files: TlsFiles) -> Result<OptsBuilder, Error> {
    use mysql_async::{ClientIdentity, SslOpts};
    use rustls::crypto::{CryptoProvider, ring};

    // The error does not show the path, because it may be a part of a password.
    let read = |name: &str, path: String| {
        std::fs::read(path)
            .map_err(|_| invalid(format!("cannot read the file of the URL parameter {name}")))
    };
    let roots = match files.authority {
        Some(path) => vec![read("ssl-ca", path)?.into()],
        None => {
            let certificates = rustls_native_certs::load_native_certs().certs;
            certificates.into_iter().map(|certificate| certificate.to_vec().into()).collect()
        }
    };
    let identity = match (files.certificate, files.key) {
        (Some(certificate), Some(key)) => {
            let certificate = read("ssl-cert", certificate)?;
            Some(ClientIdentity::new(certificate.into(), read("ssl-key", key)?.into()))
        }
        (None, None) => None,
        _ => return Err(invalid("the URL parameters ssl-cert and ssl-key must be used together")),
    };
    // The driver uses the process-wide crypto provider. The driver panics if no provider is
    // installed and several are compiled in.
    if CryptoProvider::get_default().is_none() {
        drop(ring::default_provider().install_default());
    }
    let tls = SslOpts::default()
        .with_root_certs(roots)
        .with_disable_built_in_roots(true)
        .with_client_identity(identity);
    Ok(options.ssl_opts(tls))
}
