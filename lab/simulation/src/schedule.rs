//! The source of all draws.

use fastrand::Rng;

/// The draws of one seed, as independent streams.
///
/// Each message and each task has a stream of its own. A draw in one stream moves no other stream, so a run without one incident
/// differs from the run with it by nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    seed: u64,
}

/// The purpose of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Incidents,
    Options,
    Clock(usize),
    StoreClock(usize),
    Message(LinkId, u64),
    Notification(LinkId, u64),
    Task { client: usize, life: u64, task: usize },
    Wake { client: usize, number: u64 },
}

/// The link of a client's process to a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkId {
    pub(crate) client: usize,
    /// Which of the client's processes.
    pub(crate) life: u64,
    pub(crate) store: usize,
}

impl Schedule {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    pub(crate) fn stream(self, stream: Stream) -> Rng {
        let words = match stream {
            Stream::Incidents => [1, 0, 0, 0],
            Stream::Options => [2, 0, 0, 0],
            Stream::Clock(client) => [3, client as u64, 0, 0],
            Stream::StoreClock(store) => [4, store as u64, 0, 0],
            Stream::Message(link, number) => [5, link.place(), link.life, number],
            Stream::Notification(link, number) => [6, link.place(), link.life, number],
            Stream::Task { client, life, task } => [7, client as u64, life, task as u64],
            Stream::Wake { client, number } => [8, client as u64, 0, number],
        };
        let mixed = words.into_iter().fold(self.seed, |state, word| mix(state ^ mix(word)));
        Rng::with_seed(mixed)
    }
}

impl LinkId {
    fn place(self) -> u64 {
        (self.client as u64) << 32 | self.store as u64
    }
}

/// The finalizer of SplitMix64: neighbours become strangers.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
