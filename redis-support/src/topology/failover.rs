//! Failover: how long a server is believed to be in charge, and which replies may come from one that was replaced.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind};

use crate::context::Context;
use crate::driver::Driver;
use crate::shared_task::SharedTask;

/// No failover is faster: a server that takes longer to reply may have been replaced meanwhile and not know it yet, so the reply is believed
/// only after others were asked again.
pub(super) const SLOW: Duration = Duration::from_millis(200);

/// The witnesses are asked again after so long while calls go on, so that calls in close order never wait for an answer.
/// Frequent enough that a lost question is repeated before [`BELIEVED_FOR`] is over.
pub(super) const ASKED_AFTER: Duration = Duration::from_secs(1);

/// No server is believed for longer than this after the last question that the witnesses answered. Together with the TTL it bounds how long
/// a holder on the wrong side of a partition believes; `docs/promises.md` names the sum.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(2);

/// The least time between two questions that no call waits for, so that refused connections cause no storm of them.
const PAUSE: Duration = Duration::from_millis(250);

/// Servers that know which servers are in charge: sentinels, or the servers of a cluster.
pub(super) trait Witnesses<D: Driver>: Send + Sync + 'static {
    /// The word of enough of them.
    type Word: Send;

    /// How long their last word is good.
    fn confirmation(&self) -> &Confirmation<D>;

    /// Asks enough of them.
    fn ask(&self) -> impl Future<Output = Result<Self::Word, Error>> + Send;

    /// Has calls sent to the servers that they name.
    fn adopt(&self, word: Self::Word);
}

/// Whether the last word of the witnesses is still good: for a limited time, and only until there is a doubt.
///
/// A server that was replaced while it was frozen or cut off goes on answering, and everything it says is lost. It cannot know; so
/// calls are sent to servers that the witnesses confirmed of late, and to no others.
pub(super) struct Confirmation<D: Driver> {
    context: Arc<Context<D>>,
    asking: SharedTask<Asked>,
    /// Locked while a word is adopted.
    adopting: Mutex<()>,
    last: Mutex<Last>,
}

/// The last questions.
#[derive(Default)]
struct Last {
    /// How many were begun.
    begun: u64,
    /// When the last one was.
    begun_at: Option<Instant>,
    /// The last one that was answered.
    confirmed: Option<Question>,
}

/// A question and its outcome.
#[derive(Clone)]
struct Asked {
    question: Question,
    outcome: Result<(), Arc<Error>>,
}

/// A question that was sent.
#[derive(Clone, Copy)]
struct Question {
    /// How many were begun by then, this one included.
    number: u64,
    /// When it was sent.
    at: Instant,
    /// How many suspicions there were by then.
    suspicions: u64,
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

    /// Makes sure that the witnesses have answered of late, and after the last doubt.
    ///
    /// # Errors
    ///
    /// The errors of [`Witnesses::ask`], and [`ErrorKind::Unavailable`] if others ask for too long.
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
        // Once more if the first question began before this call, and maybe before its doubt, or if a runtime or the machine stood still.
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

    /// How long callers wait for the question of another: longer than servers take that swallow connections.
    fn limit(&self) -> Duration {
        2 * self.context.timeout
    }

    /// How long ago the question was sent that was answered last; `None` if there has been a doubt since.
    fn age(&self) -> Option<Duration> {
        let confirmed = self.last().confirmed?;
        (confirmed.suspicions == self.context.suspicions()).then(|| self.age_of(&confirmed))
    }

    fn age_of(&self, question: &Question) -> Duration {
        self.context.now().since(question.at)
    }

    /// Asks before it has to be, and has no call wait for that.
    fn ask_ahead<W: Witnesses<D>>(witnesses: &Arc<W>) {
        let this = witnesses.confirmation();
        let begun_at = this.last().begun_at;
        let is_early = begun_at.is_some_and(|begun_at| this.context.now().since(begun_at) < PAUSE);
        if is_early {
            return;
        }
        this.asking.begin(this.limit(), || Self::ask(witnesses));
    }

    /// Asks, and waits for no caller meanwhile.
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
        let (at, suspicions) = (self.context.now(), self.context.suspicions());
        let mut last = self.last();
        last.begun += 1;
        last.begun_at = Some(at);
        Question { number: last.begun, at, suspicions }
    }

    /// Adopts the word of the witnesses, unless they have answered a later question: a runtime may have stood still meanwhile.
    fn adopt<W: Witnesses<D>>(&self, witnesses: &W, question: Question, word: W::Word) {
        let _adopting = self.adopting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.last().confirmed.is_none_or(|confirmed| confirmed.number < question.number) {
            witnesses.adopt(word);
            self.last().confirmed = Some(question);
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_answer() -> Error {
    let message = "timed out while discovering the current primaries";
    Error::new(ErrorKind::Unavailable, message)
}

/// The error for the reply of a server that was, or may have been, replaced while it answered: its work is lost, or was done nowhere.
pub(super) fn replaced() -> Error {
    let message = "the server may have been replaced while it answered, outcome unknown";
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
