//! Locks held on a majority of independent stores.

mod acquire;
mod ballot;
mod builder;
mod claims;
mod contended;
mod establish_votes;
mod largest_token;
mod late;
mod members;
mod operator;
mod renew;
mod round;
mod running_check;

pub use builder::QuorumBuilder;

use std::sync::Arc;
use std::{fmt, slice};

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::backend::{
    Attempt, Capabilities, Claim, KeyWatch, Lease, LockBackend, Patience, Release, Renewal,
    StoreAdmin, Subject, WatchSelection,
};
use leasehold_core::{Error, clock};

use self::claims::Claims;
use self::contended::ContendedKeys;
use self::largest_token::LargestToken;
use self::late::Late;
use self::members::Members;
use self::running_check::RunningCheck;

/// The number of member timeouts allowed for the first request to a member. The request must first
/// open a connection, which takes several round trips, and more with TLS.
const CONNECTING: u32 = 8;

/// A store that is made up of several independent stores. A lease is in force as long as a majority
/// of the stores holds it.
///
/// A quorum uses the Redlock algorithm, extended with ordered tokens. The members do not
/// communicate with each other. A client sends its requests to all members at the same time. A lock
/// is granted when a majority of the members has granted its lease. A quorum of three members
/// tolerates one slow or failed member without delay, and a quorum of five members tolerates two.
/// If fewer than a majority of the members grant a lock, the client releases the votes that it
/// received. A waiting client keeps the vote of the member in whose queue it waits.
///
/// # Guarantees
///
/// - **Exclusion.** Two clients never consider themselves the holder of a key at the same time.
///   Exclusion requires that a majority of the members keep each lease for its TTL, and that the
///   clocks of the members and the client run at the same rate. The deadline of a lease is
///   calculated from the time before the first request.
///
/// - **Tokens.** The [fencing tokens](leasehold_core::FencingToken) of a key strictly increase,
///   even if members fail, restart, or lose their data one after another. A token is larger than
///   all tokens that a majority has ever granted, because a majority of the members records each
///   token as the minimum before the caller receives the token.
///
/// - **Lost data.** A member that has lost its data cannot vote on lock requests until the longest
///   TTL has passed. Before the member votes again, it adopts the minimum token of a majority of
///   the other members.
///
/// - **Long holds.** When a majority confirms a renewal, members that lost the lease are asked to
///   grant it again. A lock therefore survives even if all members restart, one after another.
///
/// # Limits
///
/// - If only a bare majority of the members hold a lease, a clock jump on one of these members
///   breaks exclusion, because the lease expires early on that member, which can then grant the key
///   to another client. If all members hold a lease, exclusion breaks only if the clocks of a
///   majority of the members jump.
///
/// - If all members lose their data at the same time, the quorum starts over as if it were new.
///   Clients that held locks before the data loss notice the loss of their leases at their next
///   renewal. If a majority of the members loses its data, but some members keep their data, the
///   quorum is unavailable until the longest TTL has passed, and can then resume only with all
///   members.
///
/// - A server that replaces a member under the same name must be empty, and the previous server
///   must be shut down.
///
/// - A quorum supports mutexes only. A majority is enough to exclude a second holder, but a
///   semaphore with k permits would need more than k / (k + 1) of the members.
///
/// - Waiting clients are not served in a fair order. A client that finds a key locked waits in the
///   queue of a single member, which is the first member in the list of names that has a vote and
///   replied to its last request. A client that has not encountered contention yet sends its
///   request to all members at the same time and may overtake queued clients.
///
/// - Acquiring a mutex sends a request to every member. A consensus store such as etcd provides
///   stronger guarantees with fewer requests. Use a quorum if you have several independent stores
///   but no consensus store.
///
/// # Membership
///
/// The members store the
/// [quorum configuration](leasehold_core::backend::QuorumConfiguration), which consists of the list
/// of names and the longest TTL. Acquiring the first lock fails with
/// [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the client uses different names or
/// a different TTL, if two names refer to the same server, or if a member belongs to a different
/// quorum. Acquiring the first lock in a new quorum requires all members.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold_core::LockClient;
/// use leasehold_core::memory::MemoryBackend;
/// use leasehold_quorum::Quorum;
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
    largest_token: LargestToken,
    running_check: RunningCheck,
}

impl<B: LockBackend> Quorum<B> {
    /// Checks that a majority of the members can vote on lock requests, and asks members without a
    /// vote to join. If the quorum does not exist yet, this method creates it, which requires all
    /// members.
    ///
    /// This method has at most three steps: the members report their statuses, report their minimum
    /// tokens, and join. Each step takes at most eight times the
    /// [member timeout](QuorumBuilder::member_timeout), which leaves time to connect first.
    ///
    /// Calling this method is optional, because acquiring the first lock also establishes the
    /// quorum.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if a member belongs to a
    /// different quorum, or if two names refer to the same server. Returns
    /// [`ErrorKind::Unavailable`](leasehold_core::ErrorKind::Unavailable) if a majority of the
    /// members cannot vote on lock requests yet. If a majority of the members does not reply,
    /// returns the members' errors.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe and can be called again.
    pub async fn establish(&self) -> Result<(), Error> {
        self.establish_votes(self.members.member_timeout * CONNECTING).await
    }

    /// Returns a handle to the same quorum, for a background task.
    fn clone_parts(&self) -> Self {
        Self {
            members: Arc::clone(&self.members),
            claims: self.claims.clone(),
            contended: self.contended.clone(),
            late: self.late.clone(),
            largest_token: self.largest_token.clone(),
            running_check: self.running_check.clone(),
        }
    }
}

#[async_trait]
impl<B: LockBackend> LockBackend for Quorum<B> {
    fn capabilities(&self) -> Capabilities {
        self.members.capabilities()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.collect_votes(claim).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let mut renewals = self.renew_all(slice::from_ref(lease)).await;
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

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        let watches = self.members.iter().map(|member| member.store.watch(subject));
        match subject {
            Subject::Claim(claim) if claim.patience() != Patience::Leaves => {
                let heeded = WatchSelection::default();
                let watch = KeyWatch::selected(watches, heeded.clone());
                watch.with_attached(self.claims.admit(claim.id(), heeded))
            }
            _ => KeyWatch::any(watches),
        }
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        let have_admin = self.members.iter().all(|member| member.store.admin().is_some());
        have_admin.then_some(self)
    }

    fn disconnect(&self) {
        self.members.iter().for_each(|member| member.store.disconnect());
    }

    /// Waits for requests in progress first, for at most one member timeout. If a release were
    /// lost, the key would stay locked on that member for one TTL.
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
