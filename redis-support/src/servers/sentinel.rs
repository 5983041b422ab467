//! One server at a time, and sentinels that know which.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::{Error, ErrorKind};
use tokio::time::{Instant, timeout};

use super::{Ask, SLOW, only_asked, replaced};
use crate::address::Address;
use crate::batch::Form;
use crate::call::Call;
use crate::client::{Access, Client, Protocol, Received};
use crate::error::ServerError;
use crate::line::{Hint, Line, Role};
use crate::reply::Reply;
use crate::server::Server;
use crate::shared::Shared;

/// How long what the sentinels said is good where they cannot tell that it is not any more: over the old protocol, or while none
/// of them answers.
const GOOD_UNTOLD: Duration = Duration::from_secs(1);

/// The server that sentinels name.
///
/// A master that was replaced while it was frozen or cut off goes on answering for seconds when it is back, and all that it
/// says is lost. So it is believed only as long as there is no *doubt*: the sentinels tell when they switch, and
/// whatever fails, is slow, or makes them silent has them asked again. If then none of them answers, the one that
/// they named last goes on being asked; but an answer that itself gave reason for the doubt is not believed then.
pub(crate) struct Sentinel<C: Client> {
    sentinels: Vec<Arc<Line<C>>>,
    master: String,
    access: Access,
    shared: Arc<Shared<C>>,
    doubts: Arc<Doubts>,
    /// Whoever asks them holds it; the others wait for the outcome.
    asking: tokio::sync::Mutex<()>,
    known: Mutex<Option<Known<C>>>,
}

/// Counts the reasons to ask the sentinels.
#[derive(Debug, Default)]
struct Doubts {
    all: AtomicU64,
    /// Those of them that say something about the master.
    serious: AtomicU64,
}

impl Doubts {
    fn raise(&self, hint: Hint) {
        if hint == Hint::Switched {
            self.serious.fetch_add(1, Ordering::Relaxed);
        }
        self.all.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> DoubtCount {
        // In the other order than they are counted in, so that one is rather counted twice than missed.
        let all = self.all.load(Ordering::Relaxed);
        DoubtCount { all, serious: self.serious.load(Ordering::Relaxed) }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct DoubtCount {
    all: u64,
    serious: u64,
}

impl<C: Client> Clone for Master<C> {
    fn clone(&self) -> Self {
        let Self { server, doubts, confirmed } = self;
        Self { server: Arc::clone(server), doubts: *doubts, confirmed: *confirmed }
    }
}

/// What the sentinels said last.
struct Known<C: Client> {
    master: Master<C>,
    replicas: u32,
    /// When they were asked last, whether they answered or not.
    asked_at: Instant,
}

/// The master, as far as is known.
struct Master<C: Client> {
    server: Arc<Server<C>>,
    /// The doubts when the sentinels were asked.
    doubts: DoubtCount,
    /// Whether they answered then.
    confirmed: bool,
}

/// What a sentinel says of the master.
struct MasterInfo {
    epoch: u64,
    address: Address,
    replicas: u32,
}

impl<C: Client> Sentinel<C> {
    pub(super) fn new(
        sentinels: &[Address],
        sentinel_access: &Access,
        master: String,
        access: Access,
        shared: &Arc<Shared<C>>,
    ) -> Self {
        let doubts = Arc::<Doubts>::default();
        let sentinel = |address: &Address| {
            let (doubts, news) = (Arc::clone(&doubts), Arc::downgrade(&shared.news));
            let listen = move |hint| {
                doubts.raise(hint);
                // Whoever waits asks the new server.
                if let Some(news) = news.upgrade().filter(|_| hint == Hint::Switched) {
                    news.interrupted();
                }
            };
            let role = Role::Sentinel(Arc::new(listen));
            Line::new(address.clone(), sentinel_access.clone(), role, shared)
        };
        Self {
            sentinels: sentinels.iter().map(sentinel).collect(),
            master,
            access,
            shared: Arc::clone(shared),
            doubts,
            asking: tokio::sync::Mutex::default(),
            known: Mutex::default(),
        }
    }

    pub(super) async fn connect(&self) -> Result<(), Error> {
        self.master().await?.server.connect().await
    }

    pub(super) fn disconnect(&self) {
        self.sentinels.iter().for_each(|sentinel| sentinel.disconnect());
        let known = self.known().take();
        if let Some(known) = known {
            known.master.server.disconnect();
        }
    }

    /// How many replicas the sentinels know of, up or down.
    pub(super) async fn replicas(&self) -> Result<u32, Error> {
        self.master().await?;
        Ok(self.known().as_ref().map_or(0, |known| known.replicas))
    }

    pub(super) async fn ask<A: Ask>(&self, call: &Call, ask: &A) -> Result<A::Answer, Error> {
        let (master, asked_at) = (self.master().await?, Instant::now());
        let answer = ask.server(&master.server, call).await;
        let is_replica =
            |answer: &A::Answer| A::reply(answer).as_ref().is_err_and(ServerError::is_replica);
        self.believe(&master, asked_at, answer, is_replica).await
    }

    pub(super) async fn call_all(
        &self,
        calls: &[Call],
    ) -> Result<Vec<Result<Received, Error>>, Error> {
        let (master, asked_at) = (self.master().await?, Instant::now());
        let replies = master.server.call_all(&calls.iter().collect::<Vec<_>>()).await;
        let is_doubtful = |replies: &Vec<Result<Received, Error>>| {
            replies.iter().any(|reply| match reply {
                Ok(received) => received.as_ref().is_err_and(ServerError::is_replica),
                Err(_error) => true,
            })
        };
        self.believe(&master, asked_at, replies, is_doubtful).await
    }

    /// Believes what a server answered if it is the master still.
    async fn believe<T>(
        &self,
        asked: &Master<C>,
        asked_at: Instant,
        answer: Result<T, Error>,
        is_doubtful: impl FnOnce(&T) -> bool,
    ) -> Result<T, Error> {
        let answer = answer.inspect_err(|_error| self.doubt())?;
        if is_doubtful(&answer) || asked_at.elapsed() >= SLOW {
            self.doubt();
        }
        if self.doubts.count() != asked.doubts {
            let now = self.master().await.map_err(|_unknown| replaced())?;
            let known = now.confirmed || now.doubts.serious == asked.doubts.serious;
            if !known || !Arc::ptr_eq(&now.server, &asked.server) {
                return Err(replaced());
            }
        }
        Ok(answer)
    }

    /// The master gives reason to ask whether it is the master still.
    fn doubt(&self) {
        self.doubts.raise(Hint::Switched);
    }

    /// The master: the sentinels are asked if there is a doubt.
    async fn master(&self) -> Result<Master<C>, Error> {
        self.shared.ensure_open()?;
        if let Some(master) = self.undoubted() {
            return Ok(master);
        }
        let turn = timeout(self.shared.timeout, self.asking.lock()).await;
        let _turn = turn.map_err(|_elapsed| self.unknown())?;
        if let Some(master) = self.undoubted() {
            return Ok(master);
        }
        let doubts = self.doubts.count();
        match self.ask_all().await {
            Ok(info) => Ok(self.adopt(info, doubts)),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                self.last_named(doubts).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    fn undoubted(&self) -> Option<Master<C>> {
        let known = self.known();
        let known = known.as_ref()?;
        let would_tell = known.master.confirmed && self.shared.protocol() == Protocol::Resp3;
        let is_good = would_tell || known.asked_at.elapsed() < GOOD_UNTOLD;
        let undoubted = is_good && known.master.doubts == self.doubts.count();
        undoubted.then(|| known.master.clone())
    }

    fn adopt(&self, info: MasterInfo, doubts: DoubtCount) -> Master<C> {
        let mut known = self.known();
        let before = known.take().map(|known| known.master.server);
        let same = before.as_ref().filter(|server| *server.address() == info.address);
        let server = same.map(Arc::clone).unwrap_or_else(|| {
            Server::new(info.address.clone(), self.access.clone(), Form::TOGETHER, &self.shared)
        });
        let master = Master { server, doubts, confirmed: true };
        let (replicas, asked_at) = (info.replicas, Instant::now());
        *known = Some(Known { master: master.clone(), replicas, asked_at });
        drop(known);
        if let Some(old) = before.filter(|before| !Arc::ptr_eq(before, &master.server)) {
            tracing::info!(master = self.master, address = %info.address, "the sentinels name another server");
            old.disconnect();
            self.shared.news.interrupted();
        }
        master
    }

    /// The last master that the sentinels named, now that none of them answers.
    fn last_named(&self, doubts: DoubtCount) -> Option<Master<C>> {
        let mut known = self.known();
        let known = known.as_mut()?;
        if known.master.confirmed {
            tracing::warn!(
                master = self.master,
                "no sentinel answers: the last server that they named is used"
            );
        }
        (known.master.doubts, known.master.confirmed) = (doubts, false);
        known.asked_at = Instant::now();
        Some(known.master.clone())
    }

    /// What the sentinels say: of a majority, whoever knows of the latest failover; of fewer, if no more answer.
    async fn ask_all(&self) -> Result<MasterInfo, Error> {
        let mut infos: FuturesUnordered<_> =
            self.sentinels.iter().map(|sentinel| self.ask_one(sentinel)).collect();
        let (mut newest, mut count, mut failure) = (None::<MasterInfo>, 0, None);
        while let Some(info) = infos.next().await {
            match info {
                Ok(info) => {
                    count += 1;
                    if newest.as_ref().is_none_or(|newest| info.epoch > newest.epoch) {
                        newest = Some(info);
                    }
                }
                Err(error) => failure = Some(error),
            }
            if count > self.sentinels.len() / 2 {
                break;
            }
        }
        newest.ok_or_else(|| failure.unwrap_or_else(|| self.unknown()))
    }

    async fn ask_one(&self, sentinel: &Arc<Line<C>>) -> Result<MasterInfo, Error> {
        let reply = sentinel.command(&["SENTINEL", "MASTER", &self.master]).await;
        let reply = reply.map_err(|error| only_asked(error, "a sentinel does not answer"))?;
        let reply = reply.map_err(|refusal| {
            if refusal.is_no_such_master() {
                let message = format!("the sentinels watch over nothing named {:?}", self.master);
                Error::new(ErrorKind::Invalid, message)
            } else {
                refusal.into_error()
            }
        })?;
        read_master_info(&reply, sentinel.address()).ok_or_else(|| {
            let message = "what a sentinel says of its master makes no sense";
            Error::new(ErrorKind::Unexpected, message)
        })
    }

    fn unknown(&self) -> Error {
        let message = format!("no sentinel tells which server {:?} is", self.master);
        Error::new(ErrorKind::Unavailable, message)
    }

    fn known(&self) -> MutexGuard<'_, Option<Known<C>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a list of names and values.
fn read_master_info(reply: &Reply, asked: &Address) -> Option<MasterInfo> {
    let Reply::Array(parts) = reply else {
        return None;
    };
    let value = |wanted: &str| {
        parts.chunks(2).find_map(|pair| match pair {
            [Reply::Bytes(name), Reply::Bytes(value)] if name == wanted.as_bytes() => {
                str::from_utf8(value).ok()
            }
            _ => None,
        })
    };
    Some(MasterInfo {
        epoch: value("config-epoch")?.parse().ok()?,
        address: Address::of(value("ip")?, value("port")?.parse().ok()?, asked)?,
        replicas: value("num-slaves").and_then(|count| count.parse().ok()).unwrap_or_default(),
    })
}

impl<C: Client> fmt::Debug for Sentinel<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinel")
            .field("master", &self.master)
            .field("server", &self.known().as_ref().map(|known| Arc::clone(&known.master.server)))
            .finish_non_exhaustive()
    }
}
