//! Failover: how long a server is believed to be in charge, and which replies may come from one that was replaced.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::clock::Instant;
use leasehold_core::{Error, ErrorKind};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use crate::context::Context;
use crate::driver::Driver;

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
    /// How long their last word is good.
    fn confirmation(&self) -> &Confirmation<D>;

    /// Asks enough of them, and adopts their answer.
    fn ask(&self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Whether the last word of the witnesses is still good: for a limited time, and only until there is a doubt.
///
/// A server that was replaced while it was frozen or cut off goes on answering, and everything it says is lost. It cannot know; so
/// calls are sent to servers that the witnesses confirmed of late, and to no others.
pub(super) struct Confirmation<D: Driver> {
    context: Arc<Context<D>>,
    /// The task or call that asks holds it; the others wait for the outcome.
    asking: Arc<tokio::sync::Mutex<()>>,
    last: Mutex<Last>,
}

/// The last questions.
#[derive(Default)]
struct Last {
    /// How many were begun.
    begun: u64,
    /// When the last one was.
    begun_at: Option<Instant>,
    /// The outcome of the last one, once there is one.
    outcome: Option<Result<(), Error>>,
    confirmed: Option<Confirmed>,
}

/// A question that was answered.
#[derive(Clone, Copy)]
struct Confirmed {
    /// When it was sent.
    at: Instant,
    /// How many suspicions there were by then.
    suspicions: u64,
}

impl<D: Driver> Confirmation<D> {
    pub(super) fn new(context: &Arc<Context<D>>) -> Self {
        Self { context: Arc::clone(context), asking: Arc::default(), last: Mutex::default() }
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
        let turn = timeout(this.context.timeout, Arc::clone(&this.asking).lock_owned()).await;
        let turn = turn.map_err(|_elapsed| no_answer())?;
        match this.outcome_after(begun) {
            Some(outcome) => outcome,
            None => Self::ask(witnesses, turn).await,
        }
    }

    /// How long ago the question was sent that was answered last; `None` if there has been a doubt since.
    fn age(&self) -> Option<Duration> {
        let confirmed = self.last().confirmed?;
        (confirmed.suspicions == self.context.suspicions())
            .then(|| self.context.now().since(confirmed.at))
    }

    /// The outcome of a question that began after the first so many.
    fn outcome_after(&self, begun: u64) -> Option<Result<(), Error>> {
        let last = self.last();
        let outcome = last.outcome.as_ref().filter(|_| last.begun > begun)?;
        Some(outcome.as_ref().copied().map_err(Error::repeated))
    }

    /// Asks before it has to be, and has no call wait for that.
    fn ask_ahead<W: Witnesses<D>>(witnesses: &Arc<W>) {
        let this = witnesses.confirmation();
        let begun_at = this.last().begun_at;
        let is_early = begun_at.is_some_and(|begun_at| this.context.now().since(begun_at) < PAUSE);
        if is_early {
            return;
        }
        if let Ok(turn) = Arc::clone(&this.asking).try_lock_owned() {
            let witnesses = Arc::clone(witnesses);
            tokio::spawn(async move { drop(Self::ask(&witnesses, turn).await) });
        }
    }

    async fn ask<W: Witnesses<D>>(
        witnesses: &Arc<W>,
        _turn: OwnedMutexGuard<()>,
    ) -> Result<(), Error> {
        let this = witnesses.confirmation();
        let sent = Confirmed { at: this.context.now(), suspicions: this.context.suspicions() };
        this.begin(sent.at);
        let outcome = witnesses.ask().await;
        let mut last = this.last();
        last.outcome = Some(outcome.as_ref().copied().map_err(Error::repeated));
        if outcome.is_ok() {
            last.confirmed = Some(sent);
        }
        drop(last);
        outcome.inspect_err(|error| tracing::debug!(%error, "the servers are not confirmed"))
    }

    fn begin(&self, at: Instant) {
        let mut last = self.last();
        last.begun += 1;
        (last.begun_at, last.outcome) = (Some(at), None);
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_answer() -> Error {
    let message = "no answer in time to the question which servers are in charge";
    Error::new(ErrorKind::Unavailable, message)
}

/// The error for the reply of a server that was, or may have been, replaced while it answered: its work is lost, or was done nowhere.
pub(super) fn replaced() -> Error {
    let message = "the server may have been replaced while it answered, outcome unknown";
    Error::new(ErrorKind::Indeterminate, message)
}
