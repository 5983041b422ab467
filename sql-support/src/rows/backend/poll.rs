//! Polls the rows of queued claims if the database does not report changes by other clients.

use std::time::Duration;

use leasehold_core::LockKey;
use leasehold_core::observe::count_poll;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::Backend;
use crate::rows::database::Database;

/// The first pauses of the first claim in a queue, in milliseconds. They are short, because the holder
/// may be about to release its lease. Shorter pauses would need a thread, because the runtime's timer
/// counts milliseconds.
const FIRST_PAUSES: [u64; 5] = [1, 1, 1, 1, 2];

/// The later pauses of the first claim in a queue during [`HURRY`].
const SHORT_PAUSE: Duration = Duration::from_millis(5);

/// How long the first claim in a queue polls at short intervals. A holder that has not released its
/// lease by then probably keeps the lease for a while.
const HURRY: Duration = Duration::from_secs(1);

/// The shortest pause of the first claim in a queue after [`HURRY`]. Multiples of this pause are the
/// longest pauses of later claims, which may become the first claim at any time.
const PAUSE: Duration = Duration::from_millis(25);

/// The pause of a later claim for each claim ahead of it, after a change of the queue. The other claims
/// may hold the lock only for a moment, and the key would be idle until the claim notices its grant.
const PAUSE_PER_CLAIM: Duration = Duration::from_millis(2);

/// After [`HURRY`], a pause of the first claim is this fraction of its wait, so that many waiters
/// do not load an idle database.
const FRACTION: u32 = 40;

/// A pause of a later claim is this fraction of the time since the queue changed. The queue probably
/// changes at a similar rate, so a claim notices a change soon.
const LATER_FRACTION: u32 = 2;

/// The longest pause, which is also the pause after an error.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The pauses between the polls of one claim.
struct Pauses {
    /// The number of claims that are ahead in the queue.
    ahead: usize,
    /// When this number last changed.
    since: Instant,
    /// The number of pauses since then.
    count: usize,
}

impl Pauses {
    fn new() -> Self {
        Self { ahead: 0, since: Instant::now(), count: 0 }
    }

    /// Returns the pause before the next poll if the queue contains `ahead` claims before this claim.
    fn next(&mut self, ahead: usize) -> Duration {
        if ahead != self.ahead {
            *self = Self { ahead, ..Self::new() };
        }
        self.count += 1;
        if ahead > 0 {
            let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
            let longest = PAUSE.saturating_mul(ahead.saturating_add(1)).min(LONGEST_PAUSE);
            let shortest = PAUSE_PER_CLAIM.saturating_mul(ahead).min(longest);
            return (self.since.elapsed() / LATER_FRACTION).clamp(shortest, longest);
        }
        match FIRST_PAUSES.get(self.count - 1) {
            Some(pause) => Duration::from_millis(*pause),
            None if self.since.elapsed() < HURRY => SHORT_PAUSE,
            None => (self.since.elapsed() / FRACTION).clamp(PAUSE, LONGEST_PAUSE),
        }
    }
}

impl<D: Database> Backend<D> {
    /// Polls the row of a queued claim until the claim can be granted or its caller has left, if the
    /// database does not report other clients' changes. A poll is a read, so it changes nothing.
    pub(super) fn poll_unless_notified(&self, key: &LockKey, tag: Uuid) {
        let (Some(news), Ok(runtime)) = (self.news(), Handle::try_current()) else { return };
        let Some(wait) = news.begins_to_poll(&tag) else { return };
        let (backend, news, key) = (self.clone(), news.clone(), key.clone());
        runtime.spawn(async move {
            let mut pauses = Pauses::new();
            let mut pause = pauses.next(0);
            loop {
                sleep(pause).await;
                if !news.is_queued(&tag, wait) {
                    return;
                }
                let state = match backend.opened().await {
                    Ok(database) => {
                        count_poll(D::NAME);
                        database.read(&key).await
                    }
                    Err(error) => Err(error),
                };
                pause = match state.map(|(state, _)| (state.ahead_of(&tag), state.needs_document()))
                {
                    Ok((Some(ahead), _)) => pauses.next(ahead),
                    Ok((None, needs_document)) => return news.wake(&tag, !needs_document),
                    // The caller notices the outage when it refreshes its queue entry.
                    Err(_) => LONGEST_PAUSE,
                };
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[tokio::test(start_paused = true)]
    async fn the_first_claim_polls_often_only_at_first() {
        let (mut pauses, mut polls) = (Pauses::new(), Vec::new());
        while pauses.since.elapsed() < MS(1_100) {
            let pause = pauses.next(0);
            polls.push(pause);
            sleep(pause).await;
        }

        assert_eq!(polls[..7], [1, 1, 1, 1, 2, 5, 5].map(MS));
        assert_eq!(polls.len(), 208, "{polls:?}");
        assert!((PAUSE..MS(30)).contains(&pauses.next(0)));
        sleep(MS(60_000)).await;
        assert_eq!(pauses.next(0), LONGEST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn later_claims_notice_soon_that_they_are_first() {
        for (step, polls) in [(MS(2), 1..=12), (MS(20), 1..=30), (MS(1_000), 40..=140)] {
            let (mut pauses, start, mut count) = (Pauses::new(), Instant::now(), 0);
            // Each claim ahead holds the lock for `step`.
            let ahead = || 8_u128.saturating_sub(start.elapsed().as_millis() / step.as_millis());
            while let ahead @ 1.. = ahead() {
                sleep(pauses.next(ahead.try_into().unwrap())).await;
                count += 1;
            }

            let late = start.elapsed() - 8 * step;
            assert!(late <= step.clamp(MS(1), 2 * PAUSE), "{late:?} late, with a step of {step:?}");
            assert!(polls.contains(&count), "{count} polls, with a step of {step:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pauses_of_later_claims_are_limited() {
        let mut limits = Vec::new();
        for ahead in [1, 2, 8, 9, usize::MAX] {
            let mut pauses = Pauses::new();
            pauses.next(ahead);
            sleep(MS(10_000)).await;
            limits.push(pauses.next(ahead));
        }

        assert_eq!(limits, [50, 75, 225, 250, 250].map(MS));
    }
}
