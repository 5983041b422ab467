//! The files that members read, and their settings.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::certificates::TlsClients;
use crate::database::display;
use crate::disk::SmallDisk;
use crate::unprivileged;

use super::ZooKeeper;
use super::member::Member;

/// Lets in users by DIGEST-MD5.
const LOGIN_MODULE: &str = "org.apache.zookeeper.server.auth.DigestLoginModule";

/// Has users log in.
const SASL: &str = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";

/// The connections that know TLS.
const NETTY: &str = "org.apache.zookeeper.server.NettyServerCnxnFactory";

impl ZooKeeper {
    /// Writes the files of all members, and makes their disks.
    pub(super) fn prepare(&mut self) {
        self.write_shared_files();
        for i in 0..self.members.len() {
            let member = &self.members[i];
            for folder in [&member.folder.join("data"), &member.transactions()] {
                fs::create_dir_all(folder).expect("temporary folders can be written");
            }
            write(&member.folder.join("data/myid"), &id(i).to_string());
            write(&member.folder.join("zoo.cfg"), &self.settings(i));
            if self.options.small_disks {
                self.give_disk(i);
            }
        }
    }

    /// A server on a disk of its own is never root's.
    fn give_disk(&mut self, i: usize) {
        let member = &mut self.members[i];
        let folders = [&member.folder, &member.folder.join("data"), &member.transactions()];
        for folder in folders {
            unprivileged::give(folder);
        }
        member.disk = Some(SmallDisk::mount(member.transactions()));
        unprivileged::give(self.folder.path());
    }

    fn settings(&self, i: usize) -> String {
        let member = &self.members[i];
        let tick = self.options.tick.as_millis().to_string();
        let force_sync = if self.options.durable { "yes" } else { "no" };
        let port = |port: u16| port.to_string();
        let mut settings = vec![
            ("tickTime", tick.clone()),
            ("initLimit", "20".to_owned()),
            ("syncLimit", "10".to_owned()),
            ("minSessionTimeout", tick),
            ("maxSessionTimeout", "120000".to_owned()),
            ("maxClientCnxns", "0".to_owned()),
            ("clientPortAddress", "127.0.0.1".to_owned()),
            ("clientPort", port(member.client_port)),
            ("dataDir", display(&member.folder.join("data"))),
            ("dataLogDir", display(&member.transactions())),
            // The kernel writes the data that a killed server leaves unwritten: only a power cut would lose it.
            ("forceSync", force_sync.to_owned()),
            ("preAllocSize", "64".to_owned()),
            // Another port, and half of the classes.
            ("admin.enableServer", "false".to_owned()),
            ("4lw.commands.whitelist", "*".to_owned()),
        ];
        if !self.options.users.is_empty() {
            settings.push(("authProvider.sasl", SASL.to_owned()));
        }
        settings.extend(self.tls_settings(member));
        let others = self.options.settings.iter();
        let others = others.map(|[name, value]| (name.as_str(), value.clone()));
        let mut text = String::new();
        // A later setting replaces an earlier one.
        for (name, value) in settings.into_iter().chain(others) {
            writeln!(text, "{name}={value}").expect("strings can be written");
        }
        text + &self.servers()
    }

    /// The members, as they know each other. A single server does not have this list.
    fn servers(&self) -> String {
        if self.members.len() == 1 {
            return String::new();
        }
        let servers = self.members.iter().enumerate().map(|(i, member)| {
            format!("server.{}=127.0.0.1:{}:{}\n", id(i), member.peer_port, member.election_port)
        });
        servers.collect()
    }

    fn tls_settings(&self, member: &Member) -> Vec<(&'static str, String)> {
        let Some(certificates) = &self.certificates else { return Vec::new() };
        let needs_certificate = self.options.tls == Some(TlsClients::NeedCertificate);
        let clients = if needs_certificate { "need" } else { "none" };
        vec![
            ("secureClientPort", member.secure_port.to_string()),
            ("serverCnxnFactory", NETTY.to_owned()),
            ("ssl.keyStore.location", display(&self.key_store())),
            ("ssl.trustStore.location", display(&certificates.authority())),
            ("ssl.trustStore.type", "PEM".to_owned()),
            ("ssl.clientAuth", clients.to_owned()),
        ]
    }

    /// Writes the files that all members read.
    fn write_shared_files(&self) {
        if let Some(certificates) = &self.certificates {
            let files = [certificates.server_key(), certificates.server_certificate()];
            let text = files.map(|file| fs::read_to_string(file).expect("it was written"));
            write(&self.key_store(), &text.concat());
        }
        if !self.options.users.is_empty() {
            let mut users = String::new();
            for [name, password] in &self.options.users {
                write!(users, " user_{name}=\"{password}\"").expect("strings can be written");
            }
            write(&self.logins(), &format!("Server {{ {LOGIN_MODULE} required{users}; }};\n"));
        }
    }

    pub(super) fn properties(&self) -> Vec<String> {
        let properties = self.options.properties.iter();
        let mut properties: Vec<_> =
            properties.map(|[name, value]| format!("-D{name}={value}")).collect();
        if !self.options.users.is_empty() {
            properties
                .push(format!("-Djava.security.auth.login.config={}", display(&self.logins())));
            // ZooKeeper 3.9 disables DIGEST-MD5 by default.
            properties.push("-Dzookeeper.fips-mode=false".to_owned());
        }
        properties
    }

    /// The server's key and certificate in one file, as ZooKeeper takes them.
    fn key_store(&self) -> PathBuf {
        self.folder().join("server.pem")
    }

    /// The users for SASL.
    fn logins(&self) -> PathBuf {
        self.folder().join("logins")
    }
}

/// The number by which the members know one, which must not be 0.
fn id(i: usize) -> usize {
    i + 1
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("temporary files can be written");
}
