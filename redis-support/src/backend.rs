//! Implements the backend contract on Redis.

mod acquisition;
mod admin;
mod member;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Feature, Fencing, KeyWatch, Lease, LockBackend,
    Member, Operation, Release, Renewal, StoreAdmin, Subject,
};
use leasehold_core::{Error, ErrorKind, LockKey};

use crate::address::Endpoints;
use crate::call::Call;
use crate::config::{Config, Replicas};
use crate::context::Context;
use crate::driver::Driver;
use crate::error::ServerError;
use crate::layout::{Concerns, Layout};
use crate::pipeline::{Change, Outcome};
use crate::reply::{Received, ServerReply, decode_release, decode_renewal, unexpected};
use crate::topology::Topology;
use crate::watch::News;

/// A backend that keeps locks on Redis or Valkey, through the driver `D`. Supports single servers,
/// Sentinel and Cluster. Clones share connections.
///
/// The `leasehold-redis` and `leasehold-fred` crates define type aliases for this type and contain
/// examples.
pub struct Backend<D: Driver>(Arc<Inner<D>>);

struct Inner<D: Driver> {
    layout: Layout,
    news: Arc<News>,
    context: Arc<Context<D>>,
    topology: Topology<D>,
    replicas: Replicas,
    replicas_timeout: Duration,
}

impl<D: Driver> Backend<D> {
    /// Connects to the servers at `url`. [`Config::from_url`] describes the URL.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Config::from_url`] and of [`Backend::connect_with`].
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(Config::from_url(url)?).await
    }

    /// Connects to the servers in `config` and checks the credentials.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if no server can be reached, and [`ErrorKind::Denied`] if
    /// a server rejects the credentials.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect_with(config: Config<D>) -> Result<Self, Error> {
        let backend = Self::connect_lazily(config);
        let connected = backend.0.topology.connect().await;
        connected.map_err(|error| in_operation::<D>(error, Operation::Connect))?;
        Ok(backend)
    }

    /// Creates a backend that connects to the servers in `config` on the first request. This
    /// function performs neither I/O nor checks.
    pub fn connect_lazily(config: Config<D>) -> Self {
        let Config { driver, topology, access, sentinel_access, layout, timeout, clock, .. } =
            config;
        let layout = match topology {
            Endpoints::Cluster { .. } => layout.by_slot(),
            _ => layout,
        };
        let news = Arc::new(News::new(layout.clone()));
        let (push, protocol) = (config.push, config.protocol);
        let context = Context::new(driver, timeout, clock, Arc::clone(&news), push, protocol);
        let servers = Topology::new(topology, access, &sentinel_access, &layout, &context);
        let Config { replicas, replicas_timeout, .. } = config;
        // A cluster would forward each message to all of its servers. With sentinels, the channel
        // may belong to a different server.
        if servers.is_the_only_one() {
            context.hear_reservations();
        }
        Self(Arc::new(Inner {
            layout,
            news,
            context,
            topology: servers,
            replicas,
            replicas_timeout,
        }))
    }

    /// Notifies the observers and waiters in this process of a renewal that may have returned
    /// permits.
    fn renewed(&self, lease: &Lease, reply: ServerReply<Renewal>) -> Renewal {
        if !lease.mode().is_mutex() {
            self.0.news.changed(lease.key(), Concerns::Waiters);
        }
        self.0.news.notify_claims(&reply.notified, lease);
        reply.outcome
    }

    async fn call<T>(
        &self,
        operation: Operation,
        key: &LockKey,
        call: Call,
        decode: impl FnOnce(Received) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let answer = self.0.topology.run(&call, None).await;
        let decoded = answer.and_then(|answer| decode(answer.received));
        decoded.map_err(|error| context::<D>(error, operation, key))
    }
}

/// Returns whether a lease in a batch was released.
fn released(outcome: &Outcome) -> Result<bool, Error> {
    match outcome {
        Outcome::Released => Ok(true),
        Outcome::LeftAlone | Outcome::Elsewhere => Ok(false),
        _ => Err(unexpected()),
    }
}

fn in_operation<D: Driver>(error: Error, operation: Operation) -> Error {
    error.with_operation(operation).with_backend(D::NAME)
}

fn context<D: Driver>(error: Error, operation: Operation, key: &LockKey) -> Error {
    in_operation::<D>(error.with_key(key), operation)
}

#[async_trait]
impl<D: Driver> LockBackend for Backend<D> {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(D::NAME, Fencing::BestEffort)
            .with(Feature::Queue)
            .with(Feature::SpareTokens)
            .with(Feature::Units);
        if self.0.topology.has_all_keys_together() {
            capabilities = capabilities.with(Feature::Together);
        }
        if self.0.context.has_push() { capabilities.with(Feature::Push) } else { capabilities }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let in_context = |error| context::<D>(error, Operation::Acquire, claim.key());
        if self.may_join(claim) {
            let joined = self.0.topology.change(Change::Acquire, claim.lease()).await;
            let granted = joined.and_then(|outcome| outcome.into_grant(claim));
            if let Some(grant) = granted.map_err(in_context)? {
                return Ok(Attempt::Granted(grant));
            }
        }
        let call = Call::acquire(&self.0.layout, claim, self.0.context.channel());
        // The future is boxed because it is large and most attempts return before this point.
        let attempt = Box::pin(async move {
            let wait = self.wait(&call).await?;
            let answer = self.0.topology.run(&call, wait.as_ref()).await?;
            self.attempt(claim, wait, answer).await
        });
        attempt.await.map_err(in_context)
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let call = Call::renew(&self.0.layout, lease);
        let renewal = self.call(Operation::Renew, lease.key(), call, decode_renewal).await?;
        Ok(self.renewed(lease, renewal))
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        if lease.mode().is_mutex() {
            let joined = self.0.topology.change(Change::Release, lease).await;
            let is_released = joined.and_then(|outcome| released(&outcome));
            if is_released.map_err(|error| context::<D>(error, Operation::Release, lease.key()))? {
                self.0.news.changed(lease.key(), Concerns::Waiters);
                return Ok(Release::Released);
            }
        }
        let call = Call::release(&self.0.layout, lease);
        let release = self.call(Operation::Release, lease.key(), call, decode_release);
        let release = Box::pin(release).await?;
        // Releases that only removed a queue entry are also reported.
        self.0.news.changed(lease.key(), Concerns::Waiters);
        self.0.news.notify_claims(&release.notified, lease);
        Ok(release.outcome)
    }

    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let Some(first) = claims.first() else {
            return Ok(AttemptAll::Granted(Vec::new()));
        };
        let refuse = |message: String| {
            let error = Error::new(ErrorKind::Unsupported, message);
            Err(context::<D>(error, Operation::Acquire, first.key()))
        };
        if !self.0.topology.has_all_keys_together() {
            return refuse(
                "a cluster stores keys on different servers; acquire the locks one by one".into(),
            );
        }
        let Some(call) = Call::acquire_all(&self.0.layout, claims) else {
            let most = Call::MAX_TOGETHER;
            return refuse(format!(
                "one request can acquire at most {most} locks, all of them mutexes"
            ));
        };
        let attempt = self.acquire_together(claims, &call).await;
        attempt.map_err(|error| context::<D>(error, Operation::Acquire, first.key()))
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let mutexes: Vec<usize> =
            (0..leases.len()).filter(|index| leases[*index].mode().is_mutex()).collect();
        let of_mutexes: Vec<&Lease> = mutexes.iter().map(|index| &leases[*index]).collect();
        let mut renewals: Vec<Option<Result<Renewal, Error>>> =
            leases.iter().map(|_lease| None).collect();
        match self.0.topology.renew_all(&self.0.layout, &of_mutexes).await {
            Ok(renewed) => {
                for (index, is_renewed) in mutexes.into_iter().zip(renewed) {
                    renewals[index] = is_renewed.then_some(Ok(Renewal::Renewed));
                }
            }
            Err(error) => {
                for index in mutexes {
                    let error =
                        context::<D>(error.repeated(), Operation::Renew, leases[index].key());
                    renewals[index] = Some(Err(error));
                }
            }
        }
        let others: Vec<usize> =
            (0..leases.len()).filter(|index| renewals[*index].is_none()).collect();
        let calls: Vec<Call> =
            others.iter().map(|index| Call::renew(&self.0.layout, &leases[*index])).collect();
        for (index, reply) in others.into_iter().zip(self.0.topology.run_all(&calls).await) {
            let lease = &leases[index];
            let renewal = reply.and_then(decode_renewal).map(|reply| self.renewed(lease, reply));
            let renewal =
                renewal.map_err(|error| context::<D>(error, Operation::Renew, lease.key()));
            renewals[index] = Some(renewal);
        }
        renewals.into_iter().map(|renewal| renewal.expect("each was renewed or tried")).collect()
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        self.0.news.watch(subject)
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Some(self)
    }

    fn member(&self) -> Option<&dyn Member> {
        self.0.topology.is_the_only_one().then_some(self as _)
    }

    async fn ping(&self) -> Result<(), Error> {
        let ping = async {
            let answer = self.0.topology.run(&Call::ping(&self.0.layout), None).await?;
            answer.received.map(drop).map_err(ServerError::into_error)
        };
        ping.await.map_err(|error| in_operation::<D>(error, Operation::Ping))
    }

    fn disconnect(&self) {
        self.0.topology.disconnect();
    }

    async fn close(&self) {
        self.0.context.close();
        self.0.topology.disconnect();
    }
}

impl<D: Driver> Clone for Backend<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Driver> fmt::Debug for Backend<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("driver", &D::NAME)
            .field("servers", &self.0.topology)
            .field("layout", &self.0.layout)
            .finish_non_exhaustive()
    }
}
