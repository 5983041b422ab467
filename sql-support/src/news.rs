//! Reports changes that other clients make to keys, so that waiters and holders read the database
//! again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::LockKey;
use leasehold_core::backend::{CalledBy, Claim, KeyWatch, KeyWatches, Lease, Patience};
use uuid::Uuid;

use crate::request::Named;

/// Notifies watches of this client when keys change.
///
/// [`Backend`](crate::Backend) reports the changes that this client makes. There are three ways to
/// detect changes by other clients:
///
/// - The database *notifies* a connection (`LISTEN` and `NOTIFY`). Each transaction sends a message
///   that [`heard`](Self::heard) reads. The driver forwards the messages, and calls
///   [`interrupted`](Self::interrupted) when the connection is lost.
/// - The driver *polls* the [watched](Self::watched) keys (SQLite, `data_version`). The callback of
///   [`when_watched`](Self::when_watched) starts the polling. The driver reports changes with
///   [`call`](Self::call) or [`notify`](Self::notify).
/// - *Neither* method is available (MySQL). The driver creates its notification source with
///   [`local`](Self::local), so waiting callers poll.
///
/// Clones share the watches.
///
/// ```
/// use leasehold_sql_support::News;
///
/// assert!(News::new().hears_others());
/// assert!(!News::local().hears_others());
/// ```
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
    /// The number of watches per key, by [`Concerns`].
    keys: [HashMap<LockKey, usize>; 2],
    /// The lease IDs of claims whose callers wait, by the leases' tags in the table.
    claims: HashMap<Uuid, String>,
}

/// The callers that are notified of a change.
///
/// [`News::notify`] and [`News::is_watched`] take an argument of this type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Concerns {
    /// Waiters and observers of the key. Permits were returned, or different leases are in force.
    Waiters,
    /// Holders. Either their revocation was requested, or their leases were revoked.
    Holders,
}

impl News {
    /// Creates a notification source for a driver that forwards other clients' changes. Queued
    /// claims wait until they are [woken](Self::call).
    pub fn new() -> Self {
        Self::with(true, || {})
    }

    /// Creates a notification source for a driver that polls. `begin` is called for each new watch
    /// and must not block.
    pub fn when_watched(begin: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(true, begin)
    }

    /// Creates a notification source that reports only this client's changes. Queued claims poll.
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

    /// Returns whether other clients' changes are reported.
    pub fn hears_others(&self) -> bool {
        self.0.hears_others
    }

    /// Returns how the caller of a queued claim is notified that the claim should be sent again.
    pub(crate) fn called_by(&self) -> Option<CalledBy> {
        self.hears_others().then_some(CalledBy::Name)
    }

    /// Returns a watch for a waiter or an observer.
    pub(crate) fn watch(&self, key: &LockKey) -> KeyWatch {
        let attached = self.attach(key, Concerns::Waiters, None);
        self.0.waiters.watch(key).with_attached(attached)
    }

    /// Returns a watch for a claim that may have to wait.
    pub(crate) fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        let watch = self.0.waiters.watch_claim(claim);
        let waits = claim.patience() != Patience::Leaves;
        let tag = waits.then(|| Named::of(claim.lease()).tag);
        if let Some(tag) = tag {
            self.lock().claims.insert(tag, claim.id().secret());
        }
        watch.with_attached(self.attach(claim.key(), Concerns::Waiters, tag))
    }

    /// Returns a watch for a holder.
    pub(crate) fn watch_lease(&self, lease: &Lease) -> KeyWatch {
        let attached = self.attach(lease.key(), Concerns::Holders, None);
        self.0.holders.watch(lease.key()).with_attached(attached)
    }

    fn attach(&self, key: &LockKey, concerns: Concerns, claim: Option<Uuid>) -> Attached {
        *self.lock().keys[concerns as usize].entry(key.clone()).or_default() += 1;
        (self.0.when_watched)();
        Attached { news: self.clone(), key: key.clone(), concerns, claim }
    }

    /// Returns the keys that are watched for these callers.
    pub fn watched(&self, concerns: Concerns) -> Vec<LockKey> {
        self.lock().keys[concerns as usize].keys().cloned().collect()
    }

    /// Returns whether any key is watched for these callers.
    pub fn has_watches(&self, concerns: Concerns) -> bool {
        !self.lock().keys[concerns as usize].is_empty()
    }

    /// Returns whether this key is watched for these callers.
    pub fn is_watched(&self, key: &LockKey, concerns: Concerns) -> bool {
        self.lock().keys[concerns as usize].contains_key(key)
    }

    /// Wakes the claim whose lease has this tag. Does nothing if this client does not have such a
    /// claim.
    pub fn call(&self, tag: &Uuid) {
        let id = self.lock().claims.get(tag).cloned();
        if let Some(id) = id {
            self.0.waiters.call(&id);
        }
    }

    /// Reports that the key with this encoded name has changed.
    pub fn notify(&self, key: &str, concerns: Concerns) {
        match concerns {
            Concerns::Waiters => self.0.waiters.notify(key),
            Concerns::Holders => self.0.holders.notify(key),
        }
    }

    /// Handles a message from another client's transaction. The message is `w<key>` for
    /// [waiters](Concerns::Waiters) and `h<key>` for [holders](Concerns::Holders), where `<key>` is
    /// the encoded name of the key. The name is followed by the tags of woken claims, separated by
    /// spaces. Any other message notifies all watches.
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

    /// Notifies all watches, because notifications may have been missed.
    pub fn interrupted(&self) {
        self.0.waiters.notify_all();
        self.0.holders.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        // The maps are consistent after every statement, so a panic cannot corrupt them.
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

/// Unregisters a watch when this value is dropped.
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
