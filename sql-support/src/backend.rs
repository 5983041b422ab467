//! Implements the backend contract on top of any SQL database.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use leasehold_core::admin::{ForcedRelease, Inspection, Revocation};
use leasehold_core::backend::{
    Attempt, AttemptAll, Capabilities, Charter, Claim, Contention, Enlistment, Feature, Fencing,
    Finding, Fingerprint, Grant, KeyPage, KeyWatch, Lease, LockBackend, Operation, Patience,
    Release, Renewal, Standing, StoreId, check_timer,
};
use leasehold_core::{Error, ErrorKind, LockKey};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::database::Database;
use crate::failure::Failure;
use crate::news::{Concerns, News};
use crate::reply::{Acquired, AcquiredAll, Granted, HolderRow, Refused, Renewed, ShownRow};
use crate::request::{Acquire, Key, List, Named, Place, Renew};

/// Locks in a database. Clones share connections.
///
/// The documentation of each database's crate shows how to create a backend.
pub struct Backend<D: Database>(Arc<Door<D>>);

/// A database that is either already open or opened by the first request.
struct Door<D: Database> {
    opened: OnceCell<D>,
    /// `None` if the database was already open when the backend was created.
    config: Option<D::Config>,
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
        Self(Arc::new(Door { opened: OnceCell::new(), config: Some(config) }))
    }

    /// Creates a backend on a database that is already open.
    pub fn new(database: D) -> Self {
        Self(Arc::new(Door { opened: OnceCell::new_with(Some(database)), config: None }))
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

    /// Notifies the callers of this client's claims that may be granted now.
    fn call_up(&self, called: &[Uuid]) {
        let news = self.news().into_iter();
        news.for_each(|news| called.iter().for_each(|tag| news.call(tag)));
    }

    fn changed(&self, key: &LockKey, concerns: Concerns) {
        self.news().into_iter().for_each(|news| news.notify(key.as_str(), concerns));
    }

    fn granted(&self, claim: &Claim, granted: &Granted) -> Result<Grant, Error> {
        self.call_up(&granted.called);
        if !claim.share().is_whole() {
            // The notification also tells observers of an election about the new leader.
            self.changed(claim.key(), Concerns::Waiters);
        }
        let token = granted.token.try_into();
        let token = token.map_err(|_| Failure::Unexpected.error("a lease without a token"))?;
        Ok(Grant::new(token).with_spare_tokens(granted.spare))
    }

    fn refused(&self, refused: Refused) -> Result<Contention, Error> {
        self.call_up(&refused.called);
        let mut contention = Contention::new();
        if let Some(holder) = refused.holder {
            contention = contention.with_holder(holder.holder()?);
        }
        if let Some(ends) = refused.first_place_ends {
            contention = contention.with_retry_after(ends);
        }
        Ok(contention)
    }

    /// Adds the queue entry of a claim that was not granted.
    fn in_the_queue(&self, claim: &Claim, contention: Contention) -> Contention {
        let Some(Place { time, .. }) = Place::of(claim) else { return contention };
        let contention = match claim.patience() {
            Patience::Waits => contention.with_place(time),
            _ => contention,
        };
        match self.news().and_then(News::called_by) {
            Some(by) => contention.with_called_by(by),
            None => contention,
        }
    }

    fn renewed(&self, lease: &Lease, renewed: Renewed) -> Renewal {
        match renewed {
            Renewed::Renewed { asked, called } => {
                self.call_up(&called);
                if !lease.share().is_whole() {
                    // The holder may have returned permits or changed its published value.
                    self.changed(lease.key(), Concerns::Waiters);
                }
                if asked { Renewal::RevocationRequested } else { Renewal::Renewed }
            }
            Renewed::Taken => Renewal::Taken,
            Renewed::Vanished => Renewal::Vanished,
        }
    }

    async fn renew_some(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let replies = match self.opened().await {
            Ok(database) => database.renew(leases.iter().map(Renew::of).collect()).await,
            Err(error) => leases.iter().map(|_| Err(error.repeated())).collect(),
        };
        debug_assert_eq!(replies.len(), leases.len(), "one reply for each");
        let renewal = |(lease, renewed): (&Lease, Result<Renewed, Error>)| {
            let renewal = renewed.map(|renewed| self.renewed(lease, renewed));
            renewal.map_err(|error| context::<D>(error, Operation::Renew, lease.key()))
        };
        leases.iter().zip(replies).map(renewal).collect()
    }

    async fn stand(
        &self,
        enlistment: Option<Enlistment>,
        fresh: StoreId,
    ) -> Result<Standing, Error> {
        let standing = async {
            check(enlistment.as_ref().map(Enlistment::charter))?;
            self.opened().await?.standing(fresh, enlistment).await
        };
        standing
            .await
            .map_err(|error| error.with_operation(Operation::Enlist).with_backend(D::NAME))
    }
}

/// Rejects a quorum configuration that some databases cannot store as text.
fn check(charter: Option<&Charter>) -> Result<(), Error> {
    if charter.is_none_or(|charter| !charter.as_str().contains('\0')) {
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
            .with(Feature::ForceRelease)
            .with(Feature::Inspect)
            .with(Feature::List)
            .with(Feature::Membership)
            .with(Feature::Queue)
            .with(Feature::Revocation)
            .with(Feature::SpareTokens)
            .with(Feature::Together)
            .with(Feature::Units);
        let hears_others = self.news().is_some_and(News::hears_others);
        if hears_others { capabilities.with(Feature::Push) } else { capabilities }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        let attempt = async {
            check(claim.charter())?;
            match self.opened().await?.acquire(Acquire::of(claim)).await? {
                Acquired::Granted(granted) => self.granted(claim, &granted).map(Attempt::Granted),
                Acquired::Refused(refused) => self
                    .refused(refused)
                    .map(|contention| Attempt::Held(self.in_the_queue(claim, contention))),
                Acquired::OtherKind => Err(claim.wrong_type()),
            }
        };
        attempt.await.map_err(|error| context::<D>(error, Operation::Acquire, claim.key()))
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<AttemptAll, Error> {
        let Some(first) = claims.first() else {
            return Ok(AttemptAll::Granted(Vec::new()));
        };
        let attempt = async {
            if claims.len() > Acquire::MAX_TOGETHER {
                let message =
                    format!("one request can acquire at most {} locks", Acquire::MAX_TOGETHER);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            claims.iter().try_for_each(|claim| check(claim.charter()))?;
            let all = claims.iter().map(Acquire::of).collect();
            match self.opened().await?.acquire_all(all).await? {
                AcquiredAll::Granted(granted) => {
                    let each = claims.iter().zip(&granted);
                    let grants = each.map(|(claim, granted)| self.granted(claim, granted));
                    grants.collect::<Result<_, _>>().map(AttemptAll::Granted)
                }
                AcquiredAll::Refused(index, refused) => {
                    let (key, contention) = (claims[index].key().clone(), self.refused(refused)?);
                    Ok(AttemptAll::Held { key, contention })
                }
                AcquiredAll::OtherKind(index) => Err(claims[index].wrong_type()),
            }
        };
        attempt.await.map_err(|error| context::<D>(error, Operation::Acquire, first.key()))
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, Error> {
        let mut renewed = self.renew_some(std::slice::from_ref(lease)).await;
        renewed.pop().expect("one reply for each")
    }

    async fn release(&self, lease: &Lease) -> Result<Release, Error> {
        let released = async { self.opened().await?.release(Named::of(lease)).await }.await;
        let released =
            released.map_err(|error| context::<D>(error, Operation::Release, lease.key()))?;
        // Releases that only removed a queue entry are also reported.
        self.changed(lease.key(), Concerns::Waiters);
        self.call_up(&released.called);
        Ok(if released.was_held { Release::Released } else { Release::NotHeld })
    }

    async fn renew_all(&self, leases: &[Lease]) -> Vec<Result<Renewal, Error>> {
        let chunks = leases.chunks(Renew::MAX_TOGETHER).map(|leases| self.renew_some(leases));
        join_all(chunks).await.into_iter().flatten().collect()
    }

    fn watch(&self, key: &LockKey) -> KeyWatch {
        self.news().map_or_else(KeyWatch::silent, |news| news.watch(key))
    }

    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        self.news().map_or_else(KeyWatch::silent, |news| news.watch_claim(claim))
    }

    fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        self.news().map_or_else(KeyWatch::silent, |news| news.watch_lease(lease))
    }

    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let inspection = async {
            let inspected = self.opened().await?.inspect(Key::of(key)).await?;
            let clock = inspected.clock;
            let queue = inspected.queue.into_iter().map(ShownRow::waiter);
            let free = Inspection::free()
                .with_last_token(inspected.last_token)
                .with_queue(inspected.waiting, queue.collect::<Result<_, _>>()?);
            let holders = inspected.holders.into_iter().map(|row| row.holder(clock));
            let holders: Vec<_> = holders.collect::<Result<_, _>>()?;
            let inspection = holders.into_iter().fold(free, Inspection::with_holder);
            Ok(inspection.with_units(inspected.units))
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
        let forced = async {
            let forced = self.opened().await?.force_release(Key::of(key), only).await?;
            self.changed(key, Concerns::Waiters);
            self.changed(key, Concerns::Holders);
            self.call_up(&forced.called);
            let ended = forced.ended.into_iter().map(HolderRow::holder);
            let ended: Vec<_> = ended.collect::<Result<_, _>>()?;
            let release = ended.into_iter().fold(ForcedRelease::new(), ForcedRelease::with_ended);
            Ok(match forced.min_token {
                Some(token) => release.with_min_token(token),
                None => release,
            })
        };
        forced.await.map_err(|error| context::<D>(error, Operation::ForceRelease, key))
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let asked =
            async { self.opened().await?.request_revocation(Key::of(key), only).await }.await;
        let asked = asked.map_err(|error| context::<D>(error, Operation::Revoke, key))?;
        self.changed(key, Concerns::Holders);
        Ok(if asked.is_held { Revocation::Requested } else { Revocation::NotHeld })
    }

    async fn standing(&self, fresh: StoreId) -> Result<Standing, Error> {
        self.stand(None, fresh).await
    }

    async fn enlist(&self, enlistment: &Enlistment) -> Result<Standing, Error> {
        // A store without an identity gets a new identity, because the requested identity belongs
        // to data that was lost.
        self.stand(Some(enlistment.clone()), StoreId::new()).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let found = async { self.opened().await?.diagnose().await }.await;
        found.map_err(|error| error.with_operation(Operation::Diagnose).with_backend(D::NAME))
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
