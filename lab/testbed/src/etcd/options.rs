//! How a cluster is started.

use std::time::Duration;

use crate::certificates::TlsClients;

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    pub(super) members: usize,
    pub(super) tls: Option<TlsClients>,
    pub(super) auth: bool,
    pub(super) users: Vec<User>,
    pub(super) timing: Option<Timing>,
    pub(super) old: bool,
    pub(super) durable: bool,
    pub(super) args: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
    pub(super) prefix: String,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) heartbeat: Duration,
    pub(super) election: Duration,
}

impl EtcdOptions {
    /// One member, which everybody may use.
    pub fn new() -> Self {
        Self {
            members: 1,
            tls: None,
            auth: false,
            users: Vec::new(),
            timing: None,
            old: false,
            durable: false,
            args: Vec::new(),
        }
    }

    /// So many members.
    #[must_use]
    pub fn members(mut self, members: usize) -> Self {
        self.members = members;
        self
    }

    /// Waits for the disk before it answers, as etcd does unless it is told not to.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Speaks only TLS to clients, with certificates made on the spot.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(TlsClients::NeedNoCertificate);
        self
    }

    /// Speaks only TLS to clients, and asks them for a certificate.
    #[must_use]
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.tls = Some(TlsClients::NeedCertificate);
        self
    }

    /// Requires clients to log in as a user. The users are `root`, which [`Etcd::ctl`](super::Etcd::ctl) uses, and
    /// the users added with [`user`](Self::user).
    #[must_use]
    pub fn auth(mut self) -> Self {
        self.auth = true;
        self
    }

    /// Adds a user with the right to read and write the keys with a prefix; implies [`auth`](Self::auth).
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, prefix: &str) -> Self {
        let [name, password, prefix] = [name, password, prefix].map(str::to_owned);
        self.users.push(User { name, password, prefix });
        self.auth()
    }

    /// Sets the pause between a leader's heartbeats, and how long followers wait for one before they elect another.
    ///
    /// etcd wants the second to be five times the first or more. By default they are 50 ms and 500
    /// ms; and 10 ms and 100 ms for a single member, which waits for the whole election timeout
    /// before it elects itself.
    #[must_use]
    pub fn timing(mut self, heartbeat: Duration, election: Duration) -> Self {
        self.timing = Some(Timing { heartbeat, election });
        self
    }

    /// Uses etcd 3.4.
    #[must_use]
    pub fn old(mut self) -> Self {
        self.old = true;
        self
    }

    /// Adds arguments of `etcd` for every member, such as `["--auth-token-ttl", "2"]`.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(super) fn timing_or_default(&self) -> Timing {
        let [heartbeat, election] = if self.members == 1 { [20, 100] } else { [50, 500] };
        let [heartbeat, election] = [heartbeat, election].map(Duration::from_millis);
        self.timing.unwrap_or(Timing { heartbeat, election })
    }
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self::new()
    }
}
