//! Moves nodes between sessions.

use leasehold_core::backend::{Lease, Tenure};
use zookeeper_client::{CreateMode, MultiWriteResult, MultiWriter, Stat};

use super::ZooKeeperBackend;
use super::release::unknown;
use crate::connection::Use;
use crate::error::Failure;
use crate::name::{Name, State};
use crate::session::Attachment;

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

impl ZooKeeperBackend {
    /// Returns a session for a granted lease.
    pub(super) async fn attachment(&self, lease: &Lease) -> Result<Attachment, Failure> {
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

    /// Moves the node of a lease to a session in one atomic step. The node's name may change, but
    /// its number does not.
    pub(super) async fn relocate(
        &self,
        attachment: &Attachment,
        step: Move<'_>,
    ) -> Result<Stat, Failure> {
        let node = self.layout.node(step.lease.key(), &step.to.text);
        let written = self.relocate_all(attachment, &[step]).await?;
        let stat = written.into_iter().find_map(|result| match result {
            MultiWriteResult::Create { stat, .. } => Some(stat),
            _ => None,
        });
        match stat.filter(|stat| !stat.is_invalid()) {
            Some(stat) => Ok(stat),
            None => {
                // Some servers do not return the new version (ZOOKEEPER-4026).
                let looked =
                    attachment.link.reply(attachment.link.client().check_stat(&node)).await;
                let looked = looked.map_err(|failure| failure.after("the node was moved"))?;
                looked.ok_or(Failure::Mismatch(zookeeper_client::Error::NoNode))
            }
        }
    }

    /// Moves either all or none of several nodes in one step.
    pub(super) async fn relocate_all(
        &self,
        attachment: &Attachment,
        steps: &[Move<'_>],
    ) -> Result<Vec<MultiWriteResult>, Failure> {
        let mut multi = attachment.link.client().new_multi_writer();
        let added = steps.iter().try_for_each(|step| self.add_move(&mut multi, step));
        added.map_err(crate::error::request)?;
        let now = self.clock.now();
        for step in steps {
            self.claims.sends(step.lease, &attachment.session, now);
        }
        let written = attachment.link.reply(multi.commit()).await;
        for Move { lease, to, state, .. } in steps {
            match &written {
                Ok(_) => self.claims.lies(lease, &to.text, *state, &attachment.session),
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
