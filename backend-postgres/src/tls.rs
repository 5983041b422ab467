//! Encrypts connections.

#[cfg(feature = "tls")]
mod stream;

use leasehold_core::Error;
use leasehold_sql_support::remote::invalid;

/// The paths of PEM files.
#[derive(Default)]
pub(crate) struct TlsFiles {
    pub(crate) authority: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
}

/// The trusted certificate authorities, and the client's certificate.
#[derive(Clone)]
pub(crate) struct Tls(
    #[cfg(feature = "tls")] pub(crate) std::sync::Arc<rustls::ClientConfig>,
    #[cfg(not(feature = "tls"))] std::convert::Infallible,
);

impl Tls {
    /// Reads the files if connections must be encrypted.
    pub(crate) fn new(is_encrypted: bool, files: &TlsFiles) -> Result<Option<Self>, Error> {
        if is_encrypted {
            return Self::read(files).map(Some);
        }
        let TlsFiles { authority, certificate, key } = files;
        if authority.is_some() || certificate.is_some() || key.is_some() {
            return Err(invalid(
                "the URL parameters sslrootcert, sslcert and sslkey require sslmode=verify-full",
            ));
        }
        Ok(None)
    }

    #[cfg(not(feature = "tls"))]
    fn read(_: &TlsFiles) -> Result<Self, Error> {
        let message = "TLS is disabled; enable the feature \"tls\" of leasehold-postgres, or \"postgres-tls\" of leasehold";
        Err(Error::new(leasehold_core::ErrorKind::Unsupported, message))
    }

    #[cfg(feature = "tls")]
    fn read(files: &TlsFiles) -> Result<Self, Error> {
        use std::sync::Arc;

        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        // The error does not show the path, because it may be a part of a password.
        let unusable =
            |name: &str| invalid(format!("cannot use the file of the URL parameter {name}"));
        let certificates = |name: &str, path: &str| {
            let certificates = CertificateDer::pem_file_iter(path).map_err(|_| unusable(name))?;
            let certificates: Vec<_> =
                certificates.collect::<Result<_, _>>().map_err(|_| unusable(name))?;
            if certificates.is_empty() { Err(unusable(name)) } else { Ok(certificates) }
        };
        let mut roots = rustls::RootCertStore::empty();
        match &files.authority {
            Some(path) => {
                for certificate in certificates("sslrootcert", path)? {
                    roots.add(certificate).map_err(|_| unusable("sslrootcert"))?;
                }
            }
            // Some systems have certificates that cannot be parsed. Such certificates are ignored.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        // The process-wide crypto provider is not used, because the process may not have one.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| invalid("cannot set up TLS"))?
            .with_root_certificates(roots);
        let config = match (&files.certificate, &files.key) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key).map_err(|_| unusable("sslkey"))?;
                config
                    .with_client_auth_cert(certificates("sslcert", certificate)?, key)
                    .map_err(|_| unusable("sslcert"))?
            }
            (None, None) => config.with_no_client_auth(),
            _ => {
                return Err(invalid("the URL parameters sslcert and sslkey must be used together"));
            }
        };
        Ok(Self(Arc::new(config)))
    }
}
