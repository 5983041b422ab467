//! An attempt to acquire a lock, and the node that the attempt creates.

use std::time::Duration;

use leasehold_core::backend::{Claim, Tenure};
use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind, LockKey};
use zookeeper_client::{CreateMode, Stat};

use super::ZooKeeperBackend;
use crate::error::Failure;
use crate::layout::tag;
use crate::name::{LAST_NUMBER, Name, State};
use crate::queue::Queue;
use crate::session::Attachment;

/// An attempt in progress.
pub(super) struct Trial<'a> {
    pub(super) claim: &'a Claim,
    /// How long the claim's queue entry is kept if no further attempt is made, or `None` if the
    /// claim does not wait.
    pub(super) kept_for: Option<Duration>,
    pub(super) sent_at: Instant,
    /// The name of the claim's node, once it exists. The node remains even if the attempt fails
    /// later.
    pub(super) node: Option<String>,
}

/// A node that was created, and the queue at the time of its creation.
pub(super) struct Made {
    pub(super) own: Name,
    pub(super) stat: Stat,
    pub(super) queue: Queue,
}

impl<'a> Trial<'a> {
    /// Creates an attempt that has not sent any request. `range` contains the session timeouts that
    /// the servers allow.
    pub(super) fn new(claim: &'a Claim, range: (Duration, Duration), sent_at: Instant) -> Self {
        let kept_for = claim.queue_ttl().map(|time| time.clamp(range.0, range.1));
        Self { claim, kept_for, sent_at, node: None }
    }
}

impl ZooKeeperBackend {
    /// Creates the node of a claim at the end of the queue, and reads the queue, in one round trip.
    pub(super) async fn make(
        &self,
        trial: &mut Trial<'_>,
        attachment: &Attachment,
        state: State,
        data: &[u8],
    ) -> Result<Made, Failure> {
        match self.try_make(trial, attachment, state, data).await {
            Err(failure) if failure.is_absence() => {
                self.make_lock(trial.claim.key(), attachment).await?;
                self.try_make(trial, attachment, state, data).await
            }
            made => made,
        }
    }

    async fn try_make(
        &self,
        trial: &mut Trial<'_>,
        attachment: &Attachment,
        state: State,
        data: &[u8],
    ) -> Result<Made, Failure> {
        let lease = trial.claim.lease();
        let head = Name::head(&tag(lease), lease.mode(), state);
        let (node, lock) = (self.layout.node(lease.key(), &head), self.layout.lock(lease.key()));
        let (link, client) = (&attachment.link, attachment.link.client());
        let options = CreateMode::EphemeralSequential.with_acls(self.servers.config().acls());
        self.claims.sends(lease, &attachment.session, self.clock.now());
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
        self.claims.lies(lease, &name, State::Queued, &attachment.session);
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
    async fn make_lock(&self, key: &LockKey, attachment: &Attachment) -> Result<(), Failure> {
        let (link, client, lock) =
            (&attachment.link, attachment.link.client(), self.layout.lock(key));
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

    /// Deletes the node of the attempt, if it exists.
    pub(super) async fn take_back(&self, trial: &mut Trial<'_>) -> Result<(), Failure> {
        let Some(name) = &trial.node else { return Ok(()) };
        let lease = trial.claim.lease();
        let gone = self.drop_node(lease, name).await;
        if lease.tenure() == Tenure::Fixed
            && let Some(session) = self.claims.find(lease).and_then(|known| known.session)
        {
            session.close();
        }
        gone.map_err(|failure| {
            failure.after("the claim's node was created but could not be deleted")
        })?;
        trial.node = None;
        Ok(())
    }
}
