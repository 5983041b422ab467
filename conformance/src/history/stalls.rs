//! A witness of the times in which the machine runs no process of the campaign.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::history::event::{EventKind, now};
use crate::history::record::Record;

const PERIOD: Duration = Duration::from_millis(20);

/// A thread that is this late has stood still, and so may all others have.
const LATE: Duration = Duration::from_millis(200);

/// A thread that records when it is late. It ends when dropped.
#[derive(Debug)]
pub struct Stalls {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stalls {
    /// Starts the thread.
    pub fn watch(record: &Arc<Record>) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let (over, record) = (Arc::clone(&is_over), Arc::clone(record));
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let start = now();
                thread::sleep(PERIOD);
                let late = (now() - start).saturating_sub(PERIOD);
                if late > LATE {
                    record.add(0, EventKind::Stalled { late });
                }
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}
