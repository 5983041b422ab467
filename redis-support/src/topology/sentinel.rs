//! The current primary, and the sentinels that report which server is the primary.

mod answer;

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::backend::{Lease, unpoisoned};
use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind};

use super::failover::{Confirmation, SLOW, Witnesses, replaced};
use crate::address::Address;
use crate::call::Call;
use crate::connection::{ConnectionManager, Role, senseless};
use crate::context::Context;
use crate::driver::{Access, Driver, Request};
use crate::error::{ServerError, only_asked};
use crate::layout::Layout;
use crate::node::{self, Node, Wait};
use crate::pipeline::{Change, Outcome};
use crate::reply::Received;

use answer::{Answer, Answers, read_others};

/// The primary that sentinels report.
///
/// A primary that was replaced while it was frozen or cut off keeps replying, but its replies are
/// no longer valid. A primary is therefore used only if a majority of all sentinels has confirmed
/// it recently ([`Confirmation`]). The sentinels also send a notification when they switch to a new
/// primary. After a failed or slow call, the sentinels are queried again immediately.
pub(crate) struct Sentinel<D: Driver> {
    master: String,
    sentinel_access: Access,
    access: Access,
    layout: Layout,
    context: Arc<Context<D>>,
    confirmation: Confirmation<D>,
    /// The configured sentinels.
    named: Vec<Arc<ConnectionManager<D>>>,
    /// Additional sentinels from the last report, which are used if there is no majority without
    /// them.
    found: Mutex<Vec<Arc<ConnectionManager<D>>>>,
    known: Mutex<Option<Known<D>>>,
}

/// The last reply of the sentinels.
struct Known<D: Driver> {
    server: Arc<Node<D>>,
    replicas: u32,
}

/// The primary that receives a request, and the time of the request.
pub(super) struct Asked<D: Driver> {
    pub(super) node: Arc<Node<D>>,
    at: Instant,
    /// The number of failure reports before the primary was confirmed.
    failure_reports: u64,
}

impl<D: Driver> Sentinel<D> {
    pub(super) fn new(
        sentinels: &[Address],
        master: String,
        (access, sentinel_access): (Access, Access),
        layout: &Layout,
        context: &Arc<Context<D>>,
    ) -> Arc<Self> {
        let sentinel = |address: &Address| {
            ConnectionManager::new(
                address.clone(),
                sentinel_access.clone(),
                Role::Sentinel,
                context,
            )
        };
        Arc::new(Self {
            named: sentinels.iter().map(sentinel).collect(),
            found: Mutex::default(),
            master,
            sentinel_access,
            access,
            layout: layout.clone(),
            confirmation: Confirmation::new(context),
            context: Arc::clone(context),
            known: Mutex::default(),
        })
    }

    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.primary().await?.node.connect().await
    }

    pub(super) fn disconnect(&self) {
        self.sentinels().iter().for_each(|sentinel| sentinel.disconnect());
        let server = self.server();
        if let Some(server) = server {
            server.disconnect();
        }
    }

    /// Returns the number of replicas that the sentinels know, running or not.
    pub(super) async fn replicas(self: &Arc<Self>) -> Result<u32, Error> {
        self.primary().await?;
        Ok(self.known().as_ref().map_or(0, |known| known.replicas))
    }

    pub(super) async fn run(
        self: &Arc<Self>,
        call: &Call,
        wait: Option<&Wait>,
    ) -> Result<node::Answer, Error> {
        let asked = self.primary().await?;
        let answer = asked.node.run(call, wait).await;
        self.believe(&asked, answer, |answer| is_of_a_replica(&answer.received)).await
    }

    pub(super) async fn run_all(self: &Arc<Self>, calls: &[Call]) -> Vec<Result<Received, Error>> {
        let replies = async {
            let asked = self.primary().await?;
            let replies = asked.node.run_all(&calls.iter().collect::<Vec<_>>()).await;
            if replies.iter().all(Result::is_err) {
                return Ok(replies);
            }
            let is_suspect = |replies: &Vec<Result<Received, Error>>| {
                replies.iter().any(|reply| reply.as_ref().map_or(true, is_of_a_replica))
            };
            self.believe(&asked, Ok(replies), is_suspect).await
        };
        let all = |error: Error| calls.iter().map(|_call| Err(error.repeated())).collect();
        replies.await.unwrap_or_else(all)
    }

    /// Acquires or releases a mutex as part of a batch.
    pub(super) async fn change(
        self: &Arc<Self>,
        change: Change,
        lease: &Lease,
    ) -> Result<Outcome, Error> {
        let asked = self.primary().await?;
        let outcome = asked.node.change(change, lease).await;
        self.believe(&asked, outcome, |_outcome| false).await
    }

    /// Renews many mutexes.
    pub(super) async fn renew_all(
        self: &Arc<Self>,
        layout: &Layout,
        leases: &[&Lease],
    ) -> Result<Vec<bool>, Error> {
        let asked = self.primary().await?;
        let renewed = asked.node.renew_all(layout, leases).await;
        self.believe(&asked, renewed, |_renewed| false).await
    }

    /// Returns the primary that a majority of the sentinels has recently confirmed.
    pub(super) async fn primary(self: &Arc<Self>) -> Result<Asked<D>, Error> {
        let failure_reports = self.context.failure_reports();
        Confirmation::ensure(self).await?;
        let node = self.server().ok_or_else(|| self.unknown())?;
        Ok(Asked { node, at: self.context.now(), failure_reports })
    }

    /// Accepts a server's reply if the server is still the primary. The sentinels are queried again
    /// after a suspicion, after a slow reply, and after a reply that `is_suspect`.
    async fn believe<T>(
        self: &Arc<Self>,
        asked: &Asked<D>,
        answer: Result<T, Error>,
        is_suspect: impl FnOnce(&T) -> bool,
    ) -> Result<T, Error> {
        let answer = answer?;
        if is_suspect(&answer) || self.context.now().since(asked.at) >= SLOW {
            self.context.suspect();
        }
        if self.context.failure_reports() != asked.failure_reports {
            let now = self.primary().await.map_err(|_unknown| replaced())?;
            if !Arc::ptr_eq(&now.node, &asked.node) {
                return Err(replaced());
            }
        }
        Ok(answer)
    }

    /// Queries all sentinels until a majority has replied.
    async fn ask_majority(&self) -> Result<Answer, Error> {
        let mut unasked = self.sentinels();
        let (mut answers, mut failure) = (Answers::default(), None);
        while !unasked.is_empty() {
            let asked = unasked.into_iter().map(|sentinel| ask_one(sentinel, self.master.clone()));
            let mut asked: FuturesUnordered<_> = asked.collect();
            while let Some(answer) = asked.next().await {
                match answer {
                    Ok(answer) => answers.add(answer),
                    Err(error) => failure = Some(error),
                }
                if let Some(answer) = answers.of_majority() {
                    // The remaining replies are also awaited, because a connection without replies
                    // would count as hung.
                    tokio::spawn(async move { while asked.next().await.is_some() {} });
                    return Ok(answer);
                }
            }
            unasked = if answers.is_empty() { Vec::new() } else { self.find_more().await };
        }
        Err(match failure {
            Some(failure) if answers.is_empty() || !failure.is_retryable() => failure,
            _ if answers.is_empty() => self.unknown(),
            _ => self.too_few(&answers),
        })
    }

    /// Finds sentinels that known sentinels report, and forgets sentinels that are no longer
    /// reported. Returns the new sentinels.
    async fn find_more(&self) -> Vec<Arc<ConnectionManager<D>>> {
        let known = self.sentinels();
        let words = ["SENTINEL", "SENTINELS", &self.master];
        let question = [Request::Words(&words)];
        let replies = join_all(known.iter().map(|sentinel| sentinel.ask(question))).await;
        let mut addresses = Vec::new();
        for (asked, reply) in known.iter().zip(replies) {
            if let Ok([Ok(reply)]) = reply {
                addresses.push(asked.address().clone());
                addresses.extend(read_others(&reply, asked.address()));
            }
        }
        let (mut found, mut new): (Vec<Arc<ConnectionManager<D>>>, Vec<_>) =
            (Vec::new(), Vec::new());
        for address in addresses {
            let is_there = |sentinel: &&Arc<ConnectionManager<D>>| *sentinel.address() == address;
            if self.named.iter().chain(&found).any(|sentinel| is_there(&sentinel)) {
                continue;
            }
            let sentinel = known.iter().find(is_there).map(Arc::clone).unwrap_or_else(|| {
                let access = self.sentinel_access.clone();
                let sentinel =
                    ConnectionManager::new(address.clone(), access, Role::Sentinel, &self.context);
                new.push(Arc::clone(&sentinel));
                sentinel
            });
            found.push(sentinel);
        }
        let before = mem::replace(&mut *self.found(), found);
        // The in-process mutex is unlocked first, because closing a connection may wake other
        // tasks.
        drop(before);
        new
    }

    fn unknown(&self) -> Error {
        let message = format!("no sentinel knows the current server of {:?}", self.master);
        Error::new(ErrorKind::Unavailable, message)
    }

    fn too_few(&self, answers: &Answers) -> Error {
        let message = format!("{answers} of {:?}, which is not a majority", self.master);
        Error::new(ErrorKind::Unavailable, message)
    }

    fn server(&self) -> Option<Arc<Node<D>>> {
        self.known().as_ref().map(|known| Arc::clone(&known.server))
    }

    fn sentinels(&self) -> Vec<Arc<ConnectionManager<D>>> {
        self.named.iter().chain(&*self.found()).cloned().collect()
    }

    fn found(&self) -> MutexGuard<'_, Vec<Arc<ConnectionManager<D>>>> {
        unpoisoned(&self.found)
    }

    fn known(&self) -> MutexGuard<'_, Option<Known<D>>> {
        unpoisoned(&self.known)
    }
}

impl<D: Driver> Witnesses<D> for Sentinel<D> {
    type Word = Answer;

    fn confirmation(&self) -> &Confirmation<D> {
        &self.confirmation
    }

    async fn ask(&self) -> Result<Answer, Error> {
        self.ask_majority().await
    }

    fn adopt(&self, answer: Answer) {
        let mut known = self.known();
        let before = known.take().map(|known| known.server);
        let same = before.as_ref().filter(|server| *server.address() == answer.address);
        let server = same.map(Arc::clone).unwrap_or_else(|| {
            Node::new(answer.address.clone(), self.access.clone(), &self.layout, &self.context)
        });
        *known = Some(Known { server: Arc::clone(&server), replicas: answer.replicas });
        drop(known);
        if let Some(old) = before.filter(|before| !Arc::ptr_eq(before, &server)) {
            tracing::info!(master = self.master, address = %answer.address, "the sentinels name a different server");
            old.disconnect();
            self.context.news.interrupted();
        }
    }
}

async fn ask_one<D: Driver>(
    sentinel: Arc<ConnectionManager<D>>,
    master: String,
) -> Result<Answer, Error> {
    let question = [Request::Words(&["SENTINEL", "MASTER", &master])];
    let replies = sentinel.ask(question).await;
    let [master_fields] = replies.map_err(|error| only_asked(error, "a sentinel did not reply"))?;
    let master_fields = master_fields.map_err(|refusal| {
        if refusal.is_no_such_master() {
            let message = format!("the sentinels do not monitor a server named {master:?}");
            Error::new(ErrorKind::Invalid, message)
        } else {
            refusal.into_error()
        }
    })?;
    Answer::read(sentinel.sentinel(), &master_fields, sentinel.address()).ok_or_else(senseless)
}

/// Returns whether a server rejected a script because the server is a replica.
fn is_of_a_replica(received: &Received) -> bool {
    received.as_ref().is_err_and(ServerError::is_replica)
}

impl<D: Driver> fmt::Debug for Sentinel<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinel")
            .field("master", &self.master)
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}
