//! Renewing leases.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::Error;
use leasehold_core::backend::{Lease, Operation, Renewal, Tenure};
use leasehold_core::clock::Instant;

use super::look::read;
use super::relocate::{Guard, Move};
use super::{ZooKeeperBackend, context};
use crate::entry::Entry;
use crate::error::Failure;
use crate::layout::tag;
use crate::name::{Name, State};
use crate::session::{Hook, Use};

/// How often others may change a node of ours under our hands.
const MAX_TRIES: usize = 4;

impl ZooKeeperBackend {
    /// Connects to the sessions of those leases, and then makes sure that the leases are still there.
    pub(super) async fn renew_leases(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let now = self.clock.now();
        self.doubt_strays(now);
        // That may connect to sessions again, which waits for their users.
        let settled = join_all(leases.iter().map(|lease| self.settle(lease))).await;
        let hooks = self.renewed_hooks(leases).await;
        let renewed = leases.iter().zip(settled).map(async |(lease, settled)| {
            settled.map_err(|failure| context(failure, Operation::Renew, lease.key()))?;
            let hook = match hooks.get(&lease.ttl()) {
                Some(Err(error)) if lease.tenure() == Tenure::Kept => {
                    return Err(repeated(error, lease));
                }
                Some(Ok(hook)) if lease.tenure() == Tenure::Kept => Some(hook),
                _ => None,
            };
            let renewed = self.renew_one(lease, hook, now).await;
            renewed.map_err(|failure| context(failure, Operation::Renew, lease.key()))
        });
        join_all(renewed).await
    }

    /// The sessions of those that are kept, by TTL.
    async fn renewed_hooks(&self, leases: &[Lease]) -> HashMap<Duration, Result<Hook, Error>> {
        let kept = leases.iter().filter(|lease| lease.tenure() == Tenure::Kept);
        let mut ttls: Vec<_> = kept.map(Lease::ttl).collect();
        ttls.sort_unstable();
        ttls.dedup();
        let renewed = ttls
            .into_iter()
            .map(async |ttl| (ttl, self.renewed_hook(ttl).await.map_err(Failure::into_error)));
        join_all(renewed).await.into_iter().collect()
    }

    /// The session of those with this TTL, on a server that has all that the leader has now.
    async fn renewed_hook(&self, ttl: Duration) -> Result<Hook, Failure> {
        let hook = self.sessions.renewed(&self.servers, Use::Locks, ttl).await?;
        self.confirm(&hook.link).await?;
        Ok(hook)
    }

    async fn renew_one(
        &self,
        lease: &Lease,
        hook: Option<&Hook>,
        now: Instant,
    ) -> Result<Renewal, Failure> {
        let own;
        let hook = match hook {
            Some(hook) => hook,
            None => {
                own = self.sessions.own(&self.servers, lease.ttl()).await?;
                &own
            }
        };
        let renewed = self.renew_at(lease, hook).await;
        if lease.tenure() == Tenure::Fixed {
            hook.session.close().await;
        }
        if let Ok(Renewal::Renewed | Renewal::RevocationRequested) = renewed {
            self.claims.renew(lease, now);
        }
        renewed
    }

    async fn renew_at(&self, lease: &Lease, hook: &Hook) -> Result<Renewal, Failure> {
        let known = self.claims.find(lease).and_then(|known| Name::read(&known.name?));
        let mut name = known;
        for _ in 0..MAX_TRIES {
            let found = match &name {
                Some(name) => {
                    let node = self.layout.node(lease.key(), &name.text);
                    read(&hook.link, name, &node).await.map_err(Failure::of_a_look)?
                }
                None => None,
            };
            let Some(entry) = found.filter(|entry| !entry.is_queued()) else {
                // It lies elsewhere if another client asked for it, too.
                let (queue, tag) = (self.queue(lease.key()).await?, tag(lease));
                let elsewhere = queue.holders().find(|holder| holder.tag == tag);
                if let Some(elsewhere) = elsewhere.filter(|it| Some(*it) != name.as_ref()) {
                    name = Some(elsewhere.clone());
                    continue;
                }
                if queue.entry(&tag).is_none() {
                    self.claims.forget(lease);
                }
                let is_whole = lease.share().is_whole();
                let mut others = queue.holders().filter(|holder| holder.tag != tag);
                let is_taken = others.any(|holder| holder.share.is_whole() == is_whole);
                return Ok(if is_taken { Renewal::Taken } else { Renewal::Vanished });
            };
            let is_asked = self.is_asked(lease, hook, &entry).await?;
            match self.renew_entry(lease, hook, &entry).await {
                Ok(()) if is_asked => return Ok(Renewal::RevocationRequested),
                Ok(()) => return Ok(Renewal::Renewed),
                Err(Failure::Mismatch(_)) => {}
                Err(Failure::SessionGone(error)) => return Err(Failure::ServerDown(error)),
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Mismatch(zookeeper_client::Error::BadVersion))
    }

    /// Puts a lease in force on a session. Nothing is written if it is in force there already.
    async fn renew_entry(&self, lease: &Lease, hook: &Hook, entry: &Entry) -> Result<(), Failure> {
        let lease = lease.clone().with_share(lease.share().capped_by(entry.name.share));
        let to = entry.name.changed(lease.share(), State::Held);
        if to != entry.name || entry.stat.ephemeral_owner != hook.id() {
            let (from, data, is_touched) = (&entry.name, &entry.moved(&lease), entry.is_touched());
            let (state, guard) = (State::Held, Guard::None);
            let step = Move { from, to: &to, state, data, guard, is_touched };
            self.relocate(&lease, hook, step).await?;
            self.news.holds(&lease, self.layout.node(lease.key(), &to.text));
            return Ok(());
        }
        let data = entry.renewed(&lease);
        if data != entry.data && !entry.is_asked_by_curator() {
            let node = self.layout.node(lease.key(), &entry.name.text);
            let version = Some(entry.stat.version);
            hook.link.reply(hook.link.client().set_data(&node, &data, version)).await?;
        }
        Ok(())
    }

    /// Whether the holder is asked to finish. A request writes its data anew.
    async fn is_asked(&self, lease: &Lease, hook: &Hook, entry: &Entry) -> Result<bool, Failure> {
        if entry.is_asked_by_curator() || !entry.is_touched() {
            return Ok(entry.is_asked_by_curator());
        }
        let revocation = self.layout.revocation(lease.key());
        let asked = hook.link.reply(hook.link.client().check_stat(&revocation)).await;
        Ok(asked.map_err(Failure::of_a_look)?.is_some())
    }
}

/// The failure of a request for several leases, for one of them.
fn repeated(error: &Error, lease: &Lease) -> Error {
    context(Failure::Final(error.repeated()), Operation::Renew, lease.key())
}
