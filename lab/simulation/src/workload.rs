//! The work of one task: random calls of all kinds of lock.

mod profile;
mod wanted;

pub(crate) use self::profile::Profile;
pub(crate) use self::wanted::{ELECTION, KEYS, MUTEXES, Taken};

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use leasehold_conformance::history::event::outcome_of;
use leasehold_core::backend::Fencing;
use leasehold_core::{ErrorKind, LockClient, LockGuard, OwnerId};
use tokio::time::Instant;

use self::wanted::{Patience, Wanted};
use crate::clock::DriftingClock;
use crate::processor::Processor;
use crate::recorder::Terms;
use crate::world::World;

/// One task of a process.
pub(crate) struct Task {
    pub(crate) world: Arc<World>,
    pub(crate) client: LockClient,
    pub(crate) clock: DriftingClock,
    pub(crate) process: u32,
    pub(crate) profile: Profile,
    /// The owner of the locks that all tasks of the process have in common.
    pub(crate) common: OwnerId,
    pub(crate) rng: Rng,
}

impl Task {
    pub(crate) async fn run(mut self) {
        for _ in 0..self.profile.rounds {
            self.processor().running().await;
            match self.rng.u8(..24) {
                0..2 => self.ask_back().await,
                2 => self.observe().await,
                3 => self.operate().await,
                _ => {}
            }
            let wanted = Wanted::draw(&mut self.rng);
            match self.acquire(wanted).await {
                Some((call, taken)) => self.hold(wanted, call, taken).await,
                None => self.pause(300).await,
            }
        }
    }

    /// Asks the holders of a key to finish early.
    async fn ask_back(&mut self) {
        let key = self.key();
        let polls = self.rng.usize(..6);
        // A store may not be able to, or not answer.
        drop(dropped_after(polls, self.client.request_revocation(key)).await);
    }

    /// Waits for changes of leaders for a while.
    async fn observe(&mut self) {
        let Ok(election) = self.client.election(ELECTION) else { return };
        let mut observer = election.observe();
        for _ in 0..self.rng.u8(1..4) {
            let patience = Duration::from_millis(self.rng.u64(1..800));
            // A store that does not answer ends the call as an error.
            drop(self.processor().within(patience, observer.next()).await);
        }
    }

    /// Looks into a key, and rarely ends its leases.
    async fn operate(&mut self) {
        let (key, admin) = (self.key(), self.client.admin());
        if self.rng.u8(..4) == 0 {
            drop(admin.force_release(key, "a simulation").await);
        } else {
            drop(admin.inspect(key).await);
        }
    }

    async fn acquire(&mut self, wanted: Wanted) -> Option<(u64, Taken)> {
        let mut options = self.client.options();
        if self.rng.u8(..5) == 0 {
            options = options.ttl(Duration::from_millis(self.rng.u64(300..2_000)));
        }
        let owner = if self.rng.bool() { self.common } else { OwnerId::new() };
        let wait = Duration::from_millis(self.rng.u64(1..2_500));
        let (client, processor) = (self.client.clone(), self.processor().clone());
        let take = |patience| owner.scope(wanted.take(&client, options, patience));
        let form = self.rng.u8(..5);
        let limit = (form > 2).then_some(wait);
        let call = self.world.recorder.asked(self.process, wanted.key(), limit);
        let taken = match form {
            0 => Some(take(Patience::Once).await),
            1 => {
                let polls = self.rng.usize(..12);
                dropped_after(polls, take(Patience::For(wait))).await
            }
            2 => processor.within(wait, take(Patience::Unlimited)).await,
            _ => Some(take(Patience::For(wait)).await),
        };
        let outcome = match &taken {
            Some(Ok(Some(_))) => "granted".to_owned(),
            Some(Ok(None)) => "busy".to_owned(),
            Some(Err(error)) if error.kind() == ErrorKind::Unsupported => return None,
            Some(Err(error)) => outcome_of(error),
            None => "cancelled".to_owned(),
        };
        self.world.recorder.answered(self.process, call, outcome);
        Some((call, taken?.ok().flatten()?))
    }

    async fn hold(&mut self, wanted: Wanted, call: u64, taken: Taken) {
        let terms = self.terms(wanted, call);
        let taken = self.world.recorder.entered(taken, &terms);
        let until = Instant::now() + Duration::from_millis(self.rng.u64(1..2_600));
        let mut was_lost = false;
        while Instant::now() < until && !was_lost {
            self.pause(120).await;
            self.world.recorder.look();
            was_lost = !taken.guards().iter().all(LockGuard::is_held);
            self.use_leases(&taken, &terms).await;
            if self.rng.bool() && taken.guards().iter().any(LockGuard::is_revocation_requested) {
                break;
            }
        }
        if was_lost {
            // A late reply must not revive the lease.
            self.pause(600).await;
            self.world.recorder.look();
        }
        self.world.recorder.ends(&taken);
        let taken = Arc::into_inner(taken).expect("the recorder keeps no guard");
        self.end(call, taken).await;
    }

    fn terms(&self, wanted: Wanted, call: u64) -> Terms {
        Terms {
            process: self.process,
            call,
            clock: self.clock.clone(),
            kind: wanted.kind(),
            limit: wanted.limit(),
            is_fenced: self.client.backend().capabilities().fencing() > Fencing::None,
            is_renewed: self.profile.renews,
            // The limits of a client do not end a leadership.
            max_hold: self.profile.max_hold.filter(|_| !matches!(wanted, Wanted::Leader)),
        }
    }

    /// Works under the leases, and changes some of them.
    async fn use_leases(&mut self, taken: &Arc<Taken>, terms: &Terms) {
        for (index, guard) in taken.guards().iter().enumerate() {
            if terms.is_fenced && terms.limit.is_none() && guard.is_held() {
                self.world.recorder.write(taken, index);
            }
            if self.rng.u8(..8) == 0 {
                self.extend(guard).await;
            }
        }
        if let Taken::Leader(leadership) = &**taken
            && self.rng.u8(..4) == 0
        {
            let polls = self.rng.usize(..6);
            drop(dropped_after(polls, leadership.proclaim("still here")).await);
        }
    }

    async fn extend(&mut self, guard: &LockGuard) {
        let ttl = Duration::from_millis(self.rng.u64(200..Profile::LONGEST));
        let patience = Duration::from_millis(self.rng.u64(1..400));
        // The call may be dropped, refused or unanswered. The check of the deadline covers all of these outcomes.
        drop(self.processor().within(patience, guard.extend(ttl)).await);
        self.world.recorder.look();
    }

    async fn end(&mut self, call: u64, taken: Taken) {
        let polls = self.rng.usize(..6);
        match taken {
            Taken::Writer(guard) if self.rng.bool() => {
                if let Some(Ok(guard)) = dropped_after(polls, guard.downgrade()).await {
                    Box::pin(self.hold(Wanted::Reader, call, Taken::One(guard))).await;
                }
            }
            _ if self.rng.u8(..3) == 0 => drop(taken),
            _ if self.rng.bool() => drop(dropped_after(polls, taken.release()).await),
            _ => drop(taken.release().await),
        }
    }

    async fn pause(&mut self, longest: u64) {
        let time = Duration::from_micros(self.rng.u64(1_000..longest * 1_000));
        self.processor().sleep(time).await;
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.rng.usize(..KEYS.len())]
    }

    fn processor(&self) -> &Processor {
        self.clock.processor()
    }
}

/// Polls a future at most so many times, and drops it then: a call may be cancelled at every await.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}
