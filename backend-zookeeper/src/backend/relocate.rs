//! Creates nodes and moves nodes between sessions.

use leasehold_core::backend::{Lease, Tenure};
use leasehold_core::{Error, ErrorKind, LockKey};
use zookeeper_client::{CreateMode, MultiWriteResult, MultiWriter, Stat};

use super::ZooKeeperBackend;
use super::acquire::Trial;
use super::release::unknown;
use crate::error::Failure;
use crate::layout::tag;
use crate::name::{LAST_NUMBER, Name, State};
use crate::queue::Queue;
use crate::session::{Hook, Use};

/// The additional comparisons and changes when permits are granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Guard {
    /// No comparison. The order of the nodes is sufficient.
    None,
    /// No claim with a different limit was granted out of order since this version.
    Unpassed(i32),
    /// The comparison of [`Guard::Unpassed`], and an increase of the version, so that later
    /// comparisons detect this grant.
    Passes(i32),
}

/// A node that moves to a different session.
pub(super) struct Move<'a> {
    /// The lease after the move.
    pub(super) lease: &'a Lease,
    pub(super) from: &'a Name,
    pub(super) to: &'a Name,
    pub(super) state: State,
    pub(super) data: &'a [u8],
    pub(super) guard: Guard,
    /// The data version of a holder's node, or `None` for a waiter's node. The node moves only if
    /// it still has this version, because a later write may be a revocation request.
    pub(super) version: Option<i32>,
}

/// A node that was created, and the queue at the time of its creation.
pub(super) struct Made {
    pub(super) own: Name,
    pub(super) stat: Stat,
    pub(super) queue: Queue,
}

impl ZooKeeperBackend {
    /// Returns a session for a granted lease.
    pub(super) async fn hook(&self, lease: &Lease) -> Result<Hook, Failure> {
        match lease.tenure() {
            Tenure::Kept => self.sessions.current(&self.servers, Use::Locks, lease.ttl()).await,
            Tenure::Fixed => self.sessions.own(&self.servers, lease.ttl()).await,
        }
    }

    /// Ensures that earlier requests can no longer create the node of a lease.
    pub(super) async fn settle(&self, lease: &Lease) -> Result<(), Failure> {
        let known = self.claims.find(lease);
        if let Some((sent_at, session)) = known.and_then(|known| known.in_doubt) {
            self.sessions.settle(&self.servers, &session, sent_at).await?;
            if lease.tenure() == Tenure::Fixed {
                session.close();
            }
            self.claims.settle(lease);
        }
        Ok(())
    }

    /// Creates the node of a claim at the end of the queue, and reads the queue, in one round trip.
    pub(super) async fn make(
        &self,
        trial: &mut Trial<'_>,
        hook: &Hook,
        state: State,
        data: &[u8],
    ) -> Result<Made, Failure> {
        match self.try_make(trial, hook, state, data).await {
            Err(failure) if failure.is_absence() => {
                self.make_lock(trial.claim.key(), hook).await?;
                self.try_make(trial, hook, state, data).await
            }
            made => made,
        }
    }

    async fn try_make(
        &self,
        trial: &mut Trial<'_>,
        hook: &Hook,
        state: State,
        data: &[u8],
    ) -> Result<Made, Failure> {
        let lease = trial.claim.lease();
        let head = Name::head(&tag(lease), lease.share(), state);
        let (node, lock) = (self.layout.node(lease.key(), &head), self.layout.lock(lease.key()));
        let (link, client) = (&hook.link, hook.link.client());
        let options = CreateMode::EphemeralSequential.with_acls(self.servers.config().acls());
        self.claims.sends(lease, &hook.session, self.clock.now());
        let (create, look) = (client.create(&node, data, &options), client.get_children(&lock));
        let (created, looked) = tokio::join!(link.reply(create), link.reply(look));
        let (stat, number) = match created {
            Ok(created) => created,
            Err(failure) => {
                if !matches!(failure, Failure::Unknown(_)) {
                    self.claims.settle(lease);
                }
                return Err(failure);
            }
        };
        let name = format!("{head}{number}");
        self.claims.lies(lease, &name, State::Queued, &hook.session);
        trial.node = Some(name.clone());
        let Some(own) = Name::read(&name).filter(|own| own.number < LAST_NUMBER) else {
            self.take_back(trial).await?;
            let message = "the sequence numbers of this lock are exhausted; delete its node while the lock is free";
            return Err(Failure::Final(Error::new(ErrorKind::Refused, message)));
        };
        let looked = looked.map_err(|failure| {
            failure.after("the claim's node was created, but a follow-up request failed")
        });
        let (children, dir) = looked?;
        Ok(Made { own, stat, queue: Queue::new(&children, &dir) })
    }

    /// Creates the container node of a lock, and its parent nodes.
    async fn make_lock(&self, key: &LockKey, hook: &Hook) -> Result<(), Failure> {
        let (link, client, lock) = (&hook.link, hook.link.client(), self.layout.lock(key));
        let acls = self.servers.config().acls();
        let container = CreateMode::Container.with_acls(acls);
        for _ in 0..2 {
            match link.reply(client.create(&lock, b"", &container)).await {
                Err(failure) if failure.is_absence() => {
                    let above = CreateMode::Persistent.with_acls(acls);
                    let made = link.reply(client.mkdir(self.layout.prefix(), &above)).await;
                    made.map_err(Failure::of_a_look)?;
                }
                Ok(_) | Err(Failure::Mismatch(_)) => return Ok(()),
                Err(failure) => return Err(failure.of_a_look()),
            }
        }
        Ok(())
    }

    /// Moves the node of a lease to a session in one atomic step. The node's name may change, but
    /// its number does not.
    pub(super) async fn relocate(&self, hook: &Hook, step: Move<'_>) -> Result<Stat, Failure> {
        let node = self.layout.node(step.lease.key(), &step.to.text);
        let written = self.relocate_all(hook, &[step]).await?;
        let stat = written.into_iter().find_map(|result| match result {
            MultiWriteResult::Create { stat, .. } => Some(stat),
            _ => None,
        });
        match stat.filter(|stat| !stat.is_invalid()) {
            Some(stat) => Ok(stat),
            None => {
                // Some servers do not return the new version (ZOOKEEPER-4026).
                let looked = hook.link.reply(hook.link.client().check_stat(&node)).await;
                let looked = looked.map_err(|failure| failure.after("the node was moved"))?;
                looked.ok_or(Failure::Mismatch(zookeeper_client::Error::NoNode))
            }
        }
    }

    /// Moves either all or none of several nodes in one step.
    pub(super) async fn relocate_all(
        &self,
        hook: &Hook,
        steps: &[Move<'_>],
    ) -> Result<Vec<MultiWriteResult>, Failure> {
        let mut multi = hook.link.client().new_multi_writer();
        let added = steps.iter().try_for_each(|step| self.add_move(&mut multi, step));
        added.map_err(crate::error::request)?;
        let now = self.clock.now();
        for step in steps {
            self.claims.sends(step.lease, &hook.session, now);
        }
        let written = hook.link.reply(multi.commit()).await;
        for Move { lease, to, state, .. } in steps {
            match &written {
                Ok(_) => self.claims.lies(lease, &to.text, *state, &hook.session),
                Err(Failure::Unknown(_)) => {}
                Err(_) => self.claims.settle(lease),
            }
        }
        written
    }

    fn add_move(
        &self,
        multi: &mut MultiWriter<'_>,
        step: &Move<'_>,
    ) -> Result<(), zookeeper_client::Error> {
        let Move { lease, from, to, data, .. } = step;
        let (lock, key) = (self.layout.lock(lease.key()), lease.key());
        let (before, node) = (self.layout.node(key, &from.text), self.layout.node(key, &to.text));
        match step.guard {
            Guard::None => {}
            Guard::Unpassed(version) => multi.add_check_version(&lock, version)?,
            Guard::Passes(version) => multi.add_set_data(&lock, b"", Some(version))?,
        }
        let options = CreateMode::Ephemeral.with_acls(self.servers.config().acls());
        multi.add_delete(&before, step.version)?;
        multi.add_create(&node, data, &options)?;
        // The node must still count as written after its creation, see `Entry::is_touched`.
        if step.version.is_some_and(|version| version > 0) {
            multi.add_set_data(&node, data, None)?;
        }
        Ok(())
    }

    /// Deletes a node of this client. Returns `false` if the node does not exist.
    pub(super) async fn drop_node(&self, lease: &Lease, name: &str) -> Result<bool, Failure> {
        let link = self.servers.main().await?;
        let node = self.layout.node(lease.key(), name);
        match link.reply(link.client().delete(&node, None)).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_absence() => Ok(false),
            // The session of the reading connection is not the session of the lease.
            Err(failure) => Err(unknown(failure)),
        }
    }
}
