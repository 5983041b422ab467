//! Group commit: mutexes that are acquired and released while other requests are under way leave together, in one script.
//!
//! A caller that finds no other request under way sends its own, by the script for one lock. The others join a batch, and up to
//! [`LANES`] tasks send batches, one round trip each. The tasks wait for no caller: one that has stopped polling delays no other.
//!
//! A caller that gives up an acquisition releases it, in case it was granted. So requests are sent in the order in which they were taken,
//! a batch leaves out the callers that gave up before it was sent, and releases come before acquisitions.

mod batch;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::backend::Lease;
use leasehold_core::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;

use crate::call::Call;
use crate::connection::{ConnectionManager, Current, is_unknown};
use crate::driver::{Driver, Received, Request};
use crate::layout::Layout;

use batch::{Batch, Taken};
pub(crate) use batch::{Joined, Outcome, Wanted};

/// As many round trips as keep both sides busy: the server does one batch while the replies of another are read and a third gathers.
/// Measured: two lanes reach 0.85 of this throughput, four send smaller batches.
const LANES: usize = 3;

/// The server is told so before a script whose keys it need not remember.
const FORGO_NEWS: Request<'_> = Request::Words(&["CLIENT", "CACHING", "NO"]);

/// The requests to one server.
pub(crate) struct Pipeline<D: Driver> {
    line: Arc<ConnectionManager<D>>,
    layout: Layout,
    /// Locked while requests are taken and sent, so that both happen in one order.
    order: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many callers are under way by themselves.
    alone: usize,
    /// How many tasks send batches.
    lanes: usize,
    /// The batches to be sent. Callers join the last one.
    waiting: VecDeque<Arc<Batch>>,
    /// How many callers joined the last batch that was sent.
    lately: usize,
}

impl<D: Driver> Pipeline<D> {
    pub(crate) fn new(line: &Arc<ConnectionManager<D>>, layout: &Layout) -> Arc<Self> {
        let (order, state) = (Mutex::default(), Mutex::default());
        Arc::new(Self { line: Arc::clone(line), layout: layout.clone(), order, state })
    }

    /// Runs `call` by itself.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop. The call may then have been sent or not, and is not sent later than the next request of its caller.
    pub(crate) async fn run(&self, call: &Call) -> Result<Received, Error> {
        self.state().alone += 1;
        let _alone = Alone(self);
        let run = self.line.run([Request::ByHash(call.run())], Duration::ZERO);
        let [received] = in_order(&self.order, run).await?;
        Ok(received)
    }

    /// Has a mutex acquired or released together with others. `None` if no other request is under way: alone it is faster.
    pub(crate) fn join(self: &Arc<Self>, wanted: Wanted, lease: &Lease) -> Option<Joined> {
        let runtime = Handle::try_current().ok()?;
        let mut state = self.state();
        if state.alone + state.lanes == 0 {
            return None;
        }
        let batch = match state.waiting.back() {
            Some(batch) if !batch.is_full() => Arc::clone(batch),
            _ => {
                let batch = Batch::of(state.lately);
                state.waiting.push_back(Arc::clone(&batch));
                batch
            }
        };
        let joined = batch.join(wanted, lease, &self.layout);
        let begins = state.lanes < LANES;
        if begins {
            state.lanes += 1;
        }
        drop(state);
        if begins {
            runtime.spawn(Lane(Some(Arc::clone(self))).run());
        }
        Some(joined)
    }

    /// Sends the next batch. `false` if there is none: then the lane is to end, and there may be another from then on.
    async fn send_next(&self, current: Result<Current<D::Connection>, Error>) -> bool {
        let Some(batch) = self.next() else { return false };
        let taken = Taken::new(batch);
        match current {
            Ok(current) => self.send(&current, &taken).await,
            Err(error) => taken.fail(error),
        }
        true
    }

    /// The next batch. If there is none, there is a lane less.
    fn next(&self) -> Option<Arc<Batch>> {
        let mut state = self.state();
        let batch = state.waiting.pop_front();
        match &batch {
            Some(batch) => state.lately = batch.len(),
            None => state.lanes -= 1,
        }
        batch
    }

    async fn send(&self, current: &Current<D::Connection>, taken: &Taken) {
        let scripts = taken.scripts(&self.layout);
        let replies = match self.exchange(current, scripts.by_hash()).await {
            Ok(replies) => replies,
            Err(error) => return taken.fail(error),
        };
        taken.note(&scripts, &replies);
        if replies.iter().any(is_unknown) {
            // Without the callers that have gone meanwhile: their releases may have been sent.
            let scripts = taken.scripts(&self.layout);
            match in_order(&self.order, self.exchange(current, scripts.by_source())).await {
                Ok(replies) => taken.note(&scripts, &replies),
                Err(error) => return taken.fail(error),
            }
        }
        taken.finish();
    }

    /// Sends scripts that ask for no news, and gives back their replies.
    async fn exchange(
        &self,
        current: &Current<D::Connection>,
        scripts: Vec<Request<'_>>,
    ) -> Result<Vec<Received>, Error> {
        if !self.line.may_forgo_news() {
            return self.line.exchange_on(current, scripts, Duration::ZERO).await;
        }
        let requests = scripts.into_iter().flat_map(|script| [FORGO_NEWS, script]).collect();
        let mut replies =
            self.line.exchange_on(current, requests, Duration::ZERO).await?.into_iter();
        let mut received = Vec::with_capacity(replies.len() / 2);
        while let (Some(told), Some(reply)) = (replies.next(), replies.next()) {
            if told.is_err_and(|refusal| !refusal.is_retryable()) {
                self.line.take_all_news();
            }
            received.push(reply);
        }
        Ok(received)
    }

    /// There is a lane less, because of `error`. The last one tells those that wait, since no other sends them.
    fn give_up(&self, error: &Error) {
        let mut state = self.state();
        state.lanes -= 1;
        let left =
            if state.lanes == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
        drop(state);
        left.into_iter().for_each(|batch| Taken::new(batch).fail(error.repeated()));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller under way by itself.
struct Alone<'a, D: Driver>(&'a Pipeline<D>);

impl<D: Driver> Drop for Alone<'_, D> {
    fn drop(&mut self) {
        self.0.state().alone -= 1;
    }
}

/// A task that sends batches, until there is none.
struct Lane<D: Driver>(Option<Arc<Pipeline<D>>>);

impl<D: Driver> Lane<D> {
    async fn run(mut self) {
        while let Some(pipeline) = &self.0 {
            // The callers that were told just now join the next batch, if they have more to ask for.
            yield_now().await;
            let current = pipeline.line.current().await;
            if !in_order(&pipeline.order, pipeline.send_next(current)).await {
                self.0 = None;
            }
        }
    }
}

/// The runtime may end under it.
impl<D: Driver> Drop for Lane<D> {
    fn drop(&mut self) {
        if let Some(pipeline) = &self.0 {
            let message = "the runtime that was to send it has ended";
            pipeline.give_up(&Error::new(ErrorKind::Unavailable, message));
        }
    }
}

/// Runs `future`, the beginning of it with `order` locked.
async fn in_order<F: Future>(order: &Mutex<()>, future: F) -> F::Output {
    // Unconstrained, since a beginning that was put off would have sent nothing.
    let mut future = pin!(unconstrained(future));
    let begun = poll_fn(|context| {
        let _order = order.lock().unwrap_or_else(PoisonError::into_inner);
        Poll::Ready(future.as_mut().poll(context))
    });
    match begun.await {
        Poll::Ready(output) => output,
        Poll::Pending => future.await,
    }
}

#[cfg(test)]
mod tests;
