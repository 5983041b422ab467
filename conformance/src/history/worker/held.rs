//! What a task does with a guard.

use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LeaseState, LockGuard, LossReason, RenewalMode};
use tokio::time::{Instant, sleep};

use super::lock::{Guards, Lock};
use super::teller::Teller;
use crate::history::event::{EventKind, LeaseInfo, now, reason_of, since_boot};
use crate::history::line::Said;
use crate::history::run::Register;

/// The maximum time between the read and the write of an update.
const UPDATE: Duration = Duration::from_millis(5);

/// Reports the state of one guard.
pub(super) struct Belief {
    teller: Arc<Teller>,
    hold: u64,
    key: String,
    token: u64,
    /// Whether the holder excludes all other holders and may therefore write.
    is_alone: bool,
}

impl Belief {
    /// Reports that a task's call has returned the lock, unless the lock is already lost.
    pub(super) fn enter(
        teller: &Arc<Teller>,
        (task, call): (u32, u64),
        lock: &Lock,
        renewal: RenewalMode,
        guard: &LockGuard,
    ) -> Option<Self> {
        let at = now();
        if !guard.is_held() {
            return None;
        }
        let (hold, key, token) = (teller.next(), guard.key().to_string(), guard.token().number());
        let (units, limit) = (lock.units(guard), lock.limit());
        let entered = EventKind::Entered {
            hold,
            call,
            task,
            key: key.clone(),
            kind: lock.kind(),
            token,
            units,
            limit,
            deadline: since_boot(guard.deadline()),
            lease: lease_info(guard, renewal),
        };
        teller.tell_at(at, entered);
        let is_alone = units == limit;
        Some(Self { teller: Arc::clone(teller), hold, key, token, is_alone })
    }

    /// Checks whether the guard is held, and reports the result.
    fn look(&self, guard: &LockGuard) -> bool {
        let (at, hold) = (now(), self.hold);
        let state = guard.state();
        let deadline = since_boot(guard.deadline());
        match state {
            LeaseState::Lost(reason) => {
                let reason = reason_of(reason);
                self.teller.tell(EventKind::Lost { hold, deadline: Some(deadline), reason });
                false
            }
            _ => {
                self.teller.tell_at(at, EventKind::Held { hold, deadline });
                true
            }
        }
    }

    /// Does work that `run` cancels if the lock is lost. Reports if the work continues after a loss
    /// notification.
    pub(super) async fn work(&self, guard: &LockGuard, ttl: Duration, time: Duration) {
        let until = Instant::now() + time;
        let mut is_held = true;
        while Instant::now() < until {
            sleep((ttl / 16).mul_f64(fastrand::f64())).await;
            if !is_held {
                self.teller.tell(EventKind::WentOn { hold: self.hold });
            }
            act(self, guard, ttl).await;
            is_held = self.look(guard);
        }
        self.end(guard, true);
    }

    /// Reports the loss of a guard whose work `run` has cancelled.
    pub(super) fn tell_loss(&self) {
        let (hold, reason) = (self.hold, "told by run".to_owned());
        self.teller.tell(EventKind::Lost { hold, deadline: None, reason });
    }

    /// Reports that the guard is about to be released, unless it is lost.
    fn end(&self, guard: &LockGuard, waits: bool) {
        let (at, hold) = (now(), self.hold);
        let deadline = since_boot(guard.deadline());
        if guard.is_held() {
            self.teller.tell_at(at, EventKind::Ends { hold, deadline, waits });
        } else {
            self.look(guard);
        }
    }

    /// Writes without checking the guard again. A process that was paused before this point writes
    /// too late.
    async fn write(&self, register: Register) {
        let (hold, key, token) = (self.hold, self.key.clone(), self.token);
        match register {
            Register::Fenced => {
                self.teller.ask(hold, Said::WriteFenced { hold, key, token }).await;
            }
            Register::Unfenced => {
                let read = self.teller.ask(hold, Said::Read { hold, key: key.clone() }).await;
                sleep(UPDATE.mul_f64(fastrand::f64())).await;
                self.teller.ask(hold, Said::WriteUnfenced { hold, key, read }).await;
            }
        }
    }
}

fn lease_info(guard: &LockGuard, renewal: RenewalMode) -> LeaseInfo {
    let lease = guard.lease();
    let fingerprint = lease.id().fingerprint().to_string();
    let id = u64::from_str_radix(&fingerprint, 16).expect("a fingerprint is a hexadecimal number");
    LeaseInfo { id, ttl: lease.ttl(), is_renewed: renewal == RenewalMode::Watchdog }
}

/// The guards of a call, and the reports about them.
pub(super) struct Held {
    beliefs: Vec<Belief>,
    guards: Guards,
}

impl Held {
    /// Reports that the lock was received, unless one of its guards is already lost.
    pub(super) fn enter(
        teller: &Arc<Teller>,
        caller: (u32, u64),
        lock: &Lock,
        renewal: RenewalMode,
        guards: Guards,
    ) -> Option<Self> {
        let all = guards.all();
        let enter = |guard: &&LockGuard| Belief::enter(teller, caller, lock, renewal, guard);
        let beliefs: Vec<_> = all.iter().map_while(enter).collect();
        if beliefs.len() < all.len() {
            // The parts that are still held end together with the lost parts.
            beliefs.iter().zip(all).for_each(|(belief, guard)| belief.end(guard, false));
            return None;
        }
        Some(Self { beliefs, guards })
    }

    /// Works for some time and then releases the guard in one of several ways.
    pub(super) async fn live(self, ttl: Duration, renewal: RenewalMode) {
        let lost = lost(&self.guards.all());
        let mut lost = pin!(lost);
        let until = Instant::now() + hold_time(ttl, renewal);
        loop {
            let pause = (ttl / 8).mul_f64(fastrand::f64());
            let left = until.saturating_duration_since(Instant::now());
            tokio::select! {
                biased;
                () = &mut lost => return self.end(false),
                () = sleep(pause.min(left)) => {}
            }
            for (belief, guard) in self.beliefs.iter().zip(self.guards.all()) {
                act(belief, guard, ttl).await;
            }
            if !self.look() {
                return self.end(false);
            }
            if Instant::now() >= until {
                break;
            }
        }
        match fastrand::u8(..32) {
            // The lease expires after its TTL. Reentrant locks are excluded, because a task that
            // forgets its guard could lock the lock again.
            0 if renewal == RenewalMode::Off && self.is_plain() => mem::forget(self.guards),
            1 | 2 => self.end(false),
            _ => {
                self.tell_end(true);
                // A failed release continues in the background, like the release of a dropped
                // guard.
                drop(self.guards.release().await);
            }
        }
    }

    fn is_plain(&self) -> bool {
        matches!(self.guards, Guards::One(_))
    }

    fn look(&self) -> bool {
        // All parts must report their state.
        let states: Vec<_> =
            self.beliefs.iter().zip(self.guards.all()).map(|(it, guard)| it.look(guard)).collect();
        states.into_iter().all(|is_held| is_held)
    }

    fn tell_end(&self, waits: bool) {
        self.beliefs.iter().zip(self.guards.all()).for_each(|(it, guard)| it.end(guard, waits));
    }

    /// Drops the guards.
    fn end(self, waits: bool) {
        self.tell_end(waits);
    }
}

/// A future that resolves on a loss and does not borrow the guard.
type Loss = Pin<Box<dyn Future<Output = Option<LossReason>> + Send>>;

/// Waits until one of the guards reports a loss.
fn lost(guards: &[&LockGuard]) -> impl Future<Output = ()> + Send + use<> {
    let lost = |guard: &&LockGuard| -> Loss { Box::pin(guard.lost()) };
    let losses: Vec<_> = guards.iter().map(lost).collect();
    async move {
        futures_util::future::select_all(losses).await;
    }
}

/// Returns a random time. One out of 64 times is three TTLs long, so the lease must be renewed.
/// Most times are short, so that keys change holders often.
fn hold_time(ttl: Duration, renewal: RenewalMode) -> Duration {
    match fastrand::u8(..64) {
        0 if renewal == RenewalMode::Watchdog => ttl * 3,
        1..6 => (ttl / 2).mul_f64(fastrand::f64()),
        _ => (ttl / 100).mul_f64(fastrand::f64()),
    }
}

async fn act(belief: &Belief, guard: &LockGuard, ttl: Duration) {
    match fastrand::u8(..16) {
        0..6 if belief.is_alone => belief.write(Register::Fenced).await,
        6..10 if belief.is_alone => belief.write(Register::Unfenced).await,
        10 => tokio::select! {
            _lost = guard.lost() => {}
            _extended = guard.extend(ttl) => {}
        },
        _ => {}
    }
}
