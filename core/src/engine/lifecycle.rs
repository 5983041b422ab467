//! Operations on the whole engine: health checks, drain and shutdown.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::contract::backend::Operation;
use crate::contract::error::{Error, ErrorKind};
use crate::contract::loss::LossReason;
use crate::engine::pipeline::Engine;
use crate::engine::record::LeaseRecord;
use crate::engine::releases::PendingRelease;
use crate::sync::atomic::Ordering;

impl Engine {
    /// Checks whether the store is available.
    pub(crate) async fn ping(&self, within: Duration) -> Result<(), Error> {
        let give_up = self.now() + within;
        let answer = clock::until(self.clock(), give_up, async {
            if self.is_closed() { Err(Error::closed()) } else { self.store()?.ping().await }
        });
        let answer = answer.await.unwrap_or_else(|| {
            let message = format!("no reply within {within:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        });
        let backend = self.backend().capabilities().name();
        answer.map_err(|error| error.with_operation(Operation::Ping).with_backend(backend))
    }

    /// Ends all waits with an error, rejects new calls, and waits until no lease is held.
    pub(crate) async fn drain(&self, within: Duration) -> Result<(), Error> {
        let (background, give_up) = (&self.background, self.now() + within);
        self.stop_admitting()?;
        let drained = clock::until(background.clock(), give_up, async {
            loop {
                // Acquisitions in progress also count as pending releases. After this wait, no more
                // leases can be granted.
                background.releases().wait_settled().await;
                let held = self.held();
                // Another thread may have acquired and dropped a lock since the wait.
                if held.is_empty() && background.releases().unsettled() == 0 {
                    return;
                }
                for record in held {
                    record.wait_ended(background.clock()).await;
                }
            }
        });
        if drained.await.is_none() {
            let message = format!(
                "the client was not drained within {within:?}: {} leases are still held, and {} releases are not confirmed",
                self.held().len(),
                background.releases().unsettled()
            );
            return Err(Error::new(ErrorKind::Timeout, message)
                .with_operation(Operation::Shutdown)
                .with_backend(self.backend().capabilities().name()));
        }
        Ok(())
    }

    /// Returns the leases that are currently held.
    fn held(&self) -> Vec<Arc<LeaseRecord>> {
        let now = self.now();
        let mut records = self.background.watchdog().records();
        records.retain(|record| !record.is_over(now));
        records
    }

    /// Ends all waits with an error and rejects new calls.
    fn stop_admitting(&self) -> Result<(), Error> {
        let background = &self.background;
        background.process().check().map_err(|error| error.with_operation(Operation::Shutdown))?;
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        self.queue.close();
        background.ensure_running()
    }

    /// Releases all leases, ends all waits with an error, ends all leases, and closes the backend.
    pub(crate) async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        let (background, give_up) = (&self.background, self.now() + within);
        self.stop_admitting()?;
        let settled = clock::until(background.clock(), give_up, self.end_all()).await;
        self.backend().close().await;
        if settled.is_none() {
            let message = format!(
                "{} releases were not confirmed within {within:?}; the locks expire after their TTL",
                background.releases().unsettled()
            );
            return Err(Error::new(ErrorKind::Indeterminate, message)
                .with_operation(Operation::Shutdown)
                .with_backend(self.backend().capabilities().name()));
        }
        Ok(())
    }

    /// Ends all leases and waits until no release is pending.
    async fn end_all(&self) {
        self.end_filed();
        self.background.releases().wait_settled().await;
        // A lease that was granted during the first round may have been handed off since then.
        // After this point, no lease is granted.
        self.end_filed();
        self.background.releases().wait_settled().await;
    }

    /// Ends the leases in the watchdog's schedule. Queued releases follow.
    fn end_filed(&self) {
        let (background, now) = (&self.background, self.now());
        for record in self.held() {
            let mut release = PendingRelease::new(Arc::clone(&record), background.releases());
            release.arm();
            if !record.lose(LossReason::Shutdown, now) {
                release.disarm();
            }
        }
    }

    #[cfg(feature = "_simulation")]
    pub(crate) fn entries(&self) -> [(&'static str, usize); 4] {
        let background = &self.background;
        [
            ("queues", self.queue.len()),
            ("leases", background.watchdog().records().len()),
            ("owners", background.owners().len()),
            ("releases", background.releases().unsettled()),
        ]
    }
}
