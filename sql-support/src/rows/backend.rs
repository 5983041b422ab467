//! Implements the backend contract on top of any SQL database with one row per key.

mod poll;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use leasehold_core::backend::entry::{Entry, Obstacle};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Claim, Feature, Fencing, Finding, Fingerprint,
    ForcedRelease, Grant, Inspection, JoinRequest, KeyPage, KeyWatch, Lease, LockBackend, Member,
    MemberStatus, Operation, QuorumConfiguration, Release, Renewal, Revocation, StoreAdmin,
    StoreId, Subject, Vote, WokenBy, check_timer,
};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_entry::Tag;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::failure::Failure;
use crate::news::{Concerns, News};
use crate::remembered::Remembered;
use crate::remote::Urgency;
use crate::request::List;
use crate::rows::database::Database;
use crate::rows::request::{Acquire, Change, Granted, Named, Renew};
use crate::rows::row::{Clock, Notices, State};

/// The number of keys that a renewal of many leases changes at the same time. More changes would
/// only wait for connections.
const CHANGES_AT_A_TIME: usize = 16;

/// Locks in a database. Clones share connections.
///
/// The documentation of each database's crate shows how to create a backend.
pub struct Backend<D: Database>(Arc<Door<D>>);

/// A database that is either already open or opened by the first request.
struct Door<D: Database> {
    opened: OnceCell<D>,
    /// `None` if the database was already open when the backend was created.
    config: Option<D::Config>,
    /// The keys whose rows contained a document when this process last changed them. These rows are
    /// released without the statement for the simple state, which would have no effect.
    contended: Remembered<()>,
}

/// The effects of a written row on callers and on later statements.
struct Changed {
    notices: Notices,
    woken: Vec<Uuid>,
    /// Whether no claim is queued behind the woken claims.
    is_last: bool,
    was_contended: bool,
}

impl<D: Database> Backend<D> {
    /// Connects to the database at `url`. The documentation of the database's configuration type
    /// describes the URL.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the URL is not valid, and the errors of
    /// [`Backend::connect_with`].
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let config = D::read_url(url);
        Self::connect_with(config.map_err(D::connecting)?).await
    }

    /// Connects to the database in `config`, checks the credentials, and creates missing tables if
    /// `config` allows it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the database cannot be reached, and
    /// [`ErrorKind::Denied`] if it rejects the credentials. Returns [`ErrorKind::Refused`] if the
    /// tables are missing and cannot be created.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect_with(config: D::Config) -> Result<Self, Error> {
        let backend = Self::connect_lazily(config);
        backend.opened().await?;
        Ok(backend)
    }

    /// Creates a backend that connects to the database in `config` on the first request. This
    /// function performs neither I/O nor checks.
    ///
    /// Until the first request, the backend [declares](LockBackend::capabilities) best-effort
    /// tokens and no notifications. If a caller starts to wait before the backend's first request,
    /// the caller polls, because it is not notified of changes.
    pub fn connect_lazily(config: D::Config) -> Self {
        Self::with(OnceCell::new(), Some(config))
    }

    /// Creates a backend on a database that is already open.
    pub fn new(database: D) -> Self {
        Self::with(OnceCell::new_with(Some(database)), None)
    }

    fn with(opened: OnceCell<D>, config: Option<D::Config>) -> Self {
        Self(Arc::new(Door { opened, config, contended: Remembered::default() }))
    }

    /// Returns the database. Opens the database if no request has opened it yet.
    async fn opened(&self) -> Result<&D, Error> {
        let open = async {
            check_timer().map_err(D::connecting)?;
            let config = self.0.config.clone().expect("it is open, or it has a configuration");
            D::open(config).await.map_err(D::connecting)
        };
        self.0.opened.get_or_try_init(|| open).await
    }

    /// Returns the source of change notifications, if the database is open.
    fn news(&self) -> Option<&News> {
        self.0.opened.get().map(D::news)
    }

    /// Changes keys, and then notifies the watches of this client.
    async fn change<T: Send + 'static>(
        &self,
        change: Change,
        mut step: impl FnMut(&mut [State], Clock) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let database = self.opened().await?;
        let step = move |states: &mut [State], clock: Clock| {
            let done = step(states, clock)?;
            let changed = states.iter().map(Changed::of);
            Ok((done, changed.collect::<Vec<_>>()))
        };
        let keys = change.keys.clone();
        let (done, changed) = database.change(change, step).await?;
        let news = database.news();
        for (key, changed) in keys.iter().zip(changed) {
            let was_contended = changed.was_contended.then_some(());
            self.0.contended.update(key.as_str(), |_| was_contended);
            news.forget_row(key);
            if changed.notices.waiters {
                news.notify(key.as_str(), Concerns::Waiters);
            }
            if changed.notices.holders {
                news.notify(key.as_str(), Concerns::Holders);
            }
            changed.woken.iter().for_each(|tag| news.wake(tag, changed.is_last));
        }
        Ok(done)
    }

    /// Changes one key.
    async fn change_one<T: Send + 'static>(
        &self,
        key: &LockKey,
        urgency: Urgency,
        mut step: impl FnMut(&mut State, Clock) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let keys = vec![key.clone()];
        let change = Change { keys, leases: Vec::new(), membership: None, urgency };
        self.change(change, move |states, clock| step(&mut states[0], clock)).await
    }

    /// Tries once to acquire a lease, for a quorum if `vote` is given.
    async fn attempt(&self, claim: &Claim, vote: Option<&Vote>) -> Result<Attempt, Error> {
        let attempt = async {
            check(vote.map(Vote::configuration))?;
            let request = Acquire::of(claim, vote);
            let (database, tag) = (self.opened().await?, request.lease.tag.id);
            if claim.mode().is_mutex()
                && database.news().may_be_simple(&tag)
                && let Some(granted) = database.acquire_free(&request).await?
            {
                return grant(granted).map(Attempt::Granted);
            }
            let Acquire { lease, membership, requested_token, .. } = request;
            let keys = vec![lease.key];
            let change = Change { keys, leases: vec![tag], membership, urgency: Urgency::Asks };
            let attempted = claim.clone();
            let acquire = move |states: &mut [State], clock: Clock| {
                acquire(&mut states[0], lease.tag, &attempted, requested_token, clock)
            };
            Ok(match self.change(change, acquire).await? {
                (Attempt::Held(contention), true) if database.news().queued(&tag) => {
                    self.poll_unless_notified(claim.key(), tag);
                    Attempt::Held(contention.with_woken_by(WokenBy::Claim))
                }
                (attempt, _) => attempt,
            })
        };
        attempt.await.map_err(|error| context::<D>(error, Operation::Acquire, claim.key()))
    }

    async fn renew_some(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let database = match self.opened().await {
            Ok(database) => database,
            Err(error) => return leases.iter().map(|_| Err(error.repeated())).collect(),
        };
        let mut renewed: Vec<Option<Result<Renewal, Error>>> =
            leases.iter().map(|_| None).collect();
        let is_whole = |index: &usize| leases[*index].mode().is_mutex();
        let (whole, mut rest): (Vec<usize>, Vec<usize>) = (0..leases.len()).partition(is_whole);
        for chunk in whole.chunks(Renew::MAX_TOGETHER) {
            let renewals: Vec<_> = chunk.iter().map(|index| Renew::of(&leases[*index])).collect();
            let replies = database.renew_simple(&renewals).await;
            debug_assert_eq!(replies.len(), chunk.len(), "one reply for each");
            for (index, reply) in chunk.iter().zip(replies) {
                match reply {
                    Ok(true) => renewed[*index] = Some(Ok(Renewal::Renewed)),
                    Ok(false) => rest.push(*index),
                    Err(error) => renewed[*index] = Some(Err(error)),
                }
            }
        }
        let mut by_key: HashMap<&LockKey, Vec<usize>> = HashMap::new();
        for index in rest {
            by_key.entry(leases[index].key()).or_default().push(index);
        }
        let mut changes = Vec::with_capacity(by_key.len());
        for (key, indexes) in by_key {
            let leases = indexes.iter().map(|index| leases[*index].clone()).collect();
            changes.push(
                async move { (indexes, self.renew_on(key, leases, 0, Urgency::Renews).await) },
            );
        }
        let mut changes = stream::iter(changes).buffer_unordered(CHANGES_AT_A_TIME);
        while let Some((indexes, replies)) = changes.next().await {
            for (place, index) in indexes.into_iter().enumerate() {
                renewed[index] = Some(match &replies {
                    Ok(replies) => Ok(replies[place]),
                    Err(error) => Err(error.repeated()),
                });
            }
        }
        let renewed = renewed.into_iter().map(|renewal| renewal.expect("one reply for each"));
        let renewed = renewed.zip(leases).map(|(renewal, lease)| {
            renewal.map_err(|error| context::<D>(error, Operation::Renew, lease.key()))
        });
        renewed.collect()
    }

    /// Renews leases of one key. If one of them is in force, raises the last token to at least
    /// `min_token`.
    async fn renew_on(
        &self,
        key: &LockKey,
        leases: Vec<Lease>,
        min_token: u64,
        urgency: Urgency,
    ) -> Result<Vec<Renewal>, Error> {
        let renew = move |state: &mut State, clock: Clock| {
            let mut replies = Vec::with_capacity(leases.len());
            for lease in &leases {
                let entry = state.entry()?;
                let renewed = entry.renew(&Tag::of(&lease.id()), lease, clock.now);
                if matches!(renewed.reply, Renewal::Renewed | Renewal::RevocationRequested) {
                    entry.last_token = entry.last_token.max(min_token);
                }
                state.notify_waiters(renewed.is_news);
                replies.push(renewed.reply);
            }
            Ok(replies)
        };
        self.change_one(key, urgency, renew).await
    }

    async fn member_status(
        &self,
        request: Option<JoinRequest>,
        fresh: StoreId,
    ) -> Result<MemberStatus, Error> {
        let status = async {
            check(request.as_ref().map(JoinRequest::configuration))?;
            self.opened().await?.member_status(fresh, request).await
        };
        status.await.map_err(|error| error.with_operation(Operation::Join).with_backend(D::NAME))
    }
}

impl Changed {
    fn of(state: &State) -> Self {
        let (notices, woken) = (state.notices(), state.woken());
        let is_last = state.next_in_queue().next().is_none();
        Self { notices, woken, is_last, was_contended: state.was_contended() }
    }
}

/// Grants or queues a claim, and returns whether the claim is queued if it was refused.
fn acquire(
    state: &mut State,
    name: Tag,
    claim: &Claim,
    requested_token: i64,
    clock: Clock,
) -> Result<(Attempt, bool), Error> {
    let tokens = state.tokens(requested_token, clock);
    let claim = state.limited(&name, claim, tokens);
    let attempt = state.entry()?.acquire(name, &claim, tokens, clock.now)?;
    state.notify_waiters(attempt.is_news);
    Ok((attempt.reply, claim.queue_ttl().is_some()))
}

/// Grants all claims, or returns the first claim that cannot be granted.
fn acquire_all(states: &mut [State], claims: &[Claim], clock: Clock) -> Result<AttemptAll, Error> {
    for (state, claim) in states.iter_mut().zip(claims) {
        let name = Tag::of(&claim.id());
        match state.entry()?.obstacle(&name, claim, clock.now) {
            Some(Obstacle::WrongType) => return Err(claim.wrong_type()),
            Some(Obstacle::Held(contention)) => {
                return Ok(AttemptAll::Held { key: claim.key().clone(), contention });
            }
            None => {}
        }
    }
    let mut grants = Vec::with_capacity(claims.len());
    for (state, claim) in states.iter_mut().zip(claims) {
        let (name, tokens) = (Tag::of(&claim.id()), state.tokens(0, clock));
        let claim = state.limited(&name, claim, tokens);
        let granted = state.entry()?.grant(name, &claim, tokens, clock.now);
        state.notify_waiters(granted.is_news);
        grants.push(granted.reply);
    }
    Ok(AttemptAll::Granted(grants))
}

fn force_release(
    state: &mut State,
    only: Option<Fingerprint>,
    clock: Clock,
) -> Result<ForcedRelease, Error> {
    let tokens = state.tokens(0, clock);
    let is_overwritten = only.is_none() && state.overwrite(tokens);
    let entry: &mut Entry<_, _> = state.entry()?;
    let forced = entry.force_release(only, tokens, clock.now);
    let reply =
        if is_overwritten { forced.reply.with_min_token(entry.last_token) } else { forced.reply };
    state.hand_over(clock);
    state.notify_waiters(forced.is_news || is_overwritten);
    state.notify_holders(forced.is_news || is_overwritten);
    Ok(reply)
}

fn grant(granted: Granted) -> Result<Grant, Error> {
    let token = granted.token.try_into();
    let token = token.map_err(|_| Failure::Unexpected.error("a lease without a token"))?;
    Ok(Grant::new(token).with_spare_tokens(granted.spare))
}

/// Rejects a quorum configuration that some databases cannot store as text.
fn check(configuration: Option<&QuorumConfiguration>) -> Result<(), Error> {
    if configuration.is_none_or(|configuration| !configuration.as_str().contains('\0')) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "the names of a quorum's members must not contain NUL"))
}

fn context<D: Database>(error: Error, operation: Operation, key: &LockKey) -> Error {
    error.with_operation(operation).with_key(key).with_backend(D::NAME)
}

#[async_trait]
impl<D: Database> LockBackend for Backend<D> {
    fn capabilities(&self) -> Capabilities {
        let fencing = self.0.opened.get().map_or(Fencing::BestEffort, D::fencing);
        let capabilities = Capabilities::new(D::NAME, fencing)
            .with(Feature::Queue)
            .with(Feature::SpareTokens)
            .with(Feature::Together)
            .with(Feature::Units);
        let hears_others = self.news().is_some_and(News::hears_others);
        if hears_others { capabilities.with(Feature::Push) } else { capabilities }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.attempt(claim, None).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let mut renewed = self.renew_some(std::slice::from_ref(lease)).await;
        renewed.pop().expect("one reply for each")
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let released = async {
            let (database, named) = (self.opened().await?, Named::of(lease));
            // A lease of permits is never in the simple state.
            if lease.mode().is_mutex()
                && self.0.contended.get(lease.key().as_str()).is_none()
                && !database.news().knows_row(lease.key())
                && let Some(was_held) = database.release_simple(&named).await?
            {
                database.news().notify(lease.key().as_str(), Concerns::Waiters);
                return Ok(if was_held { Release::Released } else { Release::NotHeld });
            }
            let (keys, leases) = (vec![named.key], vec![named.tag.id]);
            let change = Change { keys, leases, membership: None, urgency: Urgency::Releases };
            let release = move |states: &mut [State], clock: Clock| {
                let released = states[0].entry()?.release(&named.tag, clock.now);
                states[0].hand_over(clock);
                states[0].notify_waiters(released.is_news);
                Ok(released.reply)
            };
            self.change(change, release).await
        };
        released.await.map_err(|error| context::<D>(error, Operation::Release, lease.key()))
    }

    async fn acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let Some(first) = claims.first() else {
            return Ok(AttemptAll::Granted(Vec::new()));
        };
        if claims.len() > Acquire::MAX_TOGETHER {
            let message =
                format!("one request can acquire at most {} locks", Acquire::MAX_TOGETHER);
            let error = Error::new(ErrorKind::Unsupported, message);
            return Err(context::<D>(error, Operation::Acquire, first.key()));
        }
        let keys = claims.iter().map(|claim| claim.key().clone()).collect();
        let leases = claims.iter().map(|claim| Tag::of(&claim.id()).id).collect();
        let change = Change { keys, leases, membership: None, urgency: Urgency::Asks };
        let claims = claims.to_vec();
        let acquire = move |states: &mut [State], clock| acquire_all(states, &claims, clock);
        let attempt = self.change(change, acquire).await;
        attempt.map_err(|error| context::<D>(error, Operation::Acquire, first.key()))
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        self.renew_some(leases).await
    }

    fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        self.news().map_or_else(KeyWatch::silent, |news| news.watch(subject))
    }

    fn admin(&self) -> Option<&dyn StoreAdmin> {
        Some(self)
    }

    fn member(&self) -> Option<&dyn Member> {
        Some(self)
    }

    fn disconnect(&self) {
        self.0.opened.get().into_iter().for_each(D::disconnect);
    }

    async fn close(&self) {
        if let Some(database) = self.0.opened.get() {
            database.close().await;
        }
    }
}

#[async_trait]
impl<D: Database> StoreAdmin for Backend<D> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let inspection = async {
            let (mut state, clock) = self.opened().await?.read(key).await?;
            Ok(state.entry()?.inspect(clock.now))
        };
        inspection.await.map_err(|error| context::<D>(error, Operation::Inspect, key))
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let names = async { self.opened().await?.list(List::of(prefix, after)).await }.await;
        let names =
            names.map_err(|error| error.with_operation(Operation::List).with_backend(D::NAME))?;
        let next = names.last().filter(|_| names.len() == List::KEYS).cloned();
        // Rows written by a different program may not be valid locks.
        let keys = names.iter().filter_map(|name| LockKey::from_encoded(name).ok());
        Ok(KeyPage::new(keys.collect()).with_next(next))
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let force = move |state: &mut State, clock| force_release(state, only, clock);
        let forced = self.change_one(key, Urgency::Asks, force).await;
        forced.map_err(|error| context::<D>(error, Operation::ForceRelease, key))
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let request = move |state: &mut State, _| {
            let revocation = state.entry()?.request_revocation(only);
            state.notify_holders(revocation == Revocation::Requested);
            Ok(revocation)
        };
        let requested = self.change_one(key, Urgency::Asks, request).await;
        requested.map_err(|error| context::<D>(error, Operation::RequestRevocation, key))
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let found = async { self.opened().await?.diagnose().await }.await;
        found.map_err(|error| error.with_operation(Operation::Diagnose).with_backend(D::NAME))
    }
}

#[async_trait]
impl<D: Database> Member for Backend<D> {
    async fn status(&self, fresh: StoreId) -> Result<MemberStatus, Error> {
        self.member_status(None, fresh).await
    }

    async fn join(&self, request: &JoinRequest) -> Result<MemberStatus, Error> {
        // A store without an identity gets a new identity, because the requested identity belongs
        // to data that was lost.
        self.member_status(Some(request.clone()), StoreId::new()).await
    }

    async fn vote(&self, vote: &Vote) -> Result<Attempt, Error> {
        self.attempt(vote.claim(), Some(vote)).await
    }

    async fn raise(&self, lease: &Lease, min_token: u64) -> Result<Renewal, Error> {
        let leases = vec![lease.clone()];
        let renewed = self.renew_on(lease.key(), leases, min_token, Urgency::Asks).await;
        let renewed = renewed.map(|mut renewed| renewed.pop().expect("one reply for each"));
        renewed.map_err(|error| context::<D>(error, Operation::Renew, lease.key()))
    }
}

impl<D: Database> Clone for Backend<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Database> fmt::Debug for Backend<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Backend").field(&self.0.opened.get()).finish()
    }
}

#[cfg(test)]
mod tests;
