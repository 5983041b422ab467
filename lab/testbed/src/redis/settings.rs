//! The settings of servers that hold data.

use std::path::Path;

use crate::certificates::{Certificates, TlsClients};

use super::node::Node;
use super::server::Login;

/// The user that servers, sentinels and this testbed log in as where there are users.
const INTERNAL: [&str; 2] = ["leasehold-testbed", "leasehold-testbed-secret"];

/// The settings that servers share, alone or in a group.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeOptions {
    pub(super) args: Vec<String>,
    pub(super) acl: Vec<String>,
    pub(super) tls: Option<TlsClients>,
    pub(super) append_only: bool,
}

impl NodeOptions {
    /// Adds a user with all rights, if there are users.
    pub(super) fn let_in_ourselves(&mut self) -> Option<Login> {
        if self.acl.is_empty() {
            return None;
        }
        let [user, password] = INTERNAL;
        self.acl.push(format!("user {user} on >{password} ~* &* +@all"));
        Some(INTERNAL.map(str::to_owned))
    }

    /// The arguments of a server that lives in `folder`, where its access rules are written to.
    pub(super) fn server_args(
        &self,
        folder: &Path,
        port: u16,
        tls: Option<(u16, &Certificates)>,
    ) -> Vec<String> {
        let path = |name: &str| display(&folder.join(name));
        let append_only = if self.append_only { "yes" } else { "no" };
        let mut args = vec![
            ("bind", "127.0.0.1".to_owned()),
            ("port", port.to_string()),
            ("unixsocket", path("redis.sock")),
            ("dir", display(folder)),
            ("save", String::new()),
            ("appendonly", append_only.to_owned()),
            ("appendfsync", "always".to_owned()),
        ];
        if !self.acl.is_empty() {
            let file = folder.join("users.acl");
            std::fs::write(&file, self.acl.join("\n")).expect("temporary files can be written");
            args.push(("aclfile", display(&file)));
        }
        if let (Some((port, certificates)), Some(clients)) = (tls, self.tls) {
            args.extend(tls_settings(port, certificates, clients));
        }
        flags(args)
    }

    /// The arguments of one server of several, which copies another or will.
    pub(super) fn replicated_args(
        &self,
        node: &Node,
        certificates: Option<&Certificates>,
    ) -> Vec<String> {
        let mut args = match certificates {
            Some(certificates) => {
                let tls = Some((node.port(), certificates));
                self.server_args(node.server.folder(), 0, tls)
            }
            None => self.server_args(node.server.folder(), node.port(), None),
        };
        args.extend(flags([
            // A replica starts to copy at once.
            ("repl-diskless-sync", "yes".to_owned()),
            ("repl-diskless-sync-delay", "0".to_owned()),
            ("repl-ping-replica-period", "1".to_owned()),
        ]));
        args.extend(flags(node.source().map(|source| ("bind-source-addr", source.to_string()))));
        if let Some(certificates) = certificates {
            args.extend(flags(tls_between_servers(certificates)));
        }
        if !self.acl.is_empty() {
            let [user, password] = INTERNAL.map(str::to_owned);
            args.extend(flags([("masteruser", user), ("masterauth", password)]));
        }
        args
    }
}

/// The settings by which a server speaks TLS on a port.
pub(super) fn tls_settings(
    port: u16,
    certificates: &Certificates,
    clients: TlsClients,
) -> [(&'static str, String); 5] {
    let ask = match clients {
        TlsClients::NeedCertificate => "yes",
        TlsClients::NeedNoCertificate => "no",
    };
    [
        ("tls-port", port.to_string()),
        ("tls-cert-file", display(&certificates.server_certificate())),
        ("tls-key-file", display(&certificates.server_key())),
        ("tls-ca-cert-file", display(&certificates.authority())),
        ("tls-auth-clients", ask.to_owned()),
    ]
}

/// The settings with which a server opens TLS connections to other servers, using a client
/// certificate.
pub(super) fn tls_between_servers(certificates: &Certificates) -> [(&'static str, String); 3] {
    [
        ("tls-replication", "yes".to_owned()),
        ("tls-client-cert-file", display(&certificates.client_certificate())),
        ("tls-client-key-file", display(&certificates.client_key())),
    ]
}

/// Settings as arguments of the command line.
pub(super) fn flags(settings: impl IntoIterator<Item = (&'static str, String)>) -> Vec<String> {
    settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
}

pub(super) fn display(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}
