//! Changes of a key by other clients: a hint to look again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::LockKey;
use leasehold_core::backend::{CalledBy, Claim, KeyWatch, KeyWatches, Lease, Patience};
use uuid::Uuid;

use crate::request::Named;

/// Passes on the changes of keys to the watchers in this client.
///
/// [`Backend`](crate::Backend) passes on the changes of this client itself. There are three ways for the changes of others:
///
/// - The database *tells* a connection that listens (`LISTEN` and `NOTIFY`): the transaction sends the text that [`heard`](Self::heard)
///   reads, the driver passes it on, and calls [`interrupted`](Self::interrupted) when the connection was lost.
/// - The driver *looks* (SQLite, `data_version`): at the keys that are [watched](Self::watched), as long as there are any, of which
///   [`when_watched`](Self::when_watched) tells. It then [calls](Self::call) or [notifies](Self::notify).
/// - *Neither* (MySQL): a [`local`](Self::local) one. Callers poll.
///
/// Clones share the watches.
#[derive(Clone)]
pub struct News(Arc<Inner>);

struct Inner {
    hears_others: bool,
    waiters: KeyWatches,
    holders: KeyWatches,
    watched: Mutex<Watched>,
    when_watched: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Watched {
    /// How many watches each key has, by [`Concerns`].
    keys: [HashMap<LockKey, usize>; 2],
    /// The ids of claims whose callers wait, by their tags in the table.
    claims: HashMap<Uuid, String>,
}

/// The callers that hear of a change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Concerns {
    /// Waiters and observers of the key: units came free, or other leases are in force.
    Waiters,
    /// Holders: they are asked to finish, or their leases were ended by force.
    Holders,
}

impl News {
    /// Creates news that the driver passes on from other clients: claims in the queue wait to be [called](Self::call).
    pub fn new() -> Self {
        Self::with(true, || {})
    }

    /// The same for a driver that looks by itself: `begin` is called at each new watch, and must not block.
    pub fn when_watched(begin: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(true, begin)
    }

    /// Creates news of this client alone: claims in the queue poll.
    pub fn local() -> Self {
        Self::with(false, || {})
    }

    fn with(hears_others: bool, when_watched: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            hears_others,
            waiters: KeyWatches::default(),
            holders: KeyWatches::default(),
            watched: Mutex::default(),
            when_watched: Box::new(when_watched),
        }))
    }

    /// Whether it hears of the changes of other clients.
    pub fn hears_others(&self) -> bool {
        self.0.hears_others
    }

    /// How a claim in the queue hears that it is to be asked for again.
    pub(crate) fn called_by(&self) -> Option<CalledBy> {
        self.hears_others().then_some(CalledBy::Name)
    }

    /// For a waiter, or an observer.
    pub(crate) fn watch(&self, key: &LockKey) -> KeyWatch {
        let attached = self.attach(key, Concerns::Waiters, None);
        self.0.waiters.watch(key).with_attached(attached)
    }

    /// For a claim that may wait.
    pub(crate) fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        let watch = self.0.waiters.watch_claim(claim);
        let waits = claim.patience() != Patience::Leaves;
        let tag = waits.then(|| Named::of(claim.lease()).tag);
        if let Some(tag) = tag {
            self.lock().claims.insert(tag, claim.id().secret());
        }
        watch.with_attached(self.attach(claim.key(), Concerns::Waiters, tag))
    }

    /// For a holder.
    pub(crate) fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        let attached = self.attach(lease.key(), Concerns::Holders, None);
        self.0.holders.watch(lease.key()).with_attached(attached)
    }

    fn attach(&self, key: &LockKey, concerns: Concerns, claim: Option<Uuid>) -> Attached {
        *self.lock().keys[concerns as usize].entry(key.clone()).or_default() += 1;
        (self.0.when_watched)();
        Attached { news: self.clone(), key: key.clone(), concerns, claim }
    }

    /// The keys that are watched on behalf of those concerned.
    pub fn watched(&self, concerns: Concerns) -> Vec<LockKey> {
        self.lock().keys[concerns as usize].keys().cloned().collect()
    }

    /// Whether any key is watched on behalf of those concerned.
    pub fn has_watches(&self, concerns: Concerns) -> bool {
        !self.lock().keys[concerns as usize].is_empty()
    }

    /// Whether this key is watched on behalf of those concerned.
    pub fn is_watched(&self, key: &LockKey, concerns: Concerns) -> bool {
        self.lock().keys[concerns as usize].contains_key(key)
    }

    /// Passes on that the claim whose lease has this tag is to be asked for again. Nothing happens if it does not wait here.
    pub fn call(&self, tag: &Uuid) {
        let id = self.lock().claims.get(tag).cloned();
        if let Some(id) = id {
            self.0.waiters.call(&id);
        }
    }

    /// Passes on that the key with this encoded name has changed.
    pub fn notify(&self, key: &str, concerns: Concerns) {
        match concerns {
            Concerns::Waiters => self.0.waiters.notify(key),
            Concerns::Holders => self.0.holders.notify(key),
        }
    }

    /// Passes on the notification of another client's transaction: `w<key>` or `h<key>`, for [waiters](Concerns::Waiters) or
    /// [holders](Concerns::Holders) of the key with this encoded name, and then, each after a blank, the tags of the called claims. Any
    /// other text makes all of them look.
    pub fn heard(&self, text: &str) {
        let mut words = text.split(' ');
        let key = words.next().unwrap_or_default();
        match key.split_at_checked(1) {
            Some(("w", key)) => self.notify(key, Concerns::Waiters),
            Some(("h", key)) => self.notify(key, Concerns::Holders),
            _ => self.interrupted(),
        }
        for tag in words {
            match tag.parse() {
                Ok(tag) => self.call(&tag),
                Err(_) => self.interrupted(),
            }
        }
    }

    /// News may have been missed: all look.
    pub fn interrupted(&self) {
        self.0.waiters.notify_all();
        self.0.holders.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        // Its maps are as they should be between any two statements.
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for News {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News")
            .field("hears_others", &self.0.hears_others)
            .field("watched_keys", &self.lock().keys.each_ref().map(HashMap::len))
            .finish_non_exhaustive()
    }
}

/// Lives as long as a watch.
struct Attached {
    news: News,
    key: LockKey,
    concerns: Concerns,
    claim: Option<Uuid>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut watched = self.news.lock();
        if let Some(tag) = &self.claim {
            watched.claims.remove(tag);
        }
        let keys = &mut watched.keys[self.concerns as usize];
        let count = keys.get_mut(&self.key).expect("a key is kept as long as its watches");
        *count -= 1;
        if *count == 0 {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;

    fn claim() -> Claim {
        let key = LockKey::new("k").unwrap();
        Claim::new(Lease::new(&key, Duration::from_secs(1))).with_patience(Patience::Waits)
    }

    fn is_ready(watch: &mut KeyWatch) -> bool {
        watch.poll_changed(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_claim_is_called_by_the_tag_of_its_lease() {
        let (news, claim) = (News::new(), claim());
        let mut watch = news.watch_claim(&claim);
        let tag = Named::of(claim.lease()).tag;

        news.call(&Uuid::nil());
        assert!(!is_ready(&mut watch));
        news.call(&tag);
        assert!(is_ready(&mut watch));
    }

    #[test]
    fn waiters_and_holders_hear_their_own_news() {
        let (news, claim) = (News::new(), claim());
        let mut waiter = news.watch(claim.key());
        let mut holder = news.watch_lease(claim.lease());

        news.heard("wk");
        assert!(is_ready(&mut waiter) && !is_ready(&mut holder));
        news.heard("hk");
        assert!(!is_ready(&mut waiter) && is_ready(&mut holder));
    }

    #[test]
    fn a_text_may_call_claims_of_other_clients_too() {
        let (news, claim) = (News::new(), claim());
        let mut watch = news.watch_claim(&claim);
        let tag = Named::of(claim.lease()).tag;

        news.heard(&format!("wother {} {tag}", Uuid::nil()));

        assert!(is_ready(&mut watch));
    }

    #[test]
    fn all_look_after_a_text_that_makes_no_sense() {
        for text in ["", "x", "é", "k", "wother tag"] {
            let (news, claim) = (News::new(), claim());
            let mut watch = news.watch(claim.key());
            news.heard(text);
            assert!(is_ready(&mut watch), "{text:?}");
        }
    }

    #[test]
    fn nothing_is_kept_for_watches_that_ended() {
        let (news, claim) = (News::new(), claim());
        let watches = (news.watch_claim(&claim), news.watch(claim.key()));
        assert_eq!(news.watched(Concerns::Waiters), [claim.key().clone()]);
        assert!(!news.has_watches(Concerns::Holders));

        drop(watches);

        assert!(!news.has_watches(Concerns::Waiters));
        assert!(news.lock().claims.is_empty());
    }
}
