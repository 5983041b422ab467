//! A lock on a majority of independent stores.

mod acquire;
mod ballot;
mod builder;
mod claims;
mod contended;
mod late;
mod learnt;
mod looking;
mod members;
mod muster;
mod operator;
mod renew;
mod round;

pub use builder::QuorumBuilder;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;

use self::claims::Claims;
use self::contended::ContendedKeys;
use self::late::Late;
use self::learnt::Learnt;
use self::looking::Looking;
use self::members::Members;
use crate::clock;
use crate::contract::backend::{
    Attempt, Capabilities, Claim, Finding, Fingerprint, Heeded, KeyPage, KeyWatch, Lease,
    LockBackend, Release, Renewal,
};
use crate::contract::error::Error;
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// A member that is asked for the first time is connected to first, which takes several round trips and, with TLS, more.
const CONNECTING: u32 = 8;

/// A store made of several independent stores: a lease is in force while a majority of them has it.
///
/// This is Redlock with ordered tokens. The members know nothing of each other. A client asks all of them at once, and a lock is granted
/// when a majority has granted this very lease; one slow or dead member of three, or two of five, cost nothing. A lock that a majority
/// does not grant is released on all members.
///
/// # Promises
///
/// - **Exclusion.** No two holders believe in their leases of a key at once, while for each lease a majority of the members keeps it for its
///   TTL, by clocks that run at the rate of the client's clock. The deadline counts from before the first request.
/// - **Tokens.** [Fencing tokens](crate::FencingToken) of a key strictly increase, also while members die, return with their data, and lose
///   their data one after the other. A token is larger than all that a majority has ever granted, and a majority has it as a floor
///   before the caller has it. `core/tests/quorum/model.rs` searches all states of a small quorum for a trace against this rule.
/// - **Lost data.** A member that has lost its data has no vote until it has waited out the longest TTL and has taken the floor of a majority
///   of the others. Its first vote counts then.
/// - **Long holds.** A renewal that a majority confirms puts the lease in force again on members that lost it. So a lock survives a
///   restart of all members, one after the other.
///
/// # Limits
///
/// - One step of one member's clock breaks exclusion if the lease has exactly a majority of the members: that member ends the
///   lease early and grants it to another client. A lease that all members have takes a majority of such steps.
/// - When all members lose their data at once, the quorum begins anew, as one store would, and the holders of the time before learn of it at their next
///   renewal. When a majority but not all of them lose it, the quorum waits out the longest TTL, and needs all members for that.
/// - A server that takes the place of a member under the same name must be empty, and the former one must be gone.
/// - Mutexes only. A majority is enough to keep two holders apart, but k permits need more than k / (k + 1) of the members.
/// - Clients that were refused wait in the queue of one member, the first that answers. There is no fair order: a client that has not met another
///   one yet asks all members at the same time, and may overtake them.
/// - A mutex costs a request to each member. One consensus store, such as etcd, promises more for less; a quorum is for users that have
///   several stores and no such one.
///
/// # Membership
///
/// The members keep the list of names and the longest TTL, their [charter](crate::backend::Charter). A client with other names or another TTL is
/// refused, and so are two names for the same server and a member of another quorum, with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid)
/// by the first lock. The first lock of all needs all members.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_core::quorum::Quorum;
///
/// let stores = ["a", "b", "c"].map(|name| (name, MemoryBackend::new()));
/// let quorum = Quorum::builder(stores).build()?;
/// let client = LockClient::new(quorum);
///
/// let guard = client.mutex("invoice:42")?.lock().await?;
/// println!("held, token {}", guard.token());
/// guard.release().await?;
/// # Ok::<(), leasehold_core::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Quorum<B> {
    members: Arc<Members<B>>,
    claims: Claims,
    contended: ContendedKeys,
    late: Late,
    learnt: Learnt,
    looking: Looking,
}

impl<B: LockBackend> Quorum<B> {
    /// Returns once a majority of the members has a vote, as the first lock does: founds a new quorum, which needs all members.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if members belong to another quorum or two names are one server,
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if no majority has a vote yet, and the errors of the members.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop, and to repeat.
    pub async fn establish(&self) -> Result<(), Error> {
        self.muster(self.members.member_timeout * CONNECTING).await
    }

    /// The same quorum, for a task.
    fn clone_parts(&self) -> Self {
        Self {
            members: Arc::clone(&self.members),
            claims: self.claims.clone(),
            contended: self.contended.clone(),
            late: self.late.clone(),
            learnt: self.learnt.clone(),
            looking: self.looking.clone(),
        }
    }

    fn watch_each(&self, watch: impl Fn(&B) -> KeyWatch) -> KeyWatch {
        KeyWatch::any(self.members.iter().map(|member| watch(&member.store)))
    }
}

#[async_trait]
impl<B: LockBackend> LockBackend for Quorum<B> {
    fn capabilities(&self) -> Capabilities {
        self.members.capabilities()
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.acquire(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let mut renewals = self.renew_all(std::slice::from_ref(lease)).await;
        renewals.pop().expect("it has one result per lease")
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        self.renew_and_repair(leases).await
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        self.claims.forget(lease.id());
        self.contended.released(lease.key(), self.members.clock.now());
        self.release_everywhere(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.watch_each(|store| store.watch(key))
    }

    /// Reports changes on the members that refused the claim last.
    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        if !claim.waits() {
            return self.watch(claim.key());
        }
        let heeded = Heeded::default();
        let watches = self.members.iter().map(|member| member.store.watch_claim(claim));
        let watch = KeyWatch::heeding(watches, heeded.clone());
        watch.with_attached(self.claims.admit(claim.id(), heeded))
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.watch_each(|store| store.watch_lease(lease))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        self.inspect_members(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        self.list_of_members(prefix, after).await
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        self.force_release_everywhere(key, only).await
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        self.request_revocation_everywhere(key, only).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        Ok(self.diagnose_members().await)
    }

    fn disconnect(&self) {
        self.members.iter().for_each(|member| member.store.disconnect());
    }

    /// Waits for requests under way first, for as long as a member has to answer: a release that is lost keeps the key closed on its member for a TTL.
    async fn close(&self) {
        let ends = self.members.clock.now() + self.members.member_timeout;
        clock::until(&*self.members.clock, ends, self.late.all_ended()).await;
        join_all(self.members.iter().map(|member| member.store.close())).await;
    }
}

impl<B: LockBackend> fmt::Debug for Quorum<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("members", &self.members).finish_non_exhaustive()
    }
}
