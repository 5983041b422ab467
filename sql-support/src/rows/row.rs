//! The row of a key, and the entry that it contains.

use leasehold_core::backend::entry::{Entry, Holding, StoreTime as _, Tokens};
use leasehold_core::backend::{Claim, Mode, Vote};
use leasehold_core::{Description, Error, ErrorKind, LockKey};
use leasehold_entry::{Document, Tag};
use uuid::Uuid;

use crate::request::{token, token_at};

/// The row of a key. The documentation of [`rows`](crate::rows) describes the columns.
///
/// ```
/// use leasehold_core::LockKey;
/// use leasehold_sql_support::rows::{Clock, Row, State};
///
/// let released = Row { token: 7, ends: -1_000_000, ..Row::default() };
/// let clock = Clock { now: 2_000_000, wall: 2_000_000 };
/// let state = State::new(LockKey::new("job")?, Some(released), 0, clock);
/// assert_eq!(state.written(), None);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Row {
    /// The last token of the key.
    pub token: i64,
    /// In the simple state: by how much the fencing token of the lease is less than `token`.
    pub spare: i64,
    /// The lease that has the whole key alone.
    pub tag: Option<Uuid>,
    /// The time from which on neither leases nor queue entries of the row are in force.
    pub ends: i64,
    /// When that lease was granted.
    pub since: Option<i64>,
    /// The fingerprint of that lease.
    pub fingerprint: Option<String>,
    /// The description of that lease.
    pub description: Option<String>,
    /// The document of a row that is not in the simple state.
    pub document: Option<String>,
}

/// The clocks of a database at one point in time, in microseconds. A database server has only one
/// clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Clock {
    /// The time by which leases expire.
    pub now: i64,
    /// The time since 1970, from which tokens are derived.
    pub wall: i64,
}

/// The state of a key, which a step of [`Database::change`](crate::rows::Database::change) changes.
///
/// See [`Row`] for an example.
#[derive(Debug)]
pub struct State {
    key: LockKey,
    row: Option<Row>,
    min_token: i64,
    document: Document,
    /// The entry as read, without expired leases and queue entries.
    before: Entry<Tag, i64>,
    /// Why the document cannot be read.
    unreadable: Option<Error>,
    /// The lease to which a step has handed over the key. Only a key without holders is handed over, so
    /// an earlier lease is no longer in force.
    handed_over: Option<Uuid>,
    notices: Notices,
}

/// The callers to notify of a change, in addition to the claims that can be granted.
///
/// See [`State::notices`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Notices {
    /// All waiters and observers of the key.
    pub waiters: bool,
    /// All holders of the key.
    pub holders: bool,
}

impl Clock {
    /// Returns the token of the time of day, or the requested minimum token if it is larger and not
    /// ahead of the clock by more than [`Vote::MAX_AHEAD`].
    pub fn token(self, requested: i64) -> i64 {
        let is_near = requested <= token_at(self.wall.after(Vote::MAX_AHEAD));
        token_at(self.wall).max(if is_near { requested } else { 0 })
    }
}

impl Row {
    /// Returns the leases and queue entries that are in force at the time `now`.
    fn document_at(&self, now: i64) -> Result<Document, Error> {
        let last_token = self.token.try_into().unwrap_or_default();
        if self.ends <= now {
            return Ok(Entry { last_token, ..Entry::default() }.into());
        }
        match &self.document {
            Some(text) => {
                let mut document = Document::parse(text, last_token)?;
                document.entry.expire(now);
                Ok(document)
            }
            None => {
                let holders = vec![self.holding().ok_or_else(unreadable)?];
                Ok(Entry { holders, last_token, ..Entry::default() }.into())
            }
        }
    }

    /// Returns the lease of a row in the simple state.
    fn holding(&self) -> Option<Holding<Tag, i64>> {
        let fingerprint = self.fingerprint.as_ref()?.parse().ok()?;
        let description = self.description.as_deref();
        Some(Holding {
            name: Tag { id: self.tag?, fingerprint },
            mode: Mode::Exclusive,
            description: description.and_then(|text| Description::new(text).ok()),
            token: self.token.saturating_sub(self.spare).try_into().ok()?,
            granted_at: self.since,
            ends: self.ends,
            is_asked: false,
        })
    }

    /// Returns the row that contains `document`, with the last token `last_token`.
    fn of(document: &Document, last_token: i64, before: Option<&Self>) -> Self {
        let Some(ends) = document.entry.ends() else {
            let former = before.map_or(0, |row| row.ends.saturating_abs());
            return Self { token: last_token, ends: -former, ..Self::default() };
        };
        let Some(holding) = simple(document) else {
            let document = Some(document.to_text());
            return Self { token: last_token, ends, document, ..Self::default() };
        };
        Self {
            token: last_token,
            spare: last_token.saturating_sub(token(holding.token)),
            tag: Some(holding.name.id),
            ends,
            since: holding.granted_at,
            fingerprint: Some(holding.name.fingerprint.to_string()),
            description: holding.description.as_ref().map(ToString::to_string),
            document: None,
        }
    }
}

/// Returns the only lease of a document in the simple state.
fn simple(document: &Document) -> Option<&Holding<Tag, i64>> {
    let Entry { holders, queue, asked_until, last_token: _ } = &document.entry;
    match &holders[..] {
        [one] if one.mode.is_mutex() && !one.is_asked => {
            let is_simple =
                queue.is_empty() && asked_until.is_none() && !document.has_unknown_fields();
            is_simple.then_some(one)
        }
        _ => None,
    }
}

impl State {
    /// Creates the state of a key from its row, if there is one. `min_token` is the minimum token
    /// of the tables.
    pub fn new(key: LockKey, row: Option<Row>, min_token: i64, clock: Clock) -> Self {
        let read =
            row.as_ref().map_or_else(|| Ok(Document::default()), |row| row.document_at(clock.now));
        let (document, unreadable) = match read {
            Ok(document) => (document, None),
            Err(error) => (Document::default(), Some(error.with_key(&key))),
        };
        let before = document.entry.clone();
        let (handed_over, notices) = (None, Notices::default());
        Self { key, row, min_token, document, before, unreadable, handed_over, notices }
    }

    /// Returns the key.
    pub fn key(&self) -> &LockKey {
        &self.key
    }

    /// Returns whether this lease is the only holder, and has the whole key.
    pub(crate) fn is_held_by(&self, tag: &Uuid) -> bool {
        let holders = &self.document.entry.holders[..];
        matches!(holders, [one] if one.mode.is_mutex() && one.name.id == *tag)
    }

    /// Returns the row as it was read, which has the version that a swap compares.
    pub fn row(&self) -> Option<&Row> {
        self.row.as_ref()
    }

    /// Returns the entry, without expired leases and queue entries.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::WrongType`] if this version cannot read the row.
    pub fn entry(&mut self) -> Result<&mut Entry<Tag, i64>, Error> {
        match &self.unreadable {
            Some(error) => Err(error.repeated()),
            None => Ok(&mut self.document.entry),
        }
    }

    /// Replaces a row that this version cannot read by a free row. Returns whether there was such a
    /// row.
    pub(crate) fn overwrite(&mut self, tokens: Tokens) -> bool {
        let is_unreadable = self.unreadable.take().is_some();
        if is_unreadable {
            let last = self.row.as_ref().map_or(0, |row| row.token.try_into().unwrap_or_default());
            let last_token = (tokens.above.max(last) + 1).max(tokens.at_least);
            self.document = Entry { last_token, ..Entry::default() }.into();
        }
        is_unreadable
    }

    /// Returns the limits for the next token. The largest token of a grant is the time of day or
    /// the requested minimum token, unless earlier tokens are larger.
    pub fn tokens(&self, requested: i64, clock: Clock) -> Tokens {
        Tokens {
            above: self.min_token.try_into().unwrap_or_default(),
            at_least: clock.token(requested).try_into().unwrap_or_default(),
        }
    }

    /// Grants a key that the step has freed to the first queued claim, so that no other claim can be
    /// granted before the waiter is notified.
    pub(crate) fn hand_over(&mut self, clock: Clock) {
        let tokens = self.tokens(0, clock);
        let name = self.document.entry.hand_over(tokens, clock.now);
        self.notices.waiters |= name.is_some();
        self.handed_over = name.map(|name| name.id).or(self.handed_over);
    }

    /// Returns the claim as the entry can grant or queue it.
    pub(crate) fn limited(&self, name: &Tag, claim: &Claim, tokens: Tokens) -> Claim {
        self.document.limited(name, claim, tokens)
    }

    /// Returns the row to write, or `None` if the step has not changed the entry. The row has a
    /// larger token than the row that was read.
    pub fn written(&self) -> Option<Row> {
        let entry = &self.document.entry;
        if *entry == self.before {
            return None;
        }
        let last = self.row.as_ref().map_or(0, |row| row.token).max(self.min_token);
        let chosen = token(entry.last_token);
        // A token of the current time would leave no spare tokens for the next grant.
        let next = if chosen > last { chosen } else { last.saturating_add(1) };
        Some(Row::of(&self.document, next, self.row.as_ref()))
    }

    /// Returns the tags of the claims whose callers must repeat them. The first one is the claim to which
    /// a step has handed over the key, if there is one. The others are the queued claims that can be granted now.
    pub fn woken(&self) -> Vec<Uuid> {
        let grantable = self.document.entry.grantable().map(|name| name.id);
        self.handed_over.into_iter().chain(grantable).collect()
    }

    /// Returns the tags of the first queued claims that cannot be granted yet.
    pub(crate) fn next_in_queue(&self) -> impl Iterator<Item = Uuid> {
        let entry = &self.document.entry;
        let queue = entry.queue.iter().skip(entry.grantable().count());
        queue.take(MAX_NEXT).map(|waiter| waiter.name.id)
    }

    /// Returns how many queued claims are ahead of a claim that cannot be granted now. Returns `None`
    /// for any other claim, whose caller must repeat it.
    pub(crate) fn ahead_of(&self, tag: &Uuid) -> Option<usize> {
        let entry = &self.document.entry;
        let ahead = entry.queue.iter().position(|waiter| waiter.name.id == *tag)?;
        (self.unreadable.is_none() && ahead >= entry.grantable().count()).then_some(ahead)
    }

    /// Returns whether the row contained a document in force before the step or needs one after it. The
    /// next release then probably finds a document, too.
    pub(crate) fn was_contended(&self) -> bool {
        let had_document = self.row.as_ref().is_some_and(|row| row.document.is_some());
        had_document && !self.before.is_empty() || self.needs_document()
    }

    /// Returns whether the columns cannot contain the state, so that a statement for the simple state
    /// has no effect.
    pub(crate) fn needs_document(&self) -> bool {
        !self.document.entry.is_empty() && simple(&self.document).is_none()
    }

    /// Returns the tags of the queue entries that the step has added.
    pub fn queued(&self) -> Vec<Uuid> {
        let is_new = |name: &Tag| !self.before.queue.iter().any(|waiter| waiter.name == *name);
        let names = self.document.entry.queue.iter().map(|waiter| waiter.name);
        names.filter(is_new).map(|name| name.id).collect()
    }

    /// Returns the number of the socket that wakes the process of a queue entry.
    pub fn socket(&self, tag: &Uuid) -> Option<u32> {
        self.document.socket(tag)
    }

    /// Returns the numbers of the sockets of all queue entries.
    pub fn sockets(&self) -> Vec<u32> {
        let queue = &self.document.entry.queue;
        queue.iter().filter_map(|waiter| self.socket(&waiter.name.id)).collect()
    }

    /// Sets the number of the socket that wakes the process of a queue entry that the step has
    /// added.
    pub fn set_socket(&mut self, tag: Uuid, socket: u32) {
        self.document.set_socket(tag, socket);
    }

    /// Returns the callers to notify once the row is written. A database that can notify other
    /// clients does so in the same transaction.
    pub fn notices(&self) -> Notices {
        self.notices
    }

    /// Returns the messages to other clients, which
    /// [`News::heard`](crate::News::heard) reads. A message has space for only a few tags. If there
    /// are more tags, an empty message makes all waiters read their rows.
    pub(crate) fn messages(&self) -> Vec<String> {
        let mut messages = Vec::new();
        if self.notices.waiters {
            let woken = self.woken();
            let mut message = format!("w{}", self.key.as_str());
            let next = self.next_in_queue().filter(|_| !woken.is_empty());
            woken.iter().for_each(|tag| message.push_str(&format!(" {tag}")));
            next.for_each(|tag| message.push_str(&format!(" +{tag}")));
            messages.push(if woken.len() > MAX_WOKEN { String::new() } else { message });
        }
        if self.notices.holders {
            messages.push(format!("h{}", self.key.as_str()));
        }
        messages
    }

    /// Returns the message that notifies the only holder of the key of new queue entries. The message
    /// contains the `written` row, so that the holder does not have to read it before the release.
    pub(crate) fn message_to_holder(
        &self,
        written: &Row,
        generation: i64,
        clock: Clock,
    ) -> Option<String> {
        let Entry { holders, queue, .. } = &self.document.entry;
        let is_told = matches!(&holders[..], [one] if one.mode.is_mutex());
        let is_short = queue.len() <= MAX_TOLD && !self.queued().is_empty();
        let document = written.document.as_ref().filter(|_| is_told && is_short)?;
        let (Row { token, ends, .. }, key, Clock { now, .. }) = (written, &self.key, clock);
        let message = format!("q{} {generation} {token} {ends} {now} {document}", key.as_str());
        (message.len() <= MAX_MESSAGE).then_some(message)
    }

    pub(crate) fn notify_waiters(&mut self, is_news: bool) {
        self.notices.waiters |= is_news;
    }

    pub(crate) fn notify_holders(&mut self, is_news: bool) {
        self.notices.holders |= is_news;
    }
}

/// The maximum number of woken claims in a message, which has a limited length.
const MAX_WOKEN: usize = 64;

/// The maximum number of claims in a message that check later whether the woken claims were granted.
/// If as many processes crash at the same time, other waiters notice when they refresh their queue
/// entries.
const MAX_NEXT: usize = 8;

/// The maximum number of queue entries in a message to the holder. Each new entry of a longer queue
/// would send a long message to all clients.
const MAX_TOLD: usize = 16;

/// The maximum length of a message to the holder in bytes. PostgreSQL's limit is 7,999 bytes.
const MAX_MESSAGE: usize = 7_000;

fn unreadable() -> Error {
    let message = "the row of the key is not valid; force the release of the key to replace it";
    Error::new(ErrorKind::WrongType, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::backend::{Attempt, Lease, Patience, Release};

    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const PERMITS: Mode = Mode::Units { units: 1, limit: 2 };

    fn at(now: i64) -> Clock {
        Clock { now, wall: now }
    }

    fn state(row: Option<Row>, now: i64) -> State {
        State::new(LockKey::new("job").unwrap(), row, 0, at(now))
    }

    fn claim(mode: Mode) -> Claim {
        let lease = Lease::new(&LockKey::new("job").unwrap(), TTL).with_mode(mode);
        Claim::new(lease.with_description(Some(Description::new("web-1").unwrap())))
    }

    fn name(claim: &Claim) -> Tag {
        Tag::of(&claim.id())
    }

    /// Applies a claim to a row. Returns the token, if the claim was granted, and the new row.
    fn acquire(row: Option<Row>, claim: &Claim, now: i64) -> (Option<u64>, Option<Row>) {
        let mut state = state(row, now);
        let tokens = state.tokens(0, at(now));
        let claim = state.limited(&name(claim), claim, tokens);
        let attempt = state.entry().unwrap().acquire(name(&claim), &claim, tokens, now).unwrap();
        let token = match attempt.reply {
            Attempt::Granted(grant) => Some(grant.token()),
            Attempt::Held(_) => None,
        };
        (token, state.written())
    }

    fn release(row: Row, claim: &Claim, now: i64) -> Row {
        let mut state = state(Some(row), now);
        let released = state.entry().unwrap().release(&name(claim), now);
        assert_eq!(released.reply, Release::Released);
        state.written().unwrap()
    }

    #[test]
    fn a_lease_of_the_whole_key_is_in_the_columns() {
        let claim = claim(Mode::Exclusive).with_spare_tokens(5);

        let (token, row) = acquire(None, &claim, 1_000_000);

        let row = row.unwrap();
        assert_eq!((row.token, row.spare, token), (2_000_000, 5, Some(1_999_995)));
        assert_eq!((row.ends, row.since), (11_000_000, Some(1_000_000)));
        assert_eq!((row.tag, row.description.as_deref()), (Some(name(&claim).id), Some("web-1")));
        assert_eq!(row.document, None);
        let mut read = state(Some(row.clone()), 1_000_000);
        let holding = &read.entry().unwrap().holders[0];
        assert_eq!((holding.name, holding.token), (name(&claim), 1_999_995));
        assert_eq!(read.written(), None);

        let released = release(row, &claim, 2_000_000);
        assert_eq!((released.ends, released.tag, released.document), (-11_000_000, None, None));
        assert!(released.token > 2_000_000);
    }

    #[test]
    fn permits_are_in_a_document() {
        let (one, other) = (claim(PERMITS), claim(PERMITS));

        let (_, row) = acquire(None, &one, 1);
        let (second, row) = acquire(row, &other, 2);

        let row = row.unwrap();
        assert!(second.is_some() && row.tag.is_none() && row.document.is_some());
        assert_eq!((row.ends, row.token), (10_000_002, 4));
        let row = release(row, &one, 3);
        assert!(row.document.is_some());
    }

    #[test]
    fn the_last_holder_returns_to_the_columns_and_keeps_its_token() {
        let holder = claim(Mode::Exclusive);
        let waiter = claim(Mode::Exclusive).with_patience(Patience::Waits);
        let (token, row) = acquire(None, &holder, 1);

        let (refused, row) = acquire(row, &waiter, 2);

        let row = row.unwrap();
        assert!(refused.is_none() && row.tag.is_none() && row.document.is_some());
        let mut state = state(Some(row), 3);
        state.entry().unwrap().release(&name(&waiter), 3);
        let row = state.written().unwrap();
        assert_eq!((row.tag, row.document.as_deref()), (Some(name(&holder).id), None));
        assert_eq!(u64::try_from(row.token - row.spare).ok(), token);
    }

    #[test]
    fn a_row_with_unknown_fields_keeps_its_document() {
        let (holder, waiter) = (claim(Mode::Exclusive), claim(Mode::Exclusive));
        let (_, row) = acquire(None, &holder, 1);
        let waiter = waiter.with_patience(Patience::Waits);
        let (_, row) = acquire(row, &waiter, 2);
        let mut row = row.unwrap();
        row.document = row.document.map(|text| text.replacen('{', r#"{"region":"eu","#, 1));
        let mut state = state(Some(row), 3);

        state.entry().unwrap().release(&name(&waiter), 3);

        let row = state.written().unwrap();
        assert!(row.document.unwrap().contains(r#""region":"eu""#));
    }

    #[test]
    fn an_expired_row_is_free_whatever_it_contains() {
        for (tag, document) in [(Some(Uuid::nil()), None), (None, Some("{}".to_owned()))] {
            let row = Row { token: 7, ends: 5, tag, document, ..Row::default() };
            assert!(state(Some(row.clone()), 4).entry().is_err(), "in force");

            let mut free = state(Some(row), 5);

            assert!(free.entry().unwrap().is_empty());
            assert_eq!(free.entry().unwrap().last_token, 7);
            assert_eq!(free.written(), None);
        }
    }

    #[test]
    fn each_written_row_has_a_larger_token_than_the_row_and_the_minimum_token() {
        let row =
            Row { token: 70, ends: 10, document: Some(r#"{"v":1}"#.to_owned()), ..Row::default() };
        for (min_token, now, expected) in [(0, 1, 71), (90, 1, 91), (90, 9, 91), (0, 500, 71)] {
            let mut state =
                State::new(LockKey::new("job").unwrap(), Some(row.clone()), min_token, at(now));
            state.entry().unwrap().asked_until = Some(now + 1);

            assert_eq!(state.written().unwrap().token, expected);
        }
    }

    #[test]
    fn spare_tokens_are_not_ahead_of_the_clock() {
        let row = Row { token: 1_000, ..Row::default() };
        let claim = claim(Mode::Exclusive).with_spare_tokens(100);

        let (behind, written) = acquire(Some(row.clone()), &claim, 505);
        let (ahead, _) = acquire(Some(row), &claim, 400);

        assert_eq!((behind, ahead), (Some(1_001), Some(1_001)));
        assert_eq!(written.unwrap().spare, 9);
    }
}
