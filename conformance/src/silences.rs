//! Records the replies and conditions that a case waited for in vain. If stalls of the machine
//! explain these waits, the stalls also explain the failure of the case.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};
use tokio::time::Instant;

use crate::stalls::{Stalls, Void};

/// The shortest time without a reply after which a case can fail.
const SHORTEST: Duration = Duration::from_millis(250);

/// Stalls explain a silence if they add up to at least one fourth of the silence. A reply depends
/// on several processes, each of which waits for the CPU.
const PART: u32 = 4;

/// The silences that the clients of a case have experienced. Clones share the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silences(Arc<Mutex<Vec<Silence>>>);

#[derive(Clone, Copy, Debug)]
struct Silence {
    began: Instant,
    ended: Instant,
}

/// A request in progress, or a condition that a case waits for. If this value is dropped before a
/// reply arrives, it becomes a silence.
#[derive(Debug)]
pub(crate) struct Waiting {
    silences: Silences,
    began: Instant,
    is_answered: bool,
}

impl Silences {
    /// Records that a request was sent to the store.
    pub(crate) fn ask(&self) -> Waiting {
        Waiting { silences: self.clone(), began: Instant::now(), is_answered: false }
    }

    /// Returns a [`Void`] if stalls of the machine explain one of the silences.
    pub(crate) fn explained_by(&self, stalls: &Stalls) -> Option<Void> {
        self.all().iter().find_map(|Silence { began, ended }| {
            let stalled = stalls.between(*began, *ended);
            let is_explained = stalled * PART >= *ended - *began;
            is_explained.then(|| Void { measured: "the store's answers".to_owned(), stalled })
        })
    }

    fn all(&self) -> MutexGuard<'_, Vec<Silence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Records the store's reply.
    pub(crate) fn ends(mut self, error: Option<&Error>) {
        let is_silence = |error: &Error| {
            matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable)
        };
        self.is_answered = !error.is_some_and(is_silence);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let ended = Instant::now();
        if !self.is_answered && ended - self.began >= SHORTEST {
            self.silences.all().push(Silence { began: self.began, ended });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn silence(answer: Option<ErrorKind>) -> Silences {
        let silences = Silences::default();
        let asked = silences.ask();
        tokio::time::sleep(SHORTEST).await;
        match answer {
            Some(kind) => asked.ends(Some(&Error::new(kind, "no"))),
            None => drop(asked),
        }
        silences
    }

    #[tokio::test(start_paused = true)]
    async fn only_requests_without_an_answer_are_silences() {
        assert_eq!(silence(None).await.all().len(), 1);
        assert_eq!(silence(Some(ErrorKind::Indeterminate)).await.all().len(), 1);
        assert_eq!(silence(Some(ErrorKind::Denied)).await.all().len(), 0);

        let answered = Silences::default();
        let asked = answered.ask();
        tokio::time::sleep(SHORTEST).await;
        asked.ends(None);
        assert_eq!(answered.all().len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_machine_that_stalls_explains_a_silence() {
        let silences = silence(None).await;
        let during = |stall| Stalls::of_one(SHORTEST, stall);

        assert!(silences.explained_by(&during(SHORTEST / PART)).is_some());
        assert!(silences.explained_by(&during(SHORTEST / PART / 2)).is_none());
        assert!(silences.explained_by(&Stalls::none()).is_none());
    }
}
