//! Reads PEM files.

use std::{fmt, fs};

use leasehold_core::Error;

use crate::invalid;

/// The paths of PEM files in a URL. `Debug` does not show them, because they may be a part of a
/// password.
///
/// [`Options::tls`](crate::Options::tls) returns a value of this type.
///
/// ```
/// use leasehold_settings::StoreUrl;
///
/// let mut options = StoreUrl::parse("etcd://host?ca=/etc/ca.pem")?.options()?;
///
/// let files = options.tls(["ca", "cert", "key"])?;
/// let error = files.read_if(false, "etcds://").unwrap_err();
/// assert_eq!(error.to_string(), "the URL parameters ca, cert and key require etcds://");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct TlsFiles {
    pub(crate) names: [&'static str; 3],
    pub(crate) paths: [Option<String>; 3],
}

/// The certificates and keys for TLS, in PEM format. `Debug` does not show them.
///
/// [`TlsFiles::read_if`] returns a value of this type.
#[derive(Clone, Default)]
pub struct Tls {
    /// The trusted certificate authority, or `None` for the system's trusted authorities.
    pub authority: Option<Vec<u8>>,
    /// The certificate of this client and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsFiles {
    /// Reads the files if connections are encrypted.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if a file cannot be read,
    /// or if the URL contains only one of the certificate and its key. Also returns
    /// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL contains a file and
    /// connections are not encrypted. The message then says that files require `requirement`.
    pub fn read_if(self, is_encrypted: bool, requirement: &str) -> Result<Option<Tls>, Error> {
        let [ca, cert, key] = self.names;
        if !is_encrypted {
            if self.paths.iter().all(Option::is_none) {
                return Ok(None);
            }
            let message =
                format!("the URL parameters {ca}, {cert} and {key} require {requirement}");
            return Err(invalid(message));
        }
        let read = |name: &str, path: &String| {
            // The error does not show the path, because it may be a part of a password.
            fs::read(path).map_err(|error| {
                invalid(format!("cannot read the file of the URL parameter {name}: {error}"))
            })
        };
        let [authority, certificate, private_key] = &self.paths;
        let authority = authority.as_ref().map(|path| read(ca, path)).transpose()?;
        let identity = match (certificate, private_key) {
            (Some(certificate), Some(private_key)) => {
                Some((read(cert, certificate)?, read(key, private_key)?))
            }
            (None, None) => None,
            _ => {
                let message = format!("the URL parameters {cert} and {key} must be used together");
                return Err(invalid(message));
            }
        };
        Ok(Some(Tls { authority, identity }))
    }
}

#[cfg(feature = "rustls")]
impl Tls {
    /// Creates settings for rustls. Without a certificate authority, servers need a certificate
    /// that this system trusts.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the files contain no
    /// usable certificates or no usable key. The error does not contain parts of the files.
    pub fn client_config(&self) -> Result<rustls::ClientConfig, Error> {
        use std::sync::Arc;

        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let unusable =
            |what: &str| invalid(format!("cannot use the {what} in the PEM file of the URL"));
        let certificates = |what: &str, pem: &[u8]| {
            let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
            read.ok().filter(|read| !read.is_empty()).ok_or_else(|| unusable(what))
        };
        let mut roots = rustls::RootCertStore::empty();
        match &self.authority {
            Some(pem) => {
                for certificate in certificates("certificate authority", pem)? {
                    let added = roots.add(certificate);
                    added.map_err(|_| unusable("certificate authority"))?;
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
        let Some((certificate, key)) = &self.identity else {
            return Ok(config.with_no_client_auth());
        };
        let certificate = certificates("client certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| unusable("client key"))?;
        let config = config.with_client_auth_cert(certificate, key);
        config.map_err(|_| unusable("client certificate and its key"))
    }
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsFiles").field("names", &self.names).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: [Option<&str>; 3]) -> TlsFiles {
        TlsFiles { names: ["ca", "cert", "key"], paths: paths.map(|path| path.map(str::to_owned)) }
    }

    #[test]
    fn files_are_read_only_if_connections_are_encrypted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "S3CR3T").unwrap();
        let path = file.path().to_str();

        let tls = files([None, path, path]).read_if(true, "x").unwrap().unwrap();
        assert_eq!(tls.authority, None);
        assert_eq!(tls.identity, Some((b"S3CR3T".to_vec(), b"S3CR3T".to_vec())));
        assert!(!format!("{tls:?}").contains("S3CR3T"));
        assert!(files([None; 3]).read_if(false, "x").unwrap().is_none());
        assert!(files([path, None, None]).read_if(false, "x").is_err());
    }

    #[test]
    fn unreadable_files_are_refused_without_showing_the_path() {
        for (paths, reason) in [
            ([Some("/S3CR3T"), None, None], "the URL parameter ca"),
            ([None, Some("/S3CR3T"), Some("/S3CR3T")], "the URL parameter cert"),
            ([None, Some("/S3CR3T"), None], "must be used together"),
            ([None, None, Some("/S3CR3T")], "must be used together"),
        ] {
            let error = files(paths).read_if(true, "x").unwrap_err();
            let shown = format!("{error} {error:?} {:?}", files(paths));
            assert!(shown.contains(reason) && !shown.contains("S3CR3T"), "{shown}");
        }
    }

    #[cfg(feature = "rustls")]
    #[test]
    fn unusable_files_are_refused_without_showing_their_contents() {
        let wrong = b"-----BEGIN PRIVATE KEY-----\nS3CR3T\n".to_vec();
        for (tls, reason) in [
            (Tls { authority: Some(Vec::new()), identity: None }, "certificate authority"),
            (Tls { authority: Some(wrong.clone()), identity: None }, "certificate authority"),
            (Tls { authority: None, identity: Some((wrong.clone(), wrong)) }, "client certificate"),
        ] {
            let error = tls.client_config().unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(reason) && !shown.contains("S3CR3T"), "{shown}");
        }
    }
}
