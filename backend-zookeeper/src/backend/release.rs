//! Releases and revokes leases, and requests revocations.

use std::time::Duration;

use leasehold_core::backend::{Fingerprint, ForcedRelease, Lease, Release, Revocation};
use leasehold_core::{Error, ErrorKind, LockKey};
use zookeeper_client::CreateMode;

use super::ZooKeeperBackend;
use crate::entry::{Entry, REVOKE, token};
use crate::error::{self, Failure};
use crate::layout::tag;
use crate::name::{Name, State};

/// The maximum number of concurrent changes to the queue during one operation.
const MAX_TRIES: usize = 16;

impl ZooKeeperBackend {
    /// Deletes the node of a holder or a waiter.
    pub(super) async fn end(&self, lease: &Lease) -> Result<Release, Failure> {
        let mut releasing = Releasing { backend: self, lease, done: false };
        let released = self.delete(lease).await;
        releasing.done = released.is_ok();
        released
    }

    async fn delete(&self, lease: &Lease) -> Result<Release, Failure> {
        if let Some(known) = self.claims.find(lease).filter(|known| known.in_doubt.is_none())
            && let Some(name) = known.name
            && self.drop_node(lease, &name).await?
        {
            self.claims.forget(lease);
            return Ok(match known.state {
                State::Held => Release::Released,
                State::Queued | State::HeldAs(_) => Release::NotHeld,
            });
        }
        self.settle(lease).await?;
        let main = self.servers.main().await?;
        self.confirm(&main).await?;
        let (queue, tag) = (self.queue(lease.key()).await?, tag(lease));
        let own: Vec<&Name> = queue.all().iter().filter(|entry| entry.tag == tag).collect();
        let mut released = Release::NotHeld;
        for entry in self.entries(lease.key(), own).await? {
            let is_held = queue.holders().any(|it| it.text == entry.name.text);
            if self.drop_node(lease, &entry.name.text).await? && is_held && entry.is_granted() {
                released = Release::Released;
            }
        }
        self.claims.forget(lease);
        Ok(released)
    }

    /// Returns the holders of `key`. Waiters and unfinished claims are excluded, even if they are
    /// first in the queue.
    async fn holders(&self, key: &LockKey) -> Result<Vec<Entry>, Failure> {
        let queue = self.queue(key).await?;
        let mut entries = self.entries(key, queue.holders()).await?;
        entries.retain(Entry::is_granted);
        Ok(entries)
    }

    /// Returns the holders of `key` that an operator has selected, and the number of all holders.
    async fn meant(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<(Vec<Entry>, usize), Failure> {
        let mut holders = self.holders(key).await?;
        let all = holders.len();
        holders.retain(|holder| only.is_none_or(|only| holder.fingerprint() == only));
        Ok((holders, all))
    }

    /// Revokes the selected lease on `key`, or all leases.
    pub(super) async fn end_forcibly(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Failure> {
        for _ in 0..MAX_TRIES {
            let (holders, all) = self.meant(key, only).await?;
            let Some(newest) = holders.iter().map(|holder| holder.stat.czxid).max() else {
                return Ok(ForcedRelease::new());
            };
            let link = self.servers.main().await?;
            let deleting = || {
                let mut multi = link.client().new_multi_writer();
                for holder in &holders {
                    let node = self.layout.node(key, &holder.name.text);
                    multi.add_delete(&node, Some(holder.stat.version))?;
                }
                Ok(multi.commit())
            };
            let deleting = deleting().map_err(error::request)?;
            match link.reply(deleting).await {
                Ok(_) => {
                    let ended = holders.iter().map(Entry::holder);
                    let forced = ended.fold(ForcedRelease::new(), ForcedRelease::with_ended);
                    let is_last = holders.len() == all;
                    return Ok(if is_last {
                        forced.with_min_token(token(newest + 1))
                    } else {
                        forced
                    });
                }
                Err(Failure::Mismatch(_)) => {}
                Err(failure) => return Err(unknown(failure)),
            }
        }
        Err(too_busy())
    }

    /// Requests the revocation of the selected lease on `key`, or of all leases.
    ///
    /// The request is a node with a separate session. The node is removed with the session, or by
    /// the next claim that finds the lock free. Curator's holders are notified through Curator's
    /// mechanism.
    pub(super) async fn write_revocation_request(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Failure> {
        let request = match only {
            Some(lease) => self.layout.revocation_of(key, lease),
            None => self.layout.revocation(key),
        };
        for _ in 0..MAX_TRIES {
            let (holders, _) = self.meant(key, only).await?;
            if holders.is_empty() {
                return Ok(Revocation::NotHeld);
            }
            self.delete_request(&request).await?;
            match self.create_request(key, &request, &holders).await {
                Ok(()) => return Ok(Revocation::Requested),
                Err(Failure::Mismatch(_)) => {}
                Err(failure) => return Err(unknown(failure)),
            }
        }
        Err(too_busy())
    }

    async fn create_request(
        &self,
        key: &LockKey,
        request: &str,
        holders: &[Entry],
    ) -> Result<(), Failure> {
        // The request lasts until the last of these leases would expire without renewal. Curator's
        // leases have no TTL.
        let ends = |holder: &Entry| holder.ttl().unwrap_or(Duration::MAX);
        let longest = holders.iter().map(ends).max().unwrap_or_default();
        let longest = longest.clamp(self.range.0, self.range.1);
        let attachment = self.sessions.own(&self.servers, longest).await?;
        let writing = || {
            let mut multi = attachment.link.client().new_multi_writer();
            let options = CreateMode::Ephemeral.with_acls(self.servers.config().acls());
            multi.add_create(request, b"", &options)?;
            for holder in holders {
                let node = self.layout.node(key, &holder.name.text);
                // This write notifies holders that watch their nodes.
                let data = if holder.is_foreign() { REVOKE } else { &holder.data };
                multi.add_set_data(&node, data, Some(holder.stat.version))?;
            }
            Ok(multi.commit())
        };
        let writing = writing().map_err(error::request)?;
        let written = attachment.link.reply(writing).await;
        attachment.session.close();
        written.map(drop)
    }

    /// Removes the revocation request to all holders of `key`, if such a request exists.
    pub(super) async fn clear_request(&self, key: &LockKey) -> Result<(), Failure> {
        self.delete_request(&self.layout.revocation(key)).await
    }

    async fn delete_request(&self, request: &str) -> Result<(), Failure> {
        let link = self.servers.main().await?;
        match link.reply(link.client().delete(request, None)).await {
            Err(failure) if !failure.is_absence() => Err(failure),
            _ => Ok(()),
        }
    }
}

/// A release in progress. If the node could not be deleted, the renewals of other leases must not
/// keep it alive.
struct Releasing<'a> {
    backend: &'a ZooKeeperBackend,
    lease: &'a Lease,
    done: bool,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.backend.sessions.doubt();
            self.backend.claims.leave(self.lease);
        }
    }
}

/// Maps the failure of a request whose effect does not depend on the session that sent it.
pub(super) fn unknown(failure: Failure) -> Failure {
    match failure {
        Failure::SessionGone(error) => {
            let message = "the connection's session has expired, so the outcome is unknown";
            Failure::Unknown(Error::new(ErrorKind::Indeterminate, message).with_source(error))
        }
        failure => failure,
    }
}

fn too_busy() -> Failure {
    let message = "the lock changed during the request; try again";
    Failure::Final(Error::new(ErrorKind::Unavailable, message))
}
