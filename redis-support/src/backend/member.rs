//! Implements the operations of a server that is a member of a quorum.

use async_trait::async_trait;
use leasehold_core::backend::{
    Attempt, JoinRequest, Lease, LockBackend as _, Member, MemberStatus, Mode, Operation, Renewal,
    StoreId, Vote,
};
use leasehold_core::{Error, ErrorKind};

use super::{Backend, context, in_operation};
use crate::call::Call;
use crate::driver::Driver;
use crate::layout::Layout;
use crate::process::Process;
use crate::reply::{decode_renewal, decode_status};

impl<D: Driver> Backend<D> {
    /// Runs a script whose reply contains the server's membership status.
    async fn run_as_member(
        &self,
        call: impl FnOnce(&Layout, &Process) -> Call,
    ) -> Result<MemberStatus, Error> {
        let status = async {
            let key = self.0.layout.member().floor;
            let process = self.0.topology.process(&key).await?;
            let call = call(&self.0.layout, &process);
            decode_status(self.0.topology.run(&call, None).await?.received)
        };
        status.await.map_err(|error| in_operation::<D>(error, Operation::Join))
    }

    /// Rejects permits, and all requests to Sentinel and Cluster.
    fn check_member(&self, mode: Mode) -> Result<(), Error> {
        if self.member().is_some() && mode.is_mutex() {
            return Ok(());
        }
        let message = "a member of a quorum is a single server and grants only mutexes";
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

#[async_trait]
impl<D: Driver> Member for Backend<D> {
    async fn status(&self, fresh: StoreId) -> Result<MemberStatus, Error> {
        self.run_as_member(|layout, process| Call::status(layout, fresh, process)).await
    }

    async fn join(&self, request: &JoinRequest) -> Result<MemberStatus, Error> {
        self.run_as_member(|layout, process| Call::join(layout, request, process)).await
    }

    async fn vote(&self, vote: &Vote) -> Result<Attempt, Error> {
        let claim = vote.claim();
        let attempt = async {
            self.check_member(claim.mode())?;
            let call = Call::vote(&self.0.layout, vote, self.0.context.channel());
            let wait = self.wait(&call).await?;
            let answer = self.0.topology.run(&call, wait.as_ref()).await?;
            self.attempt(claim, wait, answer).await
        };
        attempt.await.map_err(|error| context::<D>(error, Operation::Acquire, claim.key()))
    }

    async fn raise(&self, lease: &Lease, min_token: u64) -> Result<Renewal, Error> {
        let checked = self.check_member(lease.mode());
        checked.map_err(|error| context::<D>(error, Operation::Renew, lease.key()))?;
        let call = Call::raise(&self.0.layout, lease, min_token);
        let renewal = self.call(Operation::Renew, lease.key(), call, decode_renewal).await?;
        Ok(self.renewed(lease, renewal))
    }
}
