//! Connects to the members of the cluster, one member at a time.
//!
//! The client crate can distribute requests over all members, but requests to a member that is down
//! would then fail. Leasehold therefore creates one client per member, and sends all requests to
//! one member until this member fails.

use std::io::ErrorKind::TimedOut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use std::{fmt, io};

use etcd_client::{Client, Error as EtcdError, ResponseHeader, StatusResponse, Txn, TxnResponse};
use leasehold_core::backend::{Dial, Finding, check_io};
use leasehold_core::{Error, ErrorKind};
use tokio::net::lookup_host;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;
use tonic::Code;

use crate::config::EtcdConfig;
use crate::error::{self, Failure};
use crate::version;

/// The time after which a dropped request or connection attempt indicates that the member is not
/// replying. Healthy clusters reply within milliseconds.
const SUSPICIOUS: Duration = Duration::from_millis(300);

/// The shortest TTL that outlasts a frozen leader. The value was measured with etcd's default
/// timing, with which 5 s were not sufficient.
const LASTING: Duration = Duration::from_secs(10);

/// The maximum size of a reply, as in etcd's official client. With the client crate's limit of 4
/// MiB, a lock with tens of thousands of waiters would be unusable.
const LONGEST_REPLY: usize = i32::MAX as usize;

/// The members of a cluster.
pub(crate) struct Connection {
    config: EtcdConfig,
    members: Vec<Member>,
    /// A counter that increases with each switch to a different member.
    turn: AtomicUsize,
    moved: watch::Sender<usize>,
    /// The ID of the cluster, as reported by the first member.
    cluster: OnceLock<u64>,
    warned_of_version: AtomicBool,
    warned_of_ttl: AtomicBool,
    /// The latest term that a reply has reported, or 0 before the first reply.
    term: AtomicU64,
    /// Whether there has been a connection before.
    was_connected: AtomicBool,
    /// Counts the elections that replies have reported, and all connections after the first
    /// connection.
    epochs: AtomicU64,
    closed: AtomicBool,
}

/// A member, and the client that is connected to it.
struct Member {
    endpoint: String,
    client: Mutex<Option<Arc<Client>>>,
    dial: Dial<String>,
    /// Addresses for tests, which replace the resolver.
    #[cfg(test)]
    fixed: Option<Vec<String>>,
}

/// A request or a connection attempt in progress.
struct Exchange<'a> {
    connection: &'a Connection,
    turn: usize,
    began: Instant,
    replied: bool,
}

impl Connection {
    pub(crate) fn new(config: EtcdConfig) -> Self {
        Self {
            members: config.endpoints.iter().map(|endpoint| Member::new(endpoint)).collect(),
            config,
            turn: AtomicUsize::new(0),
            moved: watch::Sender::new(0),
            cluster: OnceLock::new(),
            warned_of_version: AtomicBool::new(false),
            warned_of_ttl: AtomicBool::new(false),
            term: AtomicU64::new(0),
            was_connected: AtomicBool::new(false),
            epochs: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns the time limit for a reply.
    pub(crate) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// Opens a connection, unless one is open.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        // Every request opens a connection if necessary, so an empty request is sufficient.
        self.call(|_client| async { Ok(()) }).await
    }

    /// Sends a request to the current member, or to the next member if the current member is
    /// unusable.
    ///
    /// A request that may have been applied is not sent again.
    pub(crate) async fn call<T, F>(&self, request: impl Fn(&Client) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let mut unusable = None;
        for _ in 0..self.members.len() {
            let turn = self.turn.load(Ordering::Relaxed);
            let failure = match self.ask(turn, &request).await {
                Ok(Err(failure @ (Failure::MemberDown(_) | Failure::Unsent(_)))) => failure,
                Ok(reply) => return reply,
                // In both cases, nothing was sent, so the request may be sent to the next member.
                Err(failure) => failure,
            };
            self.leave(turn);
            // An error that an operator must fix is more useful than a temporary error.
            if unusable.is_none() || !matches!(failure, Failure::MemberDown(_)) {
                unusable = Some(failure);
            }
        }
        Err(unusable.expect("there is a member at least"))
    }

    /// Sends a request to the member of this turn. The outer error is the error of the connection
    /// attempt.
    async fn ask<T, F>(
        &self,
        turn: usize,
        request: &impl Fn(&Client) -> F,
    ) -> Result<Result<T, Failure>, Failure>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let client = self.attend(turn, self.client(turn)).await?;
        let reply = self.call_member(turn, &client, request).await;
        let Err(Failure::Unsent(_)) = reply else { return Ok(reply) };
        if let Ok(mut current) = self.member(turn).client.try_lock()
            && current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &client))
        {
            *current = None;
        }
        let client = self.attend(turn, self.client(turn)).await?;
        Ok(self.call_member(turn, &client, request).await)
    }

    /// Sends a transaction.
    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Failure> {
        let send = |client: &Client| {
            let mut keys = client.kv_client().max_decoding_message_size(LONGEST_REPLY);
            let txn = txn.clone();
            async move { keys.txn(txn).await }
        };
        let reply = self.call(send).await?;
        self.note_term(reply.header().map(ResponseHeader::raft_term));
        Ok(reply)
    }

    /// Checks each configured member.
    pub(crate) async fn diagnose(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (turn, member) in self.members.iter().enumerate() {
            let found = self.diagnose_member(turn).await;
            let name = |finding: Finding| match self.members.len() {
                1 => finding,
                _ => finding.with_server(&member.endpoint),
            };
            findings.extend(found.into_iter().map(name));
        }
        findings
    }

    async fn diagnose_member(&self, turn: usize) -> Vec<Finding> {
        let down = |error: Error| vec![Finding::warning("settings", error.to_string())];
        let client = match self.client(turn).await {
            Ok(client) => client,
            Err(failure) => return down(failure.into_error()),
        };
        match timeout(self.config.timeout, client.maintenance_client().status()).await {
            Ok(Ok(status)) => judge(&status),
            Ok(Err(EtcdError::GRpcStatus(status))) if status.code() == Code::PermissionDenied => {
                let message = "the settings are not visible to this user; connect as a user with the root role";
                vec![Finding::warning("settings", message)]
            }
            Ok(Err(error)) => down(error::connect(error).into_error()),
            Err(_) => down(Failure::silent().into_error()),
        }
    }

    /// Logs a warning, at most once, if the TTL of renewed leases is shorter than a change of the
    /// leader can take. A cluster with one member does not change its leader.
    pub(crate) fn warn_if_short(&self, ttl: Duration) {
        if ttl < LASTING
            && self.members.len() > 1
            && !self.warned_of_ttl.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                ?ttl,
                "a lease with a TTL of less than {LASTING:?} may be lost if etcd's leader fails"
            );
        }
    }

    /// Counts the events after which older etcd leases must no longer be used.
    ///
    /// After an election, the former leader may still expire leases that it knew. A new connection
    /// may mean that this process is a copy, for example from a snapshot of its machine, in which
    /// case the original and the copy would use the same etcd leases.
    pub(crate) fn epochs(&self) -> u64 {
        self.epochs.load(Ordering::Relaxed)
    }

    fn note_term(&self, term: Option<u64>) {
        let term = term.unwrap_or_default();
        let before = self.term.fetch_max(term, Ordering::Relaxed);
        if 0 < before && before < term {
            self.epochs.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn call_member<T, F>(
        &self,
        turn: usize,
        client: &Client,
        request: &impl Fn(&Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        match self.exchange(turn, request(client)).await {
            Err(Failure::TokenExpired(_)) => {
                let refreshed = self.exchange(turn, client.refresh_token());
                refreshed.await.map_err(|failure| match failure {
                    // The request was rejected.
                    Failure::Unknown(error) => Failure::MemberDown(error::unreachable(error)),
                    failure => failure,
                })?;
                self.exchange(turn, request(client)).await
            }
            reply => reply,
        }
    }

    async fn exchange<T>(
        &self,
        turn: usize,
        request: impl Future<Output = Result<T, EtcdError>>,
    ) -> Result<T, Failure> {
        let failure = match self.attend(turn, timeout(self.config.timeout, request)).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => error::request(error),
            Err(_) => Failure::silent(),
        };
        if let Failure::Unknown(_) = failure {
            self.leave(turn);
        }
        Err(failure)
    }

    /// Waits for a reply from the member of this turn. If the caller is dropped after a long wait,
    /// switches to the next member.
    pub(crate) async fn attend<T>(&self, turn: usize, answer: impl Future<Output = T>) -> T {
        let mut exchange =
            Exchange { connection: self, turn, began: Instant::now(), replied: false };
        let answer = answer.await;
        exchange.replied = true;
        answer
    }

    /// Returns a client for the member of this turn.
    pub(crate) async fn client(&self, turn: usize) -> Result<Arc<Client>, Failure> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Failure::Final(Error::new(ErrorKind::Closed, "the backend was closed")));
        }
        let member = self.member(turn);
        let connecting = async {
            let mut client = member.client.lock().await;
            if let Some(client) = &*client {
                return Ok(Arc::clone(client));
            }
            Ok(Arc::clone(client.insert(Arc::new(self.connect(member).await?))))
        };
        // The time limit also applies to a caller that waits for a different caller's connection
        // attempt.
        let connected = timeout(self.config.timeout, connecting).await;
        let connected =
            connected.map_err(|elapsed| Failure::MemberDown(error::unreachable(elapsed)));
        connected.flatten().map_err(|failure| failure.at(&member.endpoint))
    }

    /// Connects to a member at one of its addresses.
    async fn connect(&self, member: &Member) -> Result<Client, Failure> {
        check_io().map_err(Failure::Final)?;
        let begun_at = Instant::now();
        let endpoints = match self.config.is_resolved(&member.endpoint) {
            true => member.resolve().await?,
            false => vec![member.endpoint.clone()],
        };
        let left = self.config.timeout.saturating_sub(begun_at.elapsed());
        let name = member.host();
        let connecting = member.dial.first(endpoints, left, |it| self.connect_to(it, name));
        let failures = match connecting.await {
            Ok(client) => {
                if self.was_connected.swap(true, Ordering::Relaxed) {
                    self.epochs.fetch_add(1, Ordering::Relaxed);
                }
                return Ok(client);
            }
            Err(failures) => failures,
        };
        let needs_help = |failure: &Failure| !matches!(failure, Failure::MemberDown(_));
        let (mut others, down): (Vec<_>, Vec<_>) = failures.into_iter().partition(needs_help);
        others.extend(down);
        let late = || Failure::MemberDown(error::unreachable(io::Error::from(TimedOut)));
        Err(others.into_iter().next().unwrap_or_else(late))
    }

    /// Connects to an address of a member, and checks that the member is part of the expected
    /// cluster.
    async fn connect_to(&self, endpoint: String, name: &str) -> Result<Client, Failure> {
        let options = self.config.options(name);
        let mut client =
            Client::connect([&endpoint], Some(options)).await.map_err(error::connect)?;
        let status = match client.status().await {
            Ok(status) => status,
            // Some servers report the cluster ID only to administrators.
            Err(EtcdError::GRpcStatus(status)) if status.code() == Code::PermissionDenied => {
                return Ok(client);
            }
            Err(error) => return Err(error::connect(error)),
        };
        if version::is_unsafe(status.version())
            && !self.warned_of_version.swap(true, Ordering::Relaxed)
        {
            version::warn(status.version());
        }
        self.note_term(Some(status.raft_term()));
        let cluster = status.header().map(ResponseHeader::cluster_id);
        if let Some(cluster) = cluster
            && *self.cluster.get_or_init(|| cluster) != cluster
        {
            let message = "the addresses belong to members of different clusters";
            return Err(Failure::Final(Error::new(ErrorKind::Invalid, message)));
        }
        Ok(client)
    }

    /// Switches to the next member because the member of this turn has failed. The client
    /// reconnects to the failed member when its turn comes.
    pub(crate) fn leave(&self, turn: usize) {
        let next = turn.wrapping_add(1);
        if self.turn.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // A different call has already switched to the next member.
            return;
        }
        if let Ok(mut client) = self.member(turn).client.try_lock() {
            *client = None;
        }
        self.moved.send_replace(next);
    }

    /// Returns the current turn.
    pub(crate) fn turn(&self) -> usize {
        self.turn.load(Ordering::Relaxed)
    }

    /// Returns a receiver that is notified of each switch to a different member.
    pub(crate) fn moves(&self) -> watch::Receiver<usize> {
        self.moved.subscribe()
    }

    /// Drops all clients. The next call creates a new client.
    pub(crate) fn disconnect(&self) {
        for member in &self.members {
            // A caller that is still connecting does not have a client to drop.
            if let Ok(mut client) = member.client.try_lock() {
                *client = None;
            }
        }
    }

    /// Makes all later calls fail.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        for member in &self.members {
            *member.client.lock().await = None;
        }
        self.moved.send_modify(|turn| *turn = turn.wrapping_add(1));
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn member(&self, turn: usize) -> &Member {
        &self.members[turn % self.members.len()]
    }
}

fn judge(status: &StatusResponse) -> Vec<Finding> {
    let version = format!("etcd {}", status.version());
    let version = if version::is_unsafe(status.version()) {
        let risk = "a paused leader may revoke live leases; use etcd 3.4.31, 3.5.13 or newer";
        Finding::warning("version", format!("{version}: {risk}"))
    } else {
        Finding::ok("version", version)
    };
    let myself = status.header().map_or(0, ResponseHeader::member_id);
    let role = if status.leader() == 0 {
        Finding::failed("role", "no leader, because the cluster has no majority")
    } else if status.is_learner() {
        Finding::failed(
            "role",
            "learner, which does not grant locks; use the URLs of the voting members",
        )
    } else if status.leader() == myself {
        Finding::ok("role", "leader")
    } else {
        Finding::ok("role", "follower")
    };
    vec![version, role]
}

impl Member {
    fn new(endpoint: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            client: Mutex::default(),
            dial: Dial::new(),
            #[cfg(test)]
            fixed: None,
        }
    }

    /// Returns the host name of the endpoint. The certificate must contain this name.
    fn host(&self) -> &str {
        let authority = self.endpoint.split_once("://").map_or(&*self.endpoint, |(_, rest)| rest);
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns one endpoint for each address of the name, with the address in place of the name.
    async fn resolve(&self) -> Result<Vec<String>, Failure> {
        #[cfg(test)]
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let Some((scheme, authority)) = self.endpoint.split_once("://") else {
            return Ok(vec![self.endpoint.clone()]);
        };
        let mut endpoints = Vec::new();
        match lookup_host(authority).await {
            Ok(found) => {
                for endpoint in found.map(|address| format!("{scheme}://{address}")) {
                    if !endpoints.contains(&endpoint) {
                        endpoints.push(endpoint);
                    }
                }
            }
            // The endpoint has no port, or more text after the port.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                endpoints.push(self.endpoint.clone());
            }
            Err(error) => return Err(Failure::MemberDown(error::unreachable(error))),
        }
        Ok(endpoints)
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.replied && self.began.elapsed() >= SUSPICIOUS {
            self.connection.leave(self.turn);
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testbed::Etcd;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn address_that_says_nothing_leaves_time_for_the_next() {
        let server = Etcd::start().await;
        let port = server.endpoints()[0].rsplit_once(':').unwrap().1.to_owned();
        let mute = TcpListener::bind(format!("127.0.0.2:{port}")).await.unwrap();
        let url = format!("etcd://db.example:{port}?timeout-ms=4000");
        let mut connection = Connection::new(EtcdConfig::from_url(&url).unwrap());
        let addresses = ["127.0.0.2", "127.0.0.1"].map(|it| format!("http://{it}:{port}"));
        connection.members[0].fixed = Some(addresses.to_vec());

        assert!(connection.client(0).await.is_ok());

        assert!(mute.accept().await.is_ok(), "the first address was tried");
    }

    #[test]
    fn host_is_the_name_in_the_certificate() {
        for (endpoint, host) in [
            ("https://db.example:2379", "db.example"),
            ("https://[::1]:2379", "::1"),
            ("http://127.0.0.1:2379", "127.0.0.1"),
        ] {
            assert_eq!(Member::new(endpoint).host(), host);
        }
    }
}
