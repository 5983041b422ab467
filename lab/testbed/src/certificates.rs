//! TLS certificates, made on the spot.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The clients that may connect by TLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TlsClients {
    NeedNoCertificate,
    NeedCertificate,
}

/// A certificate authority, and certificates from it for a server on loopback and for a client.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Creates them as PEM files in `folder`, for a server that clients call by these names.
    ///
    /// # Panics
    ///
    /// If the files cannot be written.
    pub fn create(folder: &Path, names: &[&str]) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new([]).expect("no names are fine");
        params.distinguished_name.push(DnType::CommonName, "Leasehold test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = params.self_signed(&key).expect("it can sign itself");
        let certificates = Self { folder: folder.to_owned() };
        certificates.write("authority.crt", &authority.pem());

        let issuer = Issuer::new(params, key);
        certificates.issue(&issuer, names, "server", ExtendedKeyUsagePurpose::ServerAuth);
        certificates.issue(&issuer, names, "client", ExtendedKeyUsagePurpose::ClientAuth);
        certificates
    }

    fn issue(
        &self,
        issuer: &Issuer<'_, KeyPair>,
        names: &[&str],
        name: &str,
        usage: ExtendedKeyUsagePurpose,
    ) {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params =
            CertificateParams::new(names.iter().copied().map(str::to_owned).collect::<Vec<_>>())
                .expect("they are names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, issuer).expect("the authority can sign");
        self.write(&format!("{name}.crt"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("the folder can be written");
    }

    /// The authority's certificate, which clients trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.crt")
    }

    /// The server's certificate.
    pub fn server_certificate(&self) -> PathBuf {
        self.folder.join("server.crt")
    }

    /// The server's key.
    pub fn server_key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    /// A client's certificate.
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.crt")
    }

    /// A client's key.
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }
}
