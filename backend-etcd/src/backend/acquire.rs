//! Taking locks, and standing in line for them.

use std::num::NonZeroU64;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnResponse};
use futures_util::future::join_all;
use leasehold_core::clock::Instant;
use leasehold_core::{
    AttemptAll, CalledBy, Claim, Contention, Error, ErrorKind, Grant, Lease, Operation, Patience,
    Tenure,
};

use super::look::{queues, revision};
use super::{EtcdBackend, context};
use crate::entry::{self, BETWEEN_HELD_AND_QUEUED, Entry, State};
use crate::error::Failure;
use crate::layout::{Range, tag};
use crate::place::Place;
use crate::queue::{Queue, Verdict};
use crate::session::{self, Session, Use};
use crate::watch::{Events, Target};

/// How often an attempt may lose against others who change the queue at the same time. Each time one of them has got on.
const MAX_TRIES: usize = 64;

/// When to try again after that.
const AFTER_LOSING: Duration = Duration::from_millis(5);

/// How long the place of a claim is kept that only waits: a leader that freezes eats shorter ones.
const PLACE: Duration = Duration::from_secs(10);

/// How many claims fit into one transaction, with the server's default limit of 128 operations.
const MAX_TOGETHER: usize = 64;

/// A claim, and where it lies.
struct Asked<'a> {
    claim: &'a Claim,
    tag: String,
    range: Range,
    entry: String,
    /// Where it will lie if it finds the lock free.
    first: String,
    /// No earlier attempt can have left anything.
    is_new: bool,
}

/// What a claim's entry hangs on: one of etcd's leases.
#[derive(Clone, Copy)]
enum Hook {
    Session(Session),
    /// One of its own, with the whole TTL.
    Own(i64),
}

impl Hook {
    fn id(self) -> i64 {
        match self {
            Self::Session(session) => session.id,
            Self::Own(id) => id,
        }
    }
}

impl EtcdBackend {
    /// Refuses, before anything is sent, what one transaction cannot do.
    pub(super) fn ensure_possible_together(claims: &[Claim]) -> Result<(), Error> {
        if claims.len() <= MAX_TOGETHER && claims.iter().all(|claim| claim.share().is_whole()) {
            return Ok(());
        }
        let message = format!("one request acquires mutexes, and at most {MAX_TOGETHER} of them");
        let error = Failure::Final(Error::new(ErrorKind::Unsupported, message));
        Err(context(error, Operation::Acquire, claims[0].key()))
    }

    /// One attempt to acquire all claims, or none; a single one that waits stands in line if it is refused.
    pub(super) async fn acquire(&self, claims: &[Claim]) -> Result<AttemptAll, Failure> {
        let sent_at = self.clock.now();
        self.doubt_strays(sent_at);
        let asked: Vec<Asked<'_>> = claims.iter().map(|claim| self.asked(claim, sent_at)).collect();
        if let [only] = &asked[..]
            && let Some(contention) = self.wait_on(only).await?
        {
            return Ok(held(only, contention));
        }
        let mut place = None;
        let attempt = match self.attempt(&asked, sent_at, &mut place).await {
            // A session that we took for alive has ended. Nothing was applied.
            Err(Failure::LeaseGone(_)) => self.attempt(&asked, sent_at, &mut place).await,
            attempt => attempt,
        };
        let attempt = match (attempt, place) {
            (Ok(AttemptAll::Held { key, contention }), Some(place)) => {
                let contention = self.in_line(asked[0].claim, contention, place);
                Ok(AttemptAll::Held { key, contention })
            }
            (Err(failure), Some(_)) => {
                Err(failure.after("it stands in line, and what followed was not applied"))
            }
            (attempt, _) => attempt,
        };
        let leaves_something = place.is_some()
            || matches!(attempt, Ok(AttemptAll::Granted(_)) | Err(Failure::Unknown(_)));
        if !leaves_something {
            let new = asked.iter().filter(|asked| asked.is_new);
            new.for_each(|asked| self.slots.free(asked.claim.lease()));
        }
        attempt
    }

    /// Keeps the place of a claim that still waits: its own key and the one before it tell, and nothing else is read. `None` if there
    /// was news, or if nothing would tell of them: then it takes a look at the whole queue.
    async fn wait_on(&self, asked: &Asked<'_>) -> Result<Option<Contention>, Failure> {
        let Asked { claim, .. } = asked;
        let Some(place) = self.news.quiet_place(claim.lease()) else { return Ok(None) };
        let Some(question) = place.question() else { return Ok(None) };
        let kept_for = kept_for(claim);
        let (kept, reply) = tokio::join!(
            self.keep_place(claim, &place.own, kept_for),
            self.connection.txn(question)
        );
        let waits = kept?.then_some(place.answer(&reply?)).flatten();
        Ok(waits.map(|contention| self.in_line(claim, contention, kept_for)))
    }

    /// The answer to a claim that stands in line.
    fn in_line(&self, claim: &Claim, contention: Contention, kept_for: Duration) -> Contention {
        let contention = contention.with_place(kept_for);
        if self.news.tells(claim.lease()) {
            contention.with_called_by(CalledBy::Key)
        } else {
            contention
        }
    }

    fn asked<'a>(&self, claim: &'a Claim, now: Instant) -> Asked<'a> {
        let range = self.layout.range(claim.key());
        let is_new = self.slots.find(&self.layout, claim.lease()).is_none();
        let entry = self.slots.take(&self.layout, claim.lease(), now);
        let first = self.layout.first(claim.key());
        Asked { claim, tag: tag(claim.lease()), range, entry, first, is_new }
    }

    /// Sets `place` once it stands in line, whatever becomes of the attempt then: how long the place is kept.
    async fn attempt(
        &self,
        asked: &[Asked<'_>],
        sent_at: Instant,
        place: &mut Option<Duration>,
    ) -> Result<AttemptAll, Failure> {
        let mut hooks = vec![None; asked.len()];
        let attempt = self.attempt_with(&mut hooks, asked, sent_at, place).await;
        if let Ok(AttemptAll::Held { .. }) = attempt {
            self.drop_hooks(&hooks).await;
        }
        attempt
    }

    /// Hangs on `hooks` what is granted, and nothing if it is not.
    async fn attempt_with(
        &self,
        hooks: &mut [Option<Hook>],
        asked: &[Asked<'_>],
        sent_at: Instant,
        place: &mut Option<Duration>,
    ) -> Result<AttemptAll, Failure> {
        let ranges: Vec<&Range> = asked.iter().map(|asked| &asked.range).collect();
        let mut queues = if asked.iter().all(|asked| asked.claim.lease().tenure() == Tenure::Kept) {
            // Most often nobody is there, or nobody any more who came before: one transaction finds out and takes the locks.
            match self.take(asked, hooks, None, sent_at).await? {
                Ok(grants) => return Ok(AttemptAll::Granted(grants)),
                Err(found) => found,
            }
        } else {
            self.look(&ranges).await?
        };
        for _ in 0..MAX_TRIES {
            let each = asked.iter().zip(&queues);
            let refused = each
                .map(|(asked, queue)| {
                    (asked, queue, queue.verdict(asked.claim, &asked.tag, &asked.entry))
                })
                .find(|(_, _, verdict)| *verdict != Verdict::Admitted);
            queues = match refused {
                Some((asked, _, Verdict::OtherKind)) => return Err(other_kind(asked.claim)),
                Some((only, queue, Verdict::Refused)) if waits(asked) => {
                    match self.stand_in_line(only, queue, place).await? {
                        Ok(contention) => return Ok(held(only, contention)),
                        Err(found) => vec![found],
                    }
                }
                Some((asked, queue, _)) => {
                    let contention = self.contention(queue, asked.claim, &asked.tag).await;
                    return Ok(held(asked, contention));
                }
                None => match self.take(asked, hooks, Some(&queues), sent_at).await? {
                    Ok(grants) => {
                        self.drop_replaced(asked, &queues).await;
                        return Ok(AttemptAll::Granted(grants));
                    }
                    Err(found) => found,
                },
            };
        }
        Ok(held(&asked[0], Contention::new().with_retry_after(AFTER_LOSING)))
    }

    /// Takes the locks if they are still as they were `seen`, or, unseen, if they are free; else tells who is there.
    async fn take(
        &self,
        asked: &[Asked<'_>],
        hooks: &mut [Option<Hook>],
        seen: Option<&[Queue]>,
        sent_at: Instant,
    ) -> Result<Result<Vec<Grant>, Vec<Queue>>, Failure> {
        for (asked, hook) in asked.iter().zip(&mut *hooks) {
            if hook.is_none() {
                let lease = asked.claim.lease();
                *hook = Some(self.hook(lease.tenure(), Use::Locks, lease.ttl()).await?);
            }
        }
        let hooks: Vec<Hook> = hooks.iter().flatten().copied().collect();
        let each = asked.iter().enumerate().map(|(i, asked)| {
            let seen = seen.map(|queues| &queues[i]);
            Position::of(asked, seen, self.news.queues_since(asked.claim.lease()))
        });
        let positions: Vec<Position<'_>> = each.collect();
        let (mut when, mut changes, mut reads, mut created) = (vec![], vec![], vec![], vec![]);
        for ((asked, hook), position) in asked.iter().zip(&hooks).zip(&positions) {
            let lease = asked.claim.lease();
            when.extend(position.is_unchanged(asked));
            if position.is_new() {
                when.push(self.is_unmarked(lease));
                created.push(lease);
            }
            changes.push(put(position.key(asked), position.held(lease), hook.id()));
            if position.is_free() {
                // Who was asked to finish has done so.
                changes.push(TxnOp::delete(self.layout.revocation(lease.key()), None));
            }
            reads.push(asked.range.get());
        }
        let txn = Txn::new().when(when).and_then(changes).or_else(reads);

        let ids: Vec<i64> = hooks.iter().map(|hook| hook.id()).collect();
        let refreshed = asked
            .iter()
            .zip(&hooks)
            .map(|(asked, hook)| self.refreshed(*hook, asked.claim.lease().ttl()));
        let (reply, hooks) = tokio::join!(self.create(created, &ids, txn), join_all(refreshed));
        let reply = reply?;
        if !reply.succeeded() {
            let ranges: Vec<&Range> = asked.iter().map(|asked| &asked.range).collect();
            return Ok(Err(queues(&ranges, &reply)?));
        }
        let revision = revision(&reply)?;
        let each = asked.iter().zip(&hooks).zip(&positions);
        let grants = each.map(|((asked, hook), position)| {
            self.granted(asked, *hook, position, revision, sent_at)
        });
        Ok(Ok(grants.collect::<Result<_, _>>()?))
    }

    fn granted(
        &self,
        asked: &Asked<'_>,
        hook: Hook,
        position: &Position<'_>,
        revision: i64,
        sent_at: Instant,
    ) -> Result<Grant, Failure> {
        let lease = asked.claim.lease();
        match position.created(asked, revision) {
            Some(created) if position.is_first(asked) => {
                self.slots.grant_first(lease, created, sent_at);
            }
            Some(created) => self.slots.grant(lease, created, sent_at),
            None => {}
        }
        self.news.granted(&self.connection, lease, position.key(asked), revision);
        let token = u64::try_from(revision).ok().and_then(NonZeroU64::new);
        let grant = Grant::new(token.ok_or_else(super::look::senseless)?);
        Ok(match hook {
            Hook::Session(session) => {
                let good_for = session.good_until().since(sent_at);
                if good_for < lease.ttl() { grant.with_ttl(good_for) } else { grant }
            }
            Hook::Own(_) => grant,
        })
    }

    /// Something for an entry to hang on: a session for that use, if it is kept.
    async fn hook(&self, tenure: Tenure, of: Use, ttl: Duration) -> Result<Hook, Failure> {
        Ok(match tenure {
            Tenure::Kept => {
                if of == Use::Locks {
                    self.connection.warn_if_short(ttl);
                }
                Hook::Session(self.sessions.current(&self.connection, of, ttl).await?)
            }
            Tenure::Fixed => Hook::Own(self.sessions.own(&self.connection, ttl).await?),
        })
    }

    /// The same, kept alive if need be and possible.
    async fn refreshed(&self, hook: Hook, ttl: Duration) -> Hook {
        if let Hook::Session(session) = hook
            && !self.sessions.is_fresh(&session)
            && let Ok(renewed) = self.sessions.renewed(&self.connection, session.of, ttl).await
            && renewed.id == session.id
        {
            return Hook::Session(renewed);
        }
        hook
    }

    /// Gives back what was not needed.
    async fn drop_hooks(&self, hooks: &[Option<Hook>]) {
        for hook in hooks.iter().flatten() {
            if let Hook::Own(id) = hook {
                self.drop_lease(*id).await;
            }
        }
    }

    /// Ends the leases on which the entries hung before.
    async fn drop_replaced(&self, asked: &[Asked<'_>], queues: &[Queue]) {
        for (asked, queue) in asked.iter().zip(queues) {
            if asked.claim.lease().tenure() == Tenure::Fixed
                && let Some(own) = queue.entry(&asked.tag)
            {
                self.drop_lease(own.lease).await;
            }
        }
    }

    /// Gives up one of etcd's leases that nothing hangs on any more.
    pub(super) async fn drop_lease(&self, id: i64) {
        if !self.sessions.spare(id) {
            self.end_lease(id).await;
        }
    }

    /// Ends one of etcd's leases that nothing of worth hangs on. If that fails, its TTL does it, and so it does for those of other
    /// clients: many may hang on them.
    pub(super) async fn end_lease(&self, id: i64) {
        if self.sessions.is_own(id) {
            drop(session::revoke(&self.connection, id).await);
        }
    }

    /// Takes a place in the queue, or keeps the one it has; the queue, if it must be looked at again.
    async fn stand_in_line(
        &self,
        asked: &Asked<'_>,
        queue: &Queue,
        place: &mut Option<Duration>,
    ) -> Result<Result<Contention, Queue>, Failure> {
        let Asked { claim, tag, range, entry, .. } = asked;
        let kept_for = kept_for(claim);
        let own = queue.entry(tag);
        if own.is_some() {
            *place = Some(kept_for);
        }
        let lease = self.place_lease(claim, own, kept_for).await?;
        let value = entry::queued(claim.lease());
        let Some(own) = own.filter(|own| own.lease == lease && own.value == value.as_bytes())
        else {
            let key = own.map_or_else(|| entry.clone().into(), |own| own.key.clone());
            let unchanged = match own {
                Some(own) => {
                    vec![Compare::mod_revision(own.key.as_slice(), CompareOp::Equal, own.modified)]
                }
                None => vec![is_absent(entry), self.is_unmarked(claim.lease())],
            };
            let txn = Txn::new()
                .when(unchanged)
                .and_then([put(key, value, lease), range.get()])
                .or_else([range.get()]);
            let created = own.is_none().then(|| claim.lease());
            let reply = self.create(created, &[lease], txn).await?;
            if reply.succeeded() {
                *place = Some(kept_for);
            }
            let before = own.map(|own| own.lease);
            let unused = if reply.succeeded() { before } else { Some(lease) };
            if claim.lease().tenure() == Tenure::Fixed
                && before != Some(lease)
                && let Some(unused) = unused
            {
                self.drop_lease(unused).await;
            }
            return Ok(Err(queues(&[range], &reply)?.remove(0)));
        };
        let before = match queue.predecessor(claim, tag) {
            Some(before) if claim.share().is_whole() => {
                Target { key: before.key.clone(), end: None, events: Events::Ends }
            }
            Some(before) => Target { key: before.key.clone(), end: None, events: Events::Changes },
            None => {
                let (key, end) = (range.start.clone().into(), range.end.clone().into());
                Target { key, end: Some(end), events: Events::Changes }
            }
        };
        let place = Place::new(queue, claim, own);
        self.news.queues(&self.connection, claim.lease(), place, before);
        Ok(Ok(self.contention(queue, claim, tag).await))
    }

    /// The lease of etcd's with which a place ends, with all of its TTL, or nearly so.
    async fn place_lease(
        &self,
        claim: &Claim,
        own: Option<&Entry>,
        place: Duration,
    ) -> Result<i64, Failure> {
        if let Some(own) = own
            && self.keep_place(claim, own, place).await?
        {
            return Ok(own.lease);
        }
        let hook = self.hook(claim.lease().tenure(), Use::Places, place).await?;
        Ok(self.refreshed(hook, place).await.id())
    }

    /// Keeps alive the lease of etcd's with which a place ends; `false` if the place must move to another.
    async fn keep_place(
        &self,
        claim: &Claim,
        own: &Entry,
        place: Duration,
    ) -> Result<bool, Failure> {
        if claim.lease().tenure() == Tenure::Fixed {
            return self.sessions.keep_own(&self.connection, own.lease, place).await;
        }
        let hook = self.hook(Tenure::Kept, Use::Places, place).await?;
        Ok(self.refreshed(hook, place).await.id() == own.lease)
    }

    /// A transaction that may create the entries of `leases`, and hangs them on these of etcd's.
    async fn create<'a>(
        &'a self,
        leases: impl IntoIterator<Item = &'a Lease>,
        ids: &[i64],
        txn: Txn,
    ) -> Result<TxnResponse, Failure> {
        let mut creating = self.doubts.creating(leases);
        let reply = self.hang(ids, txn).await;
        if !matches!(reply, Err(Failure::Unknown(_))) {
            creating.settle();
        }
        reply
    }

    /// A transaction that hangs something on these of etcd's leases. If one has ended, they are used no more.
    pub(super) async fn hang(&self, ids: &[i64], txn: Txn) -> Result<TxnResponse, Failure> {
        let reply = self.connection.txn(txn).await;
        if let Err(Failure::LeaseGone(_)) = &reply {
            self.sessions.forget(ids).await;
        }
        reply
    }

    /// That the entry of a lease was not given up while it was in doubt.
    fn is_unmarked(&self, lease: &Lease) -> Compare {
        is_absent(&self.layout.mark(lease))
    }
}

/// Where a claim stands before it is granted.
enum Position<'a> {
    /// Nobody was there, as far as is known.
    First,
    /// It was in line since that revision, and those before it may have gone.
    InLine(i64),
    /// It was seen in line, or not, and there was room for it.
    Seen(&'a Queue, Option<&'a Entry>),
}

impl<'a> Position<'a> {
    fn of(asked: &Asked<'_>, seen: Option<&'a Queue>, queues_since: Option<i64>) -> Self {
        match (seen, queues_since) {
            (Some(queue), _) => Self::Seen(queue, queue.entry(&asked.tag)),
            // For units, it takes a look.
            (None, Some(created)) if asked.claim.share().is_whole() => Self::InLine(created),
            (None, _) => Self::First,
        }
    }

    /// What must be so for it to be granted.
    fn is_unchanged(&self, asked: &Asked<'_>) -> Vec<Compare> {
        let Asked { range, entry, .. } = asked;
        match *self {
            Self::First => vec![range.is_empty()],
            Self::InLine(created) => vec![
                Compare::create_revision(entry.as_str(), CompareOp::Equal, created),
                range.has_come_since(created),
                range.has_values_above(BETWEEN_HELD_AND_QUEUED),
            ],
            // Whoever was there counts, whatever becomes of it.
            Self::Seen(queue, None) if queue.is_held_in_units() => {
                vec![range.has_nobody_new_since(queue.revision)]
            }
            // That includes that it has no entry still.
            Self::Seen(queue, None) => vec![range.is_as_at(queue.revision)],
            Self::Seen(queue, Some(own)) => vec![
                range.is_as_at(queue.revision),
                Compare::create_revision(own.key.as_slice(), CompareOp::Equal, own.created),
            ],
        }
    }

    /// Whether it finds the lock free, as far as is known, or has found it so.
    fn is_first(&self, asked: &Asked<'_>) -> bool {
        match self {
            Self::First => true,
            Self::InLine(_) => false,
            Self::Seen(queue, None) => queue.is_empty(),
            Self::Seen(_, Some(own)) => own.key == asked.first.as_bytes(),
        }
    }

    /// Whether it has no entry yet.
    fn is_new(&self) -> bool {
        matches!(self, Self::First | Self::Seen(_, None))
    }

    /// Whether nobody held the lock until then.
    fn is_free(&self) -> bool {
        match self {
            Self::First | Self::InLine(_) => true,
            Self::Seen(queue, _) => !queue.is_held(),
        }
    }

    /// Where its entry lies or will: with another client's, perhaps, that asked before us.
    fn key(&self, asked: &Asked<'_>) -> Vec<u8> {
        match self {
            _ if self.is_first(asked) => asked.first.clone().into(),
            Self::Seen(_, Some(own)) => own.key.clone(),
            _ => asked.entry.clone().into(),
        }
    }

    /// When the entry of one who was granted it at `revision` was created, if it lies with us.
    fn created(&self, asked: &Asked<'_>, revision: i64) -> Option<i64> {
        match *self {
            Self::First | Self::Seen(_, None) => Some(revision),
            Self::InLine(created) => Some(created),
            Self::Seen(_, Some(own)) => {
                let is_ours = own.key == asked.entry.as_bytes() || self.is_first(asked);
                is_ours.then_some(own.created)
            }
        }
    }

    /// The value of its entry once it is granted. One that holds already takes no more units.
    fn held(&self, lease: &Lease) -> String {
        match self {
            Self::Seen(_, Some(own)) if own.state == State::Held => {
                entry::held(&lease.clone().with_share(lease.share().capped_by(own.share)))
            }
            _ => entry::held(lease),
        }
    }
}

fn is_absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

pub(super) fn put(entry: impl Into<Vec<u8>>, value: String, lease: i64) -> TxnOp {
    TxnOp::put(entry, value, Some(PutOptions::new().with_lease(lease)))
}

/// How long the place of a claim is kept without another attempt.
fn kept_for(claim: &Claim) -> Duration {
    claim.place().unwrap_or_else(|| PLACE.min(claim.lease().ttl()))
}

/// Whether who asks stands in line if it is refused.
fn waits(asked: &[Asked<'_>]) -> bool {
    matches!(asked, [only] if only.claim.patience() != Patience::Leaves)
}

fn held(asked: &Asked<'_>, contention: Contention) -> AttemptAll {
    AttemptAll::Held { key: asked.claim.key().clone(), contention }
}

fn other_kind(claim: &Claim) -> Failure {
    let message = "it is held as a lock of another kind";
    Failure::Final(Error::new(ErrorKind::WrongType, message).with_key(claim.key()))
}
