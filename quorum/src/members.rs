//! Sends requests to all members of a quorum.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::backend::{
    self, Capabilities, Feature, Fencing, LockBackend, Operation, QuorumConfiguration, StoreAdmin,
    StoreId, unpoisoned,
};
use leasehold_core::clock::{Clock, Instant};
use leasehold_core::{Error, ErrorKind, flaw};

use super::ballot::no_majority;
use super::round::{Answer, Round};

/// The shortest timeout for a member's reply.
const SHORTEST: Duration = Duration::from_millis(5);

/// The reason that a quorum does not support permits.
pub(super) const MUTEXES_ONLY: &str = "a quorum supports mutexes only, because k permits would require more than k / (k + 1) of the members; use a single store for other lock types";

/// A member's timeout is half of the time that the client allows for a renewal.
const LIMITS_PER_TTL: u32 = 12;

/// All members of a quorum, by number.
pub(super) struct Members<B> {
    list: Vec<Member<B>>,
    pub(super) configuration: QuorumConfiguration,
    pub(super) max_ttl: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) member_timeout: Duration,
}

pub(super) struct Member<B> {
    pub(super) name: String,
    pub(super) store: Arc<B>,
    /// The member's identity while the member is known to have a vote.
    id: Mutex<Option<StoreId>>,
    answers: AtomicBool,
    /// The number of votes that may still arrive but for which no call is waiting.
    late: AtomicUsize,
}

/// The members' replies that arrived in time.
pub(super) struct Answers<T> {
    answers: Vec<Answer<T>>,
}

impl<B: LockBackend> Members<B> {
    pub(super) fn new(
        members: Vec<(String, B)>,
        max_ttl: Duration,
        member_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let configuration =
            QuorumConfiguration::new(members.iter().map(|(name, _)| name.as_str()), max_ttl);
        let list = members.into_iter().map(|(name, store)| Member::new(name, store)).collect();
        Self { list, configuration, max_ttl, clock, member_timeout }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn majority(&self) -> usize {
        self.len() / 2 + usize::from(!flaw!("minority-is-enough"))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member<B>> {
        self.list.iter()
    }

    /// Returns the features that all members support, without queues and permits.
    pub(super) fn capabilities(&self) -> Capabilities {
        let members: Vec<Capabilities> =
            self.iter().map(|member| member.store.capabilities()).collect();
        let fencing = members.iter().map(Capabilities::fencing).min();
        let fencing = fencing.unwrap_or(Fencing::None).min(Fencing::BestEffort);
        let min_ttl = members.iter().map(Capabilities::min_ttl).max().unwrap_or_default();
        let max_ttl = members.iter().map(Capabilities::max_ttl).min().unwrap_or_default();
        let granularity = members.iter().map(Capabilities::ttl_granularity).max();
        let common = [Feature::Push, Feature::SpareTokens];
        let common =
            common.into_iter().filter(|feature| members.iter().all(|it| it.supports(*feature)));
        common
            .fold(Capabilities::new("quorum", fencing), Capabilities::with)
            .with_ttl_range(min_ttl, max_ttl.min(self.max_ttl))
            .with_ttl_granularity(granularity.unwrap_or_default())
            .with_advice(MUTEXES_ONLY)
    }

    /// Returns the timeout for a member's reply to a request for a lease with this TTL.
    pub(super) fn limit(&self, ttl: Duration) -> Duration {
        self.member_timeout.min((ttl / LIMITS_PER_TTL).max(SHORTEST))
    }

    /// Returns the timeout of a request for which no call is waiting. This timeout is longer than
    /// other timeouts, so that the request has time to connect first.
    pub(super) fn late_limit(&self, ttl: Duration) -> Duration {
        ttl / (LIMITS_PER_TTL / 2)
    }

    /// Returns the members that are known to have a vote.
    pub(super) fn with_vote(&self) -> BTreeSet<usize> {
        (0..self.len()).filter(|number| self.list[*number].id().is_some()).collect()
    }

    /// Returns the members to ask for a vote, without the members in `excluded`. Members that do
    /// not respond are left out unless they are needed for a majority.
    pub(super) fn voters(&self, excluded: &BTreeSet<usize>) -> BTreeSet<usize> {
        let all = &self.with_vote() - excluded;
        let present = all.iter().copied().filter(|number| !self.list[*number].is_awaited());
        let present: BTreeSet<usize> = present.collect();
        if present.len() >= self.majority() { present } else { all }
    }

    /// Returns the first member that has a vote and replied to its last request. Clients ask this
    /// member first for a contended key.
    pub(super) fn deciding(&self) -> Option<usize> {
        self.with_vote().into_iter().find(|number| self.list[*number].answers())
    }

    /// Sends a request to each member in `numbers`.
    pub(super) fn round<T, F>(
        &self,
        numbers: impl IntoIterator<Item = usize>,
        mut ask: impl FnMut(Arc<B>) -> F,
    ) -> Round<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let request = |number: usize| (number, ask(Arc::clone(&self.list[number].store)).boxed());
        Round::new(numbers.into_iter().map(request))
    }

    /// Collects replies until `note` returns `true`, and then collects the replies that have
    /// already arrived.
    ///
    /// Does not wait for members that did not reply to their last request, unless they are needed
    /// for a majority.
    pub(super) async fn collect<T: Send + 'static>(
        &self,
        round: &mut Round<T>,
        ends: Instant,
        mut note: impl FnMut(Answer<T>) -> bool,
    ) {
        let (mut is_decided, mut heard) = (false, 0);
        loop {
            let waits = !is_decided && self.is_worth_waiting(round, heard);
            let answer =
                if waits { round.next(&*self.clock, ends).await } else { round.next_ready() };
            let Some((number, answer)) = answer else { break };
            heard += usize::from(answer.is_ok());
            self.list[number].note_answer(answer.is_ok());
            is_decided |= note((number, answer));
        }
        if !is_decided {
            round.unheard().iter().for_each(|number| self.list[*number].note_answer(false));
        }
    }

    fn is_worth_waiting<T>(&self, round: &Round<T>, heard: usize) -> bool {
        let mut unheard = round.unheard().iter();
        heard < self.majority() || unheard.any(|number| self.list[*number].answers())
    }

    /// Sends the same request to all members.
    pub(super) async fn ask_all<T, F>(&self, ask: impl Fn(Arc<B>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.answers(self.round(0..self.len(), ask)).await
    }

    /// Sends a request to all members that have a vote. Each request contains the member's
    /// identity.
    pub(super) async fn ask_voters<T, F>(&self, ask: impl Fn(Arc<B>, StoreId) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let voters = self.list.iter().enumerate().filter_map(|(number, member)| {
            let request = ask(Arc::clone(&member.store), member.id()?);
            Some((number, request.boxed()))
        });
        let round = Round::new(voters.collect::<Vec<_>>());
        self.answers(round).await
    }

    async fn answers<T: Send + 'static>(&self, mut round: Round<T>) -> Answers<T> {
        let mut answers = Vec::new();
        let ends = self.clock.now() + self.member_timeout;
        let note = |answer: Answer<T>| {
            answers.push(answer);
            false
        };
        self.collect(&mut round, ends, note).await;
        answers.extend(round.unheard().iter().map(|number| (*number, Err(no_answer()))));
        answers.sort_by_key(|(number, _)| *number);
        Answers { answers }
    }
}

impl<B> Members<B> {
    pub(super) fn member(&self, number: usize) -> &Member<B> {
        &self.list[number]
    }

    pub(super) fn name(&self, number: usize) -> String {
        self.member(number).name.clone()
    }
}

impl<B> Member<B> {
    fn new(name: String, store: B) -> Self {
        Self {
            name,
            store: Arc::new(store),
            id: Mutex::default(),
            answers: AtomicBool::new(true),
            late: AtomicUsize::new(0),
        }
    }

    /// Returns the member's identity while the member is known to have a vote.
    pub(super) fn id(&self) -> Option<StoreId> {
        *unpoisoned(&self.id)
    }

    pub(super) fn set_id(&self, id: Option<StoreId>) {
        *unpoisoned(&self.id) = id;
    }

    pub(super) fn add_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn drop_late(&self) {
        self.late.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether the member is not responding and an earlier request to it is still waiting
    /// for a reply.
    fn is_awaited(&self) -> bool {
        !self.answers() && self.late.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the member replied to its last request.
    fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn note_answer(&self, answers: bool) {
        self.answers.store(answers, Ordering::Relaxed);
    }
}

impl<T> Answers<T> {
    /// Returns the replies if a majority has replied.
    pub(super) fn by_majority<B: LockBackend>(
        self,
        members: &Members<B>,
        operation: Operation,
    ) -> Result<Vec<T>, Error> {
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        for (number, answer) in self.answers {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => failures.push((members.name(number), error)),
            }
        }
        let majority = members.majority();
        if answers.len() >= majority {
            return Ok(answers);
        }
        Err(no_majority(answers.len(), majority, &failures, false).with_operation(operation))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Answer<T>> {
        self.answers.iter()
    }
}

/// Returns the operations for quorums of `store`.
pub(super) fn member_of<B: LockBackend>(store: &B) -> Result<&dyn backend::Member, Error> {
    store.member().ok_or_else(unsupported)
}

/// Returns the operations for operators of `store`.
pub(super) fn admin_of<B: LockBackend>(store: &B) -> Result<&dyn StoreAdmin, Error> {
    store.admin().ok_or_else(unsupported)
}

/// Returns the error for a member that does not support what it supported when the quorum was
/// built.
fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "a member does not support the operation")
}

pub(super) fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "no reply in time")
}

impl<B> fmt::Debug for Members<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter().map(|member| &member.name)).finish()
    }
}
