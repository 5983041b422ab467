//! Acquires locks. Decides whether a claim can be part of a batch, reads the replies of scripts,
//! and waits for replicas.

use leasehold_core::backend::{Attempt, AttemptAll, Claim, Tenure};
use leasehold_core::{Error, ErrorKind};

use super::Backend;
use crate::call::Call;
use crate::config::Replicas;
use crate::driver::Driver;
use crate::layout::Concerns;
use crate::node::{Answer, Wait};
use crate::reply::{
    NotificationMode, ServerReply, decode_attempt, decode_attempt_all, decode_release,
};

impl<D: Driver> Backend<D> {
    /// Returns whether a claim can be granted as part of a batch. A batch requires that grants do
    /// not wait for replicas and that the holder renews its lease. A holder that does not renew
    /// needs notifications immediately after the grant, which a batch does not enable.
    pub(super) fn may_join(&self, claim: &Claim) -> bool {
        claim.mode().is_mutex()
            && claim.lease().tenure() == Tenure::Kept
            && self.0.replicas == Replicas::None
    }

    /// Returns the outcome of the script for a single lock, and notifies waiters. `answer` must be
    /// the answer to a call that was run with `wait`.
    ///
    /// If fewer replicas than `wait` requires have acknowledged a grant, this method releases the
    /// lease and returns an error.
    pub(super) async fn attempt(
        &self,
        claim: &Claim,
        wait: Option<Wait>,
        answer: Answer,
    ) -> Result<Attempt, Error> {
        let mode = claim.mode();
        let replicas = answer.replicas();
        let notification_mode =
            NotificationMode { is_mutex: mode.is_mutex(), has_push: self.0.context.has_push() };
        let ServerReply { outcome: attempt, notified } =
            decode_attempt(answer.received, notification_mode)?;
        let is_granted = matches!(attempt, Attempt::Granted(_));
        if is_granted && let Some(wait) = wait {
            self.ensure_acknowledged(wait, replicas, std::slice::from_ref(claim)).await?;
        }
        self.0.news.notify_claims(&notified, claim.lease());
        if is_granted && mode.is_exclusive() && !mode.is_mutex() {
            // The notification also tells observers of an election about the new leader.
            self.0.news.changed(claim.key(), Concerns::Waiters);
        }
        Ok(attempt)
    }

    /// Acquires several locks with one script.
    pub(super) async fn acquire_together(
        &self,
        claims: &[Claim],
        call: &Call,
    ) -> Result<AttemptAll, Error> {
        let wait = self.wait(call).await?;
        let answer = self.0.topology.run(call, wait.as_ref()).await?;
        let replicas = answer.replicas();
        let attempt = decode_attempt_all(answer.received, claims)?;
        if matches!(attempt, AttemptAll::Granted(_))
            && let Some(wait) = wait
        {
            self.ensure_acknowledged(wait, replicas, claims).await?;
        }
        Ok(attempt)
    }

    /// Returns how many replicas must acknowledge the call, or `None` if the call does not wait for
    /// replicas.
    pub(super) async fn wait(&self, call: &Call) -> Result<Option<Wait>, Error> {
        self.0.topology.wait(self.0.replicas, self.0.replicas_timeout, call).await
    }

    /// Releases a grant if too few replicas have acknowledged it.
    async fn ensure_acknowledged(
        &self,
        wait: Wait,
        replicas: Result<u32, Error>,
        claims: &[Claim],
    ) -> Result<(), Error> {
        let failure = match replicas {
            Ok(replicas) if replicas >= wait.replicas => return Ok(()),
            Ok(replicas) => {
                let message = format!(
                    "only {replicas} of {} replicas acknowledged the lock within {:?}",
                    wait.replicas, wait.time
                );
                Error::new(ErrorKind::NotWritable, message)
            }
            Err(error) => error,
        };
        self.give_back(claims).await?;
        Err(failure)
    }

    /// Releases leases that do not count as granted.
    async fn give_back(&self, claims: &[Claim]) -> Result<(), Error> {
        let release = |claim: &Claim| Call::release(&self.0.layout, claim.lease());
        let calls: Vec<Call> = claims.iter().map(release).collect();
        for (released, claim) in self.0.topology.run_all(&calls).await.into_iter().zip(claims) {
            let released = released.and_then(decode_release).map_err(|error| {
                let message = "too few replicas acknowledged the lock, and releasing it failed, so the outcome is unknown";
                Error::new(ErrorKind::Indeterminate, message).with_source(error)
            })?;
            self.0.news.notify_claims(&released.notified, claim.lease());
        }
        claims.iter().for_each(|claim| self.0.news.changed(claim.key(), Concerns::Waiters));
        Ok(())
    }
}
