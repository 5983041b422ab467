//! Runs calls on the caller's thread if the file is open and idle, and otherwise on a thread that
//! opens the file.

#[cfg(test)]
mod tests;

use std::time::Instant;

use leasehold_core::batch::{Transactional, Waker, Worker as Thread};
use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::remote::Urgency;
use leasehold_sql_support::rows::Clock;
use leasehold_sql_support::{Failure, News};

use crate::config::SqliteConfig;
use crate::poll::{Poller, longest_interval};
use crate::store::Store;
use crate::tables::{Stop, Tables};

/// A handle to the thread. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Worker(Thread<Opener>);

/// Opens the file for the thread.
#[derive(Debug)]
pub(crate) struct Opener {
    config: SqliteConfig,
    /// The open file.
    store: Option<Store>,
    poller: Poller,
}

impl Worker {
    /// Starts the thread. The thread opens the file for its first call.
    pub(crate) fn start(config: SqliteConfig) -> Result<(Self, News), Error> {
        let timeout = config.timeout;
        let mut news = None;
        let open = |waker: Waker<Opener>| {
            // Without the interval, each acquired lock would wake the thread.
            let watched = News::when_watched(move |concerns| {
                waker.wake_by(Instant::now() + longest_interval(concerns));
            });
            let poller = Poller::new(news.insert(watched).clone());
            Opener { config, store: None, poller }
        };
        let thread = Thread::start("leasehold-sqlite", timeout, open)?;
        Ok((Self(thread), news.expect("the thread has started")))
    }

    /// Runs `work` in a write transaction, either immediately on the caller's thread, or on the
    /// thread.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped before `work` has started, `work` does not run.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        urgency: Urgency,
        mut work: impl FnMut(&Tables, Clock) -> Result<T, Stop> + Send + 'static,
    ) -> Result<T, Error> {
        if let Some(done) = self.try_now(&mut work) {
            return done;
        }
        let steps = move |(tables, clock): &mut (&Tables, Clock)| work(tables, *clock);
        match urgency {
            Urgency::Renews => self.0.write_urgent(steps).await,
            _ => self.0.write(steps).await,
        }
    }

    /// Runs `work`, which must not change the tables, on the thread.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped before `work` has started, `work` does not run.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store, Instant) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let work = move |opener: &mut Opener, until| {
            opener.with_store(until, |store, _| work(store, until))
        };
        self.0.read(work).await
    }

    /// Runs `work` on the caller's thread, if the thread is idle and the file is open and not busy.
    /// Returns `None` otherwise.
    ///
    /// A short transaction does not wait for other processes, and usually does not wait for the disk.
    /// On the thread, the transaction would take three times as long.
    fn try_now<T>(
        &self,
        work: impl FnOnce(&Tables, Clock) -> Result<T, Stop>,
    ) -> Option<Result<T, Error>> {
        let opener = self.0.if_idle()?;
        let open = opener.store.as_ref()?;
        // If a panic has left a transaction open, `write_now` does not use the connection.
        let done = open.write_now(work)?;
        if open.needs_upkeep() {
            self.0.waker().wake_by(Instant::now());
        }
        Some(done)
    }

    /// Closes the file after all earlier calls, and rejects later calls.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. Even if it is dropped, the file is closed.
    pub(crate) async fn close(&self) {
        self.0.close().await;
    }
}

impl Transactional for Opener {
    type Transaction<'a> = (&'a Tables, Clock);
    type Stop = Stop;

    fn transact(
        &mut self,
        until: Instant,
        steps: &mut dyn FnMut(&mut (&Tables, Clock)) -> Result<(), Stop>,
    ) -> Result<(), Error> {
        let run = |tables: &Tables, clock| steps(&mut (tables, clock));
        self.with_store(until, |store, _| store.write(until, run))
    }

    fn due(&self) -> Option<Instant> {
        self.poller.due()
    }

    /// Polls the file.
    fn act(&mut self) {
        if self.poller.is_idle() {
            // No caller needs the file at this point, so a replaced file is not opened again.
            self.store = self.take_store();
            self.poller.rest();
            return;
        }
        let until = Instant::now() + self.config.timeout;
        let polled = self.with_store(until, |store, poller| poller.poll(store, until));
        if polled.is_err() || self.store.as_ref().is_some_and(Store::is_snapshot) {
            self.poller.failed();
        }
    }

    fn tidy(&mut self) {
        if let Some(store) = &mut self.store
            && store.needs_upkeep()
        {
            store.do_upkeep();
        }
    }

    fn close(&mut self) {
        drop(self.take_store());
    }
}

impl Opener {
    /// Runs `work` on the open file. Opens the file if it is not open, was replaced, or cannot be used
    /// after the last call.
    fn with_store<T>(
        &mut self,
        until: Instant,
        work: impl FnOnce(&mut Store, &mut Poller) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut store = match self.take_store() {
            Some(store) => store,
            None => {
                let opened = Store::open(&self.config, self.poller.news(), until);
                let store = opened.map_err(harmless)?;
                self.poller.forget();
                self.poller.poll(&store, until)?;
                store
            }
        };
        let done = work(&mut store, &mut self.poller);
        if done.as_ref().err().is_none_or(Store::is_usable_after) {
            self.store = Some(store);
        }
        done
    }

    /// Returns the open file if it can be used again, and closes it otherwise. If the file was deleted or
    /// replaced, or is a snapshot, notifies holders, which then check their leases.
    fn take_store(&mut self) -> Option<Store> {
        let store = self.store.take()?;
        if store.is_in_place() {
            return Some(store).filter(Store::is_usable);
        }
        store.close_replaced();
        self.poller.notify_replaced();
        None
    }
}

/// Converts an error of opening the file, which can be repeated.
fn harmless(error: Error) -> Error {
    if error.kind() == ErrorKind::Indeterminate {
        Failure::NotApplied.because("the file did not respond in time", error)
    } else {
        error
    }
}
