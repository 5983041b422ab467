//! How a cluster comes up.

use std::path::Path;

use crate::certificates::{Certificates, TlsClients};
use crate::process::Process;

use super::member::{Member, Stage};
use super::program::Program;
use super::{Etcd, EtcdOptions};

impl EtcdOptions {
    /// Starts the cluster and waits until all members are healthy.
    ///
    /// # Panics
    ///
    /// If the cluster cannot be started. The environment variable `LEASEHOLD_ETCD_SERVER` names the
    /// server's program, and `etcdctl` must be in the same directory. Without the variable, the
    /// cluster uses the programs on the path if their version is 3.5.16 or newer, and otherwise
    /// the programs that `scripts/install` downloaded.
    pub async fn start(self) -> Etcd {
        for _ in 0..10 {
            if let Some(etcd) = Etcd::launch(self.clone()).await {
                return etcd;
            }
            // Another program took one of the ports.
        }
        panic!("etcd does not start, see its output above");
    }
}

impl Etcd {
    /// Starts a new cluster, unless a different program already uses one of its ports.
    async fn launch(options: EtcdOptions) -> Option<Self> {
        let program = if options.old { Program::old() } else { Program::current() };
        let folder = tempfile::Builder::new().prefix("leasehold-etcd-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let certificates =
            options.tls.map(|_| Certificates::create(folder.path(), &["localhost", "127.0.0.1"]));
        let log = |i: usize| folder.path().join(format!("{}.log", name(i)));
        let members = (0..options.members).map(|i| Member::new(log(i))).collect();
        let mut etcd =
            Self { options, program, members, folder, certificates, auth_enabled: false };
        if !etcd.try_launch().await {
            return None;
        }
        if etcd.options.auth {
            etcd.enable_auth().await;
        }
        Some(etcd)
    }

    /// Starts all members with the data that they have, and waits until they are healthy.
    pub(super) async fn try_launch(&mut self) -> bool {
        // A member of a new cluster asks all members whether the cluster already exists. A member
        // that listens but does not reply yet delays the question by one second, so the members
        // start in sequence.
        for i in 0..self.members.len() {
            self.spawn(i);
            if !self.members[i].reaches(Stage::Answers).await {
                return false;
            }
        }
        for member in &mut self.members {
            if !member.reaches(Stage::Healthy).await {
                return false;
            }
        }
        true
    }

    pub(super) fn spawn(&mut self, i: usize) {
        let (program, log) = (&self.program.server, &self.members[i].log);
        let process = Process::start(program, self.args(i), log)
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()));
        self.members[i].instance.put(process);
    }

    fn args(&self, i: usize) -> Vec<String> {
        let member = &self.members[i];
        let timing = self.options.timing_or_default();
        let cluster = self.members.iter().enumerate();
        let cluster = cluster.map(|(i, member)| format!("{}={}", name(i), peer_url(member)));
        let mut args = vec![
            ("--name", name(i)),
            ("--data-dir", display(&self.folder.path().join(name(i)))),
            ("--listen-client-urls", self.client_url(member)),
            ("--advertise-client-urls", self.client_url(member)),
            ("--listen-peer-urls", peer_url(member)),
            ("--initial-advertise-peer-urls", peer_url(member)),
            ("--listen-metrics-urls", format!("http://127.0.0.1:{}", member.metrics_port)),
            ("--initial-cluster", cluster.collect::<Vec<_>>().join(",")),
            ("--heartbeat-interval", timing.heartbeat.as_millis().to_string()),
            ("--election-timeout", timing.election.as_millis().to_string()),
            ("--log-level", "warn".to_owned()),
            // The least that there is: users are let in quickly.
            ("--bcrypt-cost", "4".to_owned()),
        ];
        if let Some(certificates) = &self.certificates {
            args.push(("--cert-file", display(&certificates.server_certificate())));
            args.push(("--key-file", display(&certificates.server_key())));
            // With an authority to trust, it asks clients for a certificate.
            if self.options.tls == Some(TlsClients::NeedCertificate) {
                args.push(("--trusted-ca-file", display(&certificates.authority())));
            }
        }
        let args = args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let mut args: Vec<_> = args.chain(self.options.args.iter().cloned()).collect();
        if !self.options.durable && self.program.can_skip_fsync() {
            // The kernel writes the data that a killed member leaves unwritten: only a power cut would lose it.
            args.push("--unsafe-no-fsync".to_owned());
        }
        args
    }

    pub(super) fn client_url(&self, member: &Member) -> String {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", member.client_port)
    }
}

fn peer_url(member: &Member) -> String {
    format!("http://127.0.0.1:{}", member.peer_port)
}

fn name(i: usize) -> String {
    format!("member-{i}")
}

fn display(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}
