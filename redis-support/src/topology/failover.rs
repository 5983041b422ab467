//! Decides for how long a server is considered the primary, and which replies may have been sent by
//! a server that was replaced in the meantime.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold_core::backend::unpoisoned;
use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind};

use crate::context::Context;
use crate::driver::Driver;
use crate::shared_task::SharedTask;

/// The minimum duration of a failover. A server that takes longer to reply may have been replaced
/// in the meantime without noticing, so its reply is accepted only after the primary has been
/// confirmed again.
pub(super) const SLOW: Duration = Duration::from_millis(200);

/// The time after which the primary is confirmed again while calls continue, so that frequent calls
/// never wait for a confirmation. The interval leaves time to retry a lost request before
/// [`BELIEVED_FOR`] has passed.
pub(super) const ASKED_AFTER: Duration = Duration::from_secs(1);

/// How long a server is considered the primary after the last confirmed request. Together with the
/// TTL, this limits how long a holder on the wrong side of a partition considers itself the holder.
/// `docs/promises.md` states the sum.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(2);

/// The minimum time between two requests that no call waits for, which prevents a flood of requests
/// after refused connections.
const PAUSE: Duration = Duration::from_millis(250);

/// Servers that know the current primaries: sentinels, or the servers of a cluster.
pub(super) trait Witnesses<D: Driver>: Send + Sync + 'static {
    /// The reply of enough of these servers.
    type Word: Send;

    /// Returns the state of the last confirmation.
    fn confirmation(&self) -> &Confirmation<D>;

    /// Queries enough servers.
    fn ask(&self) -> impl Future<Output = Result<Self::Word, Error>> + Send;

    /// Uses the primaries in this reply for later calls.
    fn adopt(&self, word: Self::Word);
}

/// Records whether the last reply about the primaries is still valid. The reply is valid for a
/// limited time, and only as long as there is no reason to doubt it.
///
/// A server that was replaced while it was frozen or cut off keeps replying, but its replies are no
/// longer valid. A replaced server cannot know that it was replaced. Calls are therefore sent only
/// to servers that were confirmed recently.
pub(super) struct Confirmation<D: Driver> {
    context: Arc<Context<D>>,
    asking: SharedTask<Asked>,
    /// Locked while a reply is applied.
    adopting: Mutex<()>,
    last: Mutex<Last>,
}

/// The last requests for confirmation.
#[derive(Default)]
struct Last {
    /// The number of requests that were started.
    begun: u64,
    /// When the last request was started.
    begun_at: Option<Instant>,
    /// The last request that received a reply.
    confirmed: Option<Question>,
}

/// A request and its outcome.
#[derive(Clone)]
struct Asked {
    question: Question,
    outcome: Result<(), Arc<Error>>,
}

/// A request that was sent.
#[derive(Clone, Copy)]
struct Question {
    /// The number of requests so far, including this one.
    number: u64,
    /// When the request was sent.
    at: Instant,
    /// The number of failure reports when the request was sent.
    failure_reports: u64,
}

impl<D: Driver> Confirmation<D> {
    pub(super) fn new(context: &Arc<Context<D>>) -> Self {
        Self {
            context: Arc::clone(context),
            asking: SharedTask::new(),
            adopting: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Ensures that the primaries were confirmed recently, and after the last suspicion.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Witnesses::ask`], and [`ErrorKind::Unavailable`] if a different
    /// caller's request takes too long.
    pub(super) async fn ensure<W: Witnesses<D>>(witnesses: &Arc<W>) -> Result<(), Error> {
        let this = witnesses.confirmation();
        this.context.ensure_open()?;
        match this.age() {
            Some(age) if age < ASKED_AFTER => return Ok(()),
            Some(age) if age < BELIEVED_FOR => {
                Self::ask_ahead(witnesses);
                return Ok(());
            }
            _ => {}
        }
        let begun = this.last().begun;
        // A second request is necessary if the first request started before this call, or if a
        // runtime or the machine was paused.
        for _ in 0..2 {
            let asked = this.asking.outcome(this.limit(), || Self::ask(witnesses)).await;
            match asked.filter(|asked| asked.question.number > begun) {
                Some(Asked { outcome: Err(error), .. }) => return Err(error.repeated()),
                Some(Asked { question, .. }) if this.age_of(&question) < BELIEVED_FOR => {
                    return Ok(());
                }
                _ => {}
            }
        }
        Err(no_answer())
    }

    /// Returns how long callers wait for a different caller's request. The time is sufficient even
    /// if some servers silently drop connections.
    fn limit(&self) -> Duration {
        2 * self.context.timeout
    }

    /// Returns how long ago the last confirmed request was sent. Returns `None` if there has been a
    /// suspicion since then.
    fn age(&self) -> Option<Duration> {
        let confirmed = self.last().confirmed?;
        (confirmed.failure_reports == self.context.failure_reports())
            .then(|| self.age_of(&confirmed))
    }

    fn age_of(&self, question: &Question) -> Duration {
        self.context.now().since(question.at)
    }

    /// Starts a request early, so that calls do not have to wait for it.
    fn ask_ahead<W: Witnesses<D>>(witnesses: &Arc<W>) {
        let this = witnesses.confirmation();
        let begun_at = this.last().begun_at;
        let is_early = begun_at.is_some_and(|begun_at| this.context.now().since(begun_at) < PAUSE);
        if is_early {
            return;
        }
        this.asking.begin(this.limit(), || Self::ask(witnesses));
    }

    /// Sends a request, independently of its callers.
    fn ask<W: Witnesses<D>>(witnesses: &Arc<W>) -> impl Future<Output = Asked> + use<W, D> {
        let witnesses = Arc::clone(witnesses);
        async move {
            let this = witnesses.confirmation();
            let question = this.begin();
            let outcome = witnesses.ask().await.map(|word| this.adopt(&*witnesses, question, word));
            if let Err(error) = &outcome {
                tracing::debug!(%error, "the servers are not confirmed");
            }
            Asked { question, outcome: outcome.map_err(Arc::new) }
        }
    }

    fn begin(&self) -> Question {
        let (at, failure_reports) = (self.context.now(), self.context.failure_reports());
        let mut last = self.last();
        last.begun += 1;
        last.begun_at = Some(at);
        Question { number: last.begun, at, failure_reports }
    }

    /// Applies a reply, unless a later request has already received a reply, for example because a
    /// runtime was paused.
    fn adopt<W: Witnesses<D>>(&self, witnesses: &W, question: Question, word: W::Word) {
        let _adopting = unpoisoned(&self.adopting);
        if self.last().confirmed.is_none_or(|confirmed| confirmed.number < question.number) {
            witnesses.adopt(word);
            self.last().confirmed = Some(question);
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        unpoisoned(&self.last)
    }
}

fn no_answer() -> Error {
    let message = "timed out while determining the current primaries";
    Error::new(ErrorKind::Unavailable, message)
}

/// Returns the error for a reply from a server that may have been replaced in the meantime. The
/// server's changes may be lost.
pub(super) fn replaced() -> Error {
    let message = "the server may have been replaced before it replied, so the outcome is unknown";
    Error::new(ErrorKind::Indeterminate, message)
}

#[cfg(test)]
mod tests {
    use leasehold_core::clock::SystemClock;

    use super::*;
    use crate::driver::Protocol;
    use crate::fake::Fake;
    use crate::layout::Layout;
    use crate::watch::News;

    struct Adopting {
        confirmation: Confirmation<Fake>,
        adopted: Mutex<Vec<&'static str>>,
    }

    impl Witnesses<Fake> for Adopting {
        type Word = &'static str;

        fn confirmation(&self) -> &Confirmation<Fake> {
            &self.confirmation
        }

        async fn ask(&self) -> Result<&'static str, Error> {
            unreachable!("the test asks")
        }

        fn adopt(&self, word: &'static str) {
            self.adopted.lock().unwrap().push(word);
        }
    }

    #[test]
    fn a_word_that_comes_after_a_later_one_is_not_adopted() {
        let news = Arc::new(News::new(Layout::default()));
        let (clock, protocol) = (Arc::new(SystemClock), Protocol::Resp3);
        let context = Context::new(Fake::default(), Duration::ZERO, clock, news, true, protocol);
        let confirmation = Confirmation::new(&context);
        let witnesses = Adopting { confirmation, adopted: Mutex::default() };
        let this = witnesses.confirmation();
        let (first, second, third) = (this.begin(), this.begin(), this.begin());

        this.adopt(&witnesses, second, "second");
        this.adopt(&witnesses, first, "first");
        this.adopt(&witnesses, third, "third");

        assert_eq!(*witnesses.adopted.lock().unwrap(), ["second", "third"]);
    }
}
