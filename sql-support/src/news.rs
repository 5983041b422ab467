//! Reports changes that other clients make to keys, so that waiters and holders read the database
//! again.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::backend::{Claim, KeyWatch, KeyWatches, Patience, Subject, unpoisoned};
use leasehold_entry::Tag;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::reading::Reading;
use crate::request::micros;

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
///   [`local`](Self::local), and [`Backend`](crate::Backend) polls the rows of queued claims.
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
    when_watched: Box<dyn Fn(Concerns) + Send + Sync>,
}

#[derive(Default)]
struct Watched {
    /// The number of watches per key, by [`Concerns`].
    keys: [HashMap<LockKey, usize>; 2],
    /// The claims whose callers wait, by the tags of their leases in the table.
    claims: HashMap<Uuid, Waiting>,
    /// The rows of held keys to which a client has recently added a queue entry, and when this client
    /// was notified. A row outlives its watch, because the watch ends before the release.
    rows: HashMap<LockKey, (Reading, Instant)>,
}

/// A claim whose caller waits.
struct Waiting {
    /// The lease ID of the claim.
    id: String,
    /// Whether the claim is queued and has not been woken since.
    is_queued: bool,
    /// Whether the row may be in the simple state, so that one statement can grant the claim.
    may_be_simple: bool,
    /// Whether a task polls the row of the claim.
    is_polled: bool,
    /// The number of times that the claim was woken. A task that polls the row ends when this number
    /// changes.
    waits: u32,
    /// When the claim is woken in case a waiter ahead of it has crashed.
    check_at: Option<Instant>,
    /// Whether a task waits for this time.
    is_checked: bool,
}

/// The callers that are notified of a change.
///
/// [`News::notify`] and [`News::watched`] take an argument of this type.
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
        Self::with(true, |_| {})
    }

    /// Creates a notification source for a driver that polls. `begin` is called for each new watch,
    /// with the caller that it notifies, and must not block.
    pub fn when_watched(begin: impl Fn(Concerns) + Send + Sync + 'static) -> Self {
        Self::with(true, begin)
    }

    /// Creates a notification source that reports only this client's changes. The rows of queued
    /// claims are polled.
    pub fn local() -> Self {
        Self::with(false, |_| {})
    }

    fn with(hears_others: bool, when_watched: impl Fn(Concerns) + Send + Sync + 'static) -> Self {
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

    /// Returns a watch for an observer, a waiter or a holder.
    pub(crate) fn watch(&self, subject: Subject<'_>) -> KeyWatch {
        let (watches, concerns) = match subject {
            Subject::Claim(claim) => return self.watch_claim(claim),
            Subject::Lease(_) => (&self.0.holders, Concerns::Holders),
            _ => (&self.0.waiters, Concerns::Waiters),
        };
        let attached = self.attach(subject.key(), concerns, None);
        watches.watch(subject.key()).with_attached(attached)
    }

    /// Returns a watch for a claim that may have to wait.
    fn watch_claim(&self, claim: &Claim) -> KeyWatch {
        let watch = self.0.waiters.watch_claim(claim);
        let waits = claim.patience() != Patience::Leaves;
        let tag = waits.then(|| Tag::of(&claim.id()).id);
        if let Some(tag) = tag {
            self.lock().claims.insert(tag, Waiting::new(claim));
        }
        watch.with_attached(self.attach(claim.key(), Concerns::Waiters, tag))
    }

    fn attach(&self, key: &LockKey, concerns: Concerns, claim: Option<Uuid>) -> Attached {
        *self.lock().keys[concerns as usize].entry(key.clone()).or_default() += 1;
        (self.0.when_watched)(concerns);
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

    /// Wakes the claim whose lease has this tag. Does nothing if this client does not have such a
    /// claim.
    pub fn call(&self, tag: &Uuid) {
        self.wake(tag, true);
    }

    /// Wakes a claim. `may_be_simple` is false if further claims are queued.
    pub(crate) fn wake(&self, tag: &Uuid, may_be_simple: bool) {
        let woken = self.lock().claims.get_mut(tag).map(|waiting| {
            (waiting.is_queued, waiting.may_be_simple) = (false, may_be_simple);
            (waiting.is_polled, waiting.waits) = (false, waiting.waits.wrapping_add(1));
            waiting.check_at = None;
            waiting.id.clone()
        });
        if let Some(id) = woken {
            self.0.waiters.notify_claim(&id);
        }
    }

    /// Records that a claim was refused and queued. Returns whether its caller waits for a
    /// notification.
    pub(crate) fn queued(&self, tag: &Uuid) -> bool {
        let mut watched = self.lock();
        let Some(waiting) = watched.claims.get_mut(tag) else { return false };
        (waiting.is_queued, waiting.may_be_simple) = (true, false);
        true
    }

    /// Returns whether one statement may grant the claim, as far as is known.
    pub(crate) fn may_be_simple(&self, tag: &Uuid) -> bool {
        self.lock().claims.get(tag).is_none_or(|waiting| waiting.may_be_simple)
    }

    /// Returns the number of the wait of a queued claim, if its row must be polled and is not being
    /// polled.
    pub(crate) fn begins_to_poll(&self, tag: &Uuid) -> Option<u32> {
        let mut watched = self.lock();
        let waiting = watched.claims.get_mut(tag).filter(|_| !self.hears_others())?;
        (!mem::replace(&mut waiting.is_polled, true)).then_some(waiting.waits)
    }

    /// Returns whether a claim is queued and the wait with this number goes on.
    pub(crate) fn is_queued(&self, tag: &Uuid, wait: u32) -> bool {
        let is_same = |waiting: &Waiting| waiting.is_queued && waiting.waits == wait;
        self.lock().claims.get(tag).is_some_and(is_same)
    }

    /// Wakes a queued claim after `delay`, unless the claim is woken or named in another message
    /// before then.
    fn check_later(&self, tag: Uuid, delay: Duration) {
        let mut watched = self.lock();
        let Some(waiting) = watched.claims.get_mut(&tag) else { return };
        waiting.check_at = Some(Instant::now() + delay);
        if let Ok(runtime) = Handle::try_current()
            && !mem::replace(&mut waiting.is_checked, true)
        {
            runtime.spawn(check(self.clone(), tag));
        }
    }

    /// Returns when a claim is checked next. If there is no such time, the task ends.
    fn next_check(&self, tag: &Uuid) -> Option<Instant> {
        let mut watched = self.lock();
        let waiting = watched.claims.get_mut(tag)?;
        waiting.is_checked = waiting.check_at.is_some();
        waiting.check_at
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
    /// spaces, and by the tags of the next claims in the queue, with a plus sign. The message
    /// `q<key>` contains the row of a key with a new queue entry. Any other message notifies all
    /// watches.
    ///
    /// The callers of the next claims check later whether a woken waiter has crashed.
    pub fn heard(&self, text: &str) {
        if let Some(row) = text.strip_prefix('q') {
            return self.heard_of_row(row);
        }
        let is_last = !text.contains(" +");
        let mut delay = Patience::RESERVATION;
        let mut words = text.split(' ');
        let key = words.next().unwrap_or_default();
        match key.split_at_checked(1) {
            Some(("w", key)) => self.notify(key, Concerns::Waiters),
            Some(("h", key)) => self.notify(key, Concerns::Holders),
            _ => self.interrupted(),
        }
        for tag in words {
            match tag.strip_prefix('+').unwrap_or(tag).parse() {
                Err(_) => self.interrupted(),
                Ok(next) if tag.starts_with('+') => {
                    // Each caller checks after the caller ahead of it, which may have crashed too.
                    self.check_later(next, delay);
                    delay += CHECK_SPACING;
                }
                Ok(woken) => self.wake(&woken, is_last),
            }
        }
    }

    /// Remembers the row of a key that this client holds.
    fn heard_of_row(&self, text: &str) {
        let key = text.split(' ').next().unwrap_or_default();
        let mut watched = self.lock();
        let held = &watched.keys[Concerns::Holders as usize];
        let Some((key, _)) = held.get_key_value(key) else { return };
        let (key, row) = (key.clone(), Reading::told(text));
        if watched.rows.len() >= MAX_ROWS {
            watched.rows.retain(|_, (_, told_at)| told_at.elapsed() < ROW_AGE);
        }
        if let Some(row) = row.filter(|_| watched.rows.len() < MAX_ROWS) {
            watched.rows.insert(key, (row, Instant::now()));
        }
    }

    /// Returns the row of a key that this client holds, with the current time, if another client has
    /// added a queue entry recently. Returns each row once, because its holder is about to change it.
    ///
    /// The returned time is behind the database's clock by the time that the message took, so the
    /// holder's lease and the queue entries seem to end later. This is safe, because the row is replaced
    /// only if it has not changed.
    pub(crate) fn known_row(&self, key: &LockKey) -> Option<Reading> {
        let (mut row, told_at) = self.lock().rows.remove(key)?;
        let age = told_at.elapsed();
        row.now = row.now.saturating_add(micros(age));
        (age < ROW_AGE).then_some(row)
    }

    /// Forgets the row of a key that this client has changed.
    pub(crate) fn forget_row(&self, key: &LockKey) {
        self.lock().rows.remove(key);
    }

    /// Returns whether another client has added a queue entry to a key that this client holds.
    pub(crate) fn knows_row(&self, key: &LockKey) -> bool {
        self.lock().rows.contains_key(key)
    }

    /// Notifies all watches, because notifications may have been missed.
    pub fn interrupted(&self) {
        self.0.waiters.notify_all();
        self.0.holders.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        // The maps are consistent after every statement, so a panic cannot corrupt them.
        unpoisoned(&self.0.watched)
    }
}

impl Waiting {
    fn new(claim: &Claim) -> Self {
        let id = claim.id().secret();
        Self {
            id,
            is_queued: false,
            may_be_simple: true,
            is_polled: false,
            waits: 0,
            check_at: None,
            is_checked: false,
        }
    }
}

/// Wakes a queued claim at the time of its check, which later messages postpone.
async fn check(news: News, tag: Uuid) {
    while let Some(check_at) = news.next_check(&tag) {
        if check_at <= Instant::now() {
            news.wake(&tag, false);
        } else {
            sleep_until(check_at).await;
        }
    }
}

/// How long a row is used after its holder was notified. A waiter refreshes its queue entry soon
/// afterwards, which changes the row.
const ROW_AGE: Duration = Duration::from_millis(1_500);

/// The maximum number of rows that are remembered at the same time.
const MAX_ROWS: usize = 1_024;

/// How much later each of the next claims in a queue checks than the claim ahead of it. This time is
/// enough for a few round trips to a nearby server.
const CHECK_SPACING: Duration = Duration::from_millis(10);

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

    use leasehold_core::backend::Lease;

    use super::*;

    fn claim() -> Claim {
        let key = LockKey::new("k").unwrap();
        Claim::new(Lease::new(&key, Duration::from_secs(1))).with_patience(Patience::Waits)
    }

    fn is_ready(watch: &mut KeyWatch) -> bool {
        watch.poll_changed(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_claim_is_woken_by_the_tag_of_its_lease() {
        let (news, claim) = (News::new(), claim());
        let mut watch = news.watch(Subject::Claim(&claim));
        let tag = Tag::of(&claim.id()).id;

        news.call(&Uuid::nil());
        assert!(!is_ready(&mut watch));
        news.call(&tag);
        assert!(is_ready(&mut watch));
    }

    #[test]
    fn waiters_and_holders_are_notified_separately() {
        let (news, claim) = (News::new(), claim());
        let mut waiter = news.watch(Subject::Key(claim.key()));
        let mut holder = news.watch(Subject::Lease(claim.lease()));

        news.heard("wk");
        assert!(is_ready(&mut waiter) && !is_ready(&mut holder));
        news.heard("hk");
        assert!(!is_ready(&mut waiter) && is_ready(&mut holder));
    }

    #[test]
    fn a_message_with_tags_of_other_clients_wakes_own_claims() {
        let (news, claim) = (News::new(), claim());
        let mut watch = news.watch(Subject::Claim(&claim));
        let tag = Tag::of(&claim.id()).id;

        news.heard(&format!("wother {} {tag}", Uuid::nil()));

        assert!(is_ready(&mut watch));
    }

    #[test]
    fn an_invalid_message_notifies_all_watches() {
        for text in ["", "x", "é", "k", "wother tag"] {
            let (news, claim) = (News::new(), claim());
            let mut watch = news.watch(Subject::Key(claim.key()));
            news.heard(text);
            assert!(is_ready(&mut watch), "{text:?}");
        }
    }

    #[test]
    fn dropped_watches_leave_no_entries() {
        let (news, claim) = (News::new(), claim());
        let watches = (news.watch(Subject::Claim(&claim)), news.watch(Subject::Key(claim.key())));
        assert_eq!(news.watched(Concerns::Waiters), [claim.key().clone()]);
        assert!(!news.has_watches(Concerns::Holders));

        drop(watches);

        assert!(!news.has_watches(Concerns::Waiters));
        assert!(news.lock().claims.is_empty());
    }
}
