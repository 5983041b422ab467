//! A lock on a majority of independent stores.

mod acquire;
mod ballot;
mod builder;
mod claims;
mod late;
mod learnt;
mod members;
mod muster;
mod renew;
mod round;

pub use builder::QuorumBuilder;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;

use self::claims::Claims;
use self::learnt::Learnt;
use self::members::Members;
use crate::backend::{Attempt, ForcedRelease, LockBackend, Release, Renewal, Revocation};
use crate::capabilities::Capabilities;
use crate::claim::{Claim, Patience};
use crate::error::{Error, ErrorKind, Operation};
use crate::holder::{Holder, Inspection};
use crate::key::LockKey;
use crate::lease::Lease;
use crate::membership::Enlistment;
use crate::sync::atomic::AtomicBool;
use crate::watch::KeyWatch;

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
/// - Mutexes only. A majority is enough to keep two holders apart, but k permits need more than k / (k + 1) of the members, and each
///   member's queue of waiters has an order of its own, in which they would wait for each other.
/// - A mutex costs a request to each member. One consensus store, such as etcd, promises more for less; a quorum is for users that have
///   several stores and no such one.
///
/// # Membership
///
/// The members keep the list of names and the longest TTL, their [charter](crate::Charter). A client with other names or another TTL is
/// refused, and so are two names for the same server and a member of another quorum, with [`ErrorKind::Invalid`](crate::ErrorKind::Invalid)
/// by the first lock. The first lock of all needs all members.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::{LockClient, MemoryBackend, Quorum};
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
    learnt: Learnt,
    /// Held by the look at members that runs beside other calls.
    looking: Arc<AtomicBool>,
}

impl<B: LockBackend> Quorum<B> {
    /// Begins a quorum of these members, each with the name by which all clients know it.
    pub fn builder<N: Into<String>>(members: impl IntoIterator<Item = (N, B)>) -> QuorumBuilder<B> {
        QuorumBuilder::new(members.into_iter().map(|(name, store)| (name.into(), store)))
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
        self.release_everywhere(lease).await
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.watch_each(|store| store.watch(key))
    }

    /// Members keep no places, so that the claim waits for any news of the key.
    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        let watch = self.watch(claim.key());
        match claim.patience() {
            Patience::Leaves => watch,
            _ => watch.with_attached(self.claims.admit(claim.id())),
        }
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.watch_each(|store| store.watch_lease(lease))
    }

    /// Tells of the leases that a majority has, as far as the members that answer tell.
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let key = key.clone();
        let answers = self.members.ask_all(move |store| {
            let key = key.clone();
            async move { store.inspect(&key).await }
        });
        let answers = answers.await.by_majority(Operation::Inspect)?;
        let last_token = answers.iter().filter_map(Inspection::last_token).max();
        let unheard = self.members.len() - answers.len();
        let mut views: BTreeMap<String, Vec<&Holder>> = BTreeMap::new();
        for holder in answers.iter().flat_map(Inspection::holders) {
            views.entry(holder.fingerprint().to_string()).or_default().push(holder);
        }
        let may_hold = views.into_values().filter_map(|mut views| {
            views.sort_by_key(|view| std::cmp::Reverse(view.remaining()));
            let last_of_majority = views.len().min(self.members.majority()) - 1;
            let is_enough = views.len() + unheard >= self.members.majority();
            is_enough.then(|| views[last_of_majority].clone())
        });
        let inspection = may_hold.fold(Inspection::free(), Inspection::with_holder);
        Ok(inspection.with_last_token(last_token))
    }

    /// Ends leases on all members, and raises the tokens of a majority to those of the member with the largest.
    async fn force_release(&self, key: &LockKey) -> Result<ForcedRelease, Error> {
        self.muster(self.members.member_timeout).await?;
        let forced = key.clone();
        let answers = self.members.ask_all(move |store| {
            let key = forced.clone();
            async move { store.force_release(&key).await }
        });
        let answers = answers.await.by_majority(Operation::ForceRelease)?;
        let mut ended: Vec<Holder> = Vec::new();
        for holder in answers.iter().flat_map(ForcedRelease::ended) {
            if ended.iter().all(|known| known.fingerprint() != holder.fingerprint()) {
                ended.push(holder.clone());
            }
        }
        let ended = ended.into_iter().fold(ForcedRelease::new(), ForcedRelease::with_ended);
        let Some(min_token) = answers.iter().filter_map(ForcedRelease::min_token).max() else {
            return Ok(ended);
        };
        self.raise_floors(min_token).await?;
        Ok(ended.with_min_token(min_token))
    }

    async fn request_revocation(&self, key: &LockKey) -> Result<Revocation, Error> {
        let key = key.clone();
        let answers = self.members.ask_all(move |store| {
            let key = key.clone();
            async move { store.request_revocation(&key).await }
        });
        let answers = answers.await.by_majority(Operation::Revoke)?;
        let is_held = answers.contains(&Revocation::Requested);
        Ok(if is_held { Revocation::Requested } else { Revocation::NotHeld })
    }

    async fn close(&self) {
        join_all(self.members.iter().map(|member| member.store.close())).await;
    }
}

impl<B: LockBackend> Quorum<B> {
    /// Has a majority grant only tokens from `min_token` on.
    async fn raise_floors(&self, min_token: u64) -> Result<(), Error> {
        let charter = self.members.charter.clone();
        let answers = self.members.ask_voters(move |store, id| {
            let enlistment = Enlistment::new(id, charter.clone()).with_floor(min_token - 1);
            async move { store.enlist(&enlistment).await }
        });
        let standings = answers.await.by_majority(Operation::ForceRelease)?;
        let has_floor = standings.iter().filter(|standing| standing.floor() >= min_token - 1);
        if has_floor.count() >= self.members.majority() {
            return Ok(());
        }
        let message = "the leases have ended, but no majority has the floor of the next token";
        Err(Error::new(ErrorKind::Indeterminate, message).with_operation(Operation::ForceRelease))
    }
}

impl<B: LockBackend> fmt::Debug for Quorum<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("members", &self.members).finish_non_exhaustive()
    }
}
