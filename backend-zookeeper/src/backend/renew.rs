//! Renews leases.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{join, join_all};
use leasehold_core::Error;
use leasehold_core::backend::rules::is_same_type;
use leasehold_core::backend::{Lease, Operation, Renewal, Tenure};

use super::look::read;
use super::relocate::{Guard, Move};
use super::{ZooKeeperBackend, context};
use crate::connection::Use;
use crate::entry::Entry;
use crate::error::Failure;
use crate::layout::tag;
use crate::name::{Name, State};
use crate::session::Attachment;

/// The maximum number of concurrent changes to a node during one renewal.
const MAX_TRIES: usize = 4;

/// The maximum number of nodes that one request moves. Servers reject requests of more than 1 MiB,
/// and these nodes need less than two thirds of that size.
const MOVES_PER_REQUEST: usize = 128;

/// A lease and its index in the caller's list.
type Numbered<'a> = (usize, &'a Lease);

/// The last known state of a lease's node.
struct Look {
    /// The name of the node, if it is known.
    name: Option<Name>,
    found: Result<Option<Entry>, Failure>,
}

impl ZooKeeperBackend {
    /// Connects to the sessions of these leases, and then checks that the leases still exist.
    pub(super) async fn renew_leases(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let now = self.clock.now();
        self.doubt_strays(now);
        // Settling may reconnect to sessions, which waits for the users of those sessions.
        let settled = join_all(leases.iter().map(|lease| self.settle(lease))).await;
        let (mut renewed, mut alone) = (Vec::with_capacity(leases.len()), Vec::new());
        let mut together: BTreeMap<Duration, Vec<Numbered<'_>>> = BTreeMap::new();
        for (i, (lease, settled)) in leases.iter().zip(settled).enumerate() {
            match (settled, lease.tenure()) {
                (Err(failure), _) => renewed.push((i, Err(failure))),
                (Ok(()), Tenure::Kept) => together.entry(lease.ttl()).or_default().push((i, lease)),
                (Ok(()), Tenure::Fixed) => alone.push((i, lease)),
            }
        }
        let together = together.into_iter().map(|(ttl, leases)| self.renew_together(ttl, leases));
        let alone = alone.into_iter().map(async |(i, lease)| (i, self.renew_alone(lease).await));
        let (together, alone) = join(join_all(together), join_all(alone)).await;
        renewed.extend(together.into_iter().flatten().chain(alone));
        renewed.sort_unstable_by_key(|(i, _)| *i);
        let renewed = leases.iter().zip(renewed).map(|(lease, (_, renewed))| {
            if let Ok(Renewal::Renewed | Renewal::RevocationRequested) = renewed {
                self.claims.renew(lease, now);
            }
            renewed.map_err(|failure| context(failure, Operation::Renew, lease.key()))
        });
        renewed.collect()
    }

    /// Renews a lease with a new session that only this lease uses.
    async fn renew_alone(&self, lease: &Lease) -> Result<Renewal, Failure> {
        let attachment = self.sessions.own(&self.servers, lease.ttl()).await?;
        let look = self.look_again(lease, &attachment, self.known_name(lease)).await;
        let renewed = self.renew_at(lease, &attachment, look).await;
        attachment.session.close();
        renewed
    }

    /// Renews leases with the same TTL, which share a session. A few requests are sufficient for
    /// hundreds of leases.
    async fn renew_together(
        &self,
        ttl: Duration,
        leases: Vec<Numbered<'_>>,
    ) -> Vec<(usize, Result<Renewal, Failure>)> {
        let looked = async {
            let attachment = self.renewed_attachment(ttl).await?;
            let mut looks = self.look(&attachment, &leases).await?;
            if self.move_all(&attachment, &leases, &looks).await? {
                looks = self.look(&attachment, &leases).await?;
            }
            Ok((attachment, looks))
        };
        let (attachment, looks) = match looked.await {
            Ok(looked) => looked,
            Err(failure) => {
                let error = Failure::into_error(failure);
                let failed =
                    leases.iter().map(|(i, _)| (*i, Err(Failure::Final(error.repeated()))));
                return failed.collect();
            }
        };
        let renewing = leases.into_iter().zip(looks);
        let renewing = renewing
            .map(async |((i, lease), look)| (i, self.renew_at(lease, &attachment, look).await));
        let renewed = join_all(renewing).await;
        // The connection is closed because other clients may need it for their renewals.
        attachment.session.close();
        renewed
    }

    /// Returns the renewed session for this TTL, on a server that has all of the leader's changes.
    async fn renewed_attachment(&self, ttl: Duration) -> Result<Attachment, Failure> {
        let attachment = self.sessions.renewed(&self.servers, Use::Locks, ttl).await?;
        self.confirm(&attachment.link).await?;
        Ok(attachment)
    }

    /// Reads the nodes of these leases.
    async fn look(
        &self,
        attachment: &Attachment,
        leases: &[Numbered<'_>],
    ) -> Result<Vec<Look>, Failure> {
        let names: Vec<_> = leases.iter().map(|(_, lease)| self.known_name(lease)).collect();
        let known = leases.iter().zip(&names).filter_map(|((_, lease), name)| {
            let name = name.as_ref()?;
            Some((name.clone(), self.layout.node(lease.key(), &name.text)))
        });
        let found = read(&attachment.link, known.collect()).await.map_err(Failure::of_a_look)?;
        let mut found = found.into_iter();
        let looks = names.into_iter().map(|name| {
            let found = name.as_ref().and_then(|_| found.next()).unwrap_or(Ok(None));
            Look { name, found }
        });
        Ok(looks.collect())
    }

    /// Reads the node of a lease by its name, if `name` is given.
    async fn look_again(&self, lease: &Lease, attachment: &Attachment, name: Option<Name>) -> Look {
        let nodes =
            name.iter().map(|name| (name.clone(), self.layout.node(lease.key(), &name.text)));
        let found = match read(&attachment.link, nodes.collect()).await {
            Ok(mut found) => found.pop().unwrap_or(Ok(None)),
            Err(failure) => Err(failure.of_a_look()),
        };
        Look { name, found }
    }

    fn known_name(&self, lease: &Lease) -> Option<Name> {
        self.claims.find(lease).and_then(|known| Name::read(&known.name?))
    }

    /// Moves all nodes that are attached to a different session to this session, in batches.
    /// Returns `false` if there are no such nodes.
    ///
    /// If one node of a batch has just been deleted or changed, no node of the batch is moved.
    async fn move_all(
        &self,
        attachment: &Attachment,
        leases: &[Numbered<'_>],
        looks: &[Look],
    ) -> Result<bool, Failure> {
        let strays = leases.iter().zip(looks).filter_map(|((_, lease), look)| {
            let entry = look.found.as_ref().ok()?.as_ref()?;
            let is_stray = entry.is_granted() && entry.stat.ephemeral_owner != attachment.id();
            (is_stray && !entry.is_touched()).then(|| Moving::new(lease, entry))
        });
        let strays: Vec<_> = strays.collect();
        for some in strays.chunks(MOVES_PER_REQUEST) {
            let steps: Vec<_> = some.iter().map(Moving::step).collect();
            match self.relocate_all(attachment, &steps).await {
                Ok(_) => some.iter().for_each(|moved| self.watch_moved(moved)),
                // The next step moves each lease separately.
                Err(Failure::Mismatch(_) | Failure::Final(_)) => {}
                Err(failure) => return Err(not_gone(failure)),
            }
        }
        Ok(!strays.is_empty())
    }

    async fn renew_at(
        &self,
        lease: &Lease,
        attachment: &Attachment,
        mut look: Look,
    ) -> Result<Renewal, Failure> {
        for _ in 0..MAX_TRIES {
            let Look { name, found } = look;
            let Some(entry) = found?.filter(Entry::is_granted) else {
                // The lease has a different node if a different client sent the same claim.
                let (queue, tag) = (self.queue(lease.key()).await?, tag(lease));
                let elsewhere = queue.holders().find(|holder| holder.tag == tag);
                if let Some(elsewhere) = elsewhere.filter(|it| Some(*it) != name.as_ref()) {
                    look = self.look_again(lease, attachment, Some(elsewhere.clone())).await;
                    continue;
                }
                if queue.entry(&tag).is_none() {
                    self.claims.forget(lease);
                }
                let mut others = queue.holders().filter(|holder| holder.tag != tag);
                let is_taken = others.any(|holder| is_same_type(lease.mode(), holder.mode));
                return Ok(if is_taken { Renewal::Taken } else { Renewal::Vanished });
            };
            let is_asked = self.is_asked(lease, attachment, &entry).await?;
            match self.renew_entry(lease, attachment, &entry).await {
                Ok(()) if is_asked => return Ok(Renewal::RevocationRequested),
                Ok(()) => return Ok(Renewal::Renewed),
                Err(Failure::Mismatch(_)) => look = self.look_again(lease, attachment, name).await,
                Err(failure) => return Err(not_gone(failure)),
            }
        }
        Err(Failure::Mismatch(zookeeper_client::Error::BadVersion))
    }

    /// Attaches a lease to a session. If the lease is already attached to this session, nothing is
    /// written.
    async fn renew_entry(
        &self,
        lease: &Lease,
        attachment: &Attachment,
        entry: &Entry,
    ) -> Result<(), Failure> {
        let moving = Moving::new(lease, entry);
        if moving.to != entry.name || entry.stat.ephemeral_owner != attachment.id() {
            self.relocate(attachment, moving.step()).await?;
            self.watch_moved(&moving);
            return Ok(());
        }
        let data = entry.renewed(&moving.lease);
        if data != entry.data && !entry.is_asked_by_curator() {
            let node = self.layout.node(lease.key(), &entry.name.text);
            let version = Some(entry.stat.version);
            attachment.link.reply(attachment.link.client().set_data(&node, &data, version)).await?;
        }
        Ok(())
    }

    fn watch_moved(&self, moved: &Moving<'_>) {
        let node = self.layout.node(moved.lease.key(), &moved.to.text);
        self.news.holds(&moved.lease, node);
    }

    /// Returns whether there is a revocation request for the holder. A revocation request rewrites
    /// the data of the node.
    async fn is_asked(
        &self,
        lease: &Lease,
        attachment: &Attachment,
        entry: &Entry,
    ) -> Result<bool, Failure> {
        if entry.is_asked_by_curator() || !entry.is_touched() {
            return Ok(entry.is_asked_by_curator());
        }
        let (key, fingerprint) = (lease.key(), lease.id().fingerprint());
        for request in [self.layout.revocation(key), self.layout.revocation_of(key, fingerprint)] {
            let found = attachment.link.reply(attachment.link.client().check_stat(&request)).await;
            if found.map_err(Failure::of_a_look)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A holder that moves to a different session.
struct Moving<'a> {
    /// The lease after the move.
    lease: Lease,
    from: &'a Entry,
    to: Name,
    data: Vec<u8>,
}

impl<'a> Moving<'a> {
    fn new(lease: &Lease, from: &'a Entry) -> Self {
        let lease = lease.clone().with_mode(lease.mode().capped_by(from.name.mode));
        let to = from.name.changed(lease.mode(), State::Held);
        Self { data: from.moved(&lease), lease, from, to }
    }

    fn step(&self) -> Move<'_> {
        let Self { lease, from, to, data } = self;
        let (state, guard, version) = (State::Held, Guard::None, Some(from.stat.version));
        Move { lease, from: &from.name, to, state, data, guard, version }
    }
}

/// Handles an error after the session was renewed. If this server now considers the session
/// expired, that does not prove that the leases are gone.
fn not_gone(failure: Failure) -> Failure {
    match failure {
        Failure::SessionGone(error) => Failure::ServerDown(error),
        failure => failure,
    }
}
