//! Encrypts connections.

#[cfg(feature = "tls")]
mod stream;

use leasehold_core::Error;

/// The trusted certificate authorities, and the client's certificate.
#[derive(Clone)]
pub(crate) struct Tls(
    #[cfg(feature = "tls")] pub(crate) std::sync::Arc<rustls::ClientConfig>,
    #[cfg(not(feature = "tls"))] std::convert::Infallible,
);

impl Tls {
    #[cfg(feature = "tls")]
    pub(crate) fn new(files: &leasehold_settings::Tls) -> Result<Self, Error> {
        Ok(Self(files.client_config()?.into()))
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(_: &leasehold_settings::Tls) -> Result<Self, Error> {
        Err(leasehold_settings::disabled("TLS", "postgres", "tls"))
    }
}
