//! Encrypts connections.

use leasehold_core::Error;
use leasehold_settings::Tls;
use mysql_async::OptsBuilder;

#[cfg(not(feature = "tls"))]
pub(crate) fn add(_: OptsBuilder, _: Tls) -> Result<OptsBuilder, Error> {
    Err(leasehold_settings::disabled("TLS", "mysql", "tls"))
}

/// Enables TLS in `options`.
#[cfg(feature = "tls")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature, it fails")]
pub(crate) fn add(options: OptsBuilder, files: Tls) -> Result<OptsBuilder, Error> {
    use mysql_async::{ClientIdentity, SslOpts};
    use rustls::crypto::{CryptoProvider, ring};

    let roots = match files.authority {
        Some(pem) => vec![pem.into()],
        None => {
            let certificates = rustls_native_certs::load_native_certs().certs;
            certificates.into_iter().map(|certificate| certificate.to_vec().into()).collect()
        }
    };
    let identity = files
        .identity
        .map(|(certificate, key)| ClientIdentity::new(certificate.into(), key.into()));
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
