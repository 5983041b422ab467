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
    Message { client: usize, number: u64 },
    News { client: usize, number: u64 },
    Task { client: usize, life: u64, task: usize },
}

impl Schedule {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    pub(crate) fn stream(self, stream: Stream) -> Rng {
        let [kind, one, other] = match stream {
            Stream::Incidents => [1, 0, 0],
            Stream::Options => [2, 0, 0],
            Stream::Clock(client) => [3, client as u64, 0],
            Stream::Message { client, number } => [4, client as u64, number],
            Stream::News { client, number } => [5, client as u64, number],
            Stream::Task { client, life, task } => [6, client as u64 * 64 + task as u64, life],
        };
        let mixed =
            [kind, one, other].into_iter().fold(self.seed, |state, word| mix(state ^ mix(word)));
        Rng::with_seed(mixed)
    }
}

/// The finalizer of SplitMix64: neighbours become strangers.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
