//! When this process has seen each renewal of a lease for the first time.

use std::collections::HashMap;

use uuid::Uuid;

/// The renewals of one key that this process has seen. All times are local, in microseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// When the last request was sent whose reply showed the document.
    last_read: Option<i64>,
    seen: HashMap<Uuid, Seen>,
}

/// The first observation of a renewal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Seen {
    /// The number of the write that made the renewal.
    write: u64,
    /// The renewal was made after this time, because an earlier read did not show it.
    after: Option<i64>,
}

impl Observed {
    /// Records the current renewals, which are given by lease and write, from the reply to a
    /// request that was `sent` at this time. `own` is the number of the request, if it is a write.
    pub(crate) fn see(
        &mut self,
        writes: impl Iterator<Item = (Uuid, u64)>,
        sent: i64,
        own: Option<u64>,
    ) {
        let last_read = self.last_read;
        let seen = writes.map(|(tag, write)| match self.seen.get(&tag) {
            Some(seen) if seen.write == write => (tag, *seen),
            _ if own == Some(write) => (tag, Seen { write, after: Some(sent) }),
            _ => (tag, Seen { write, after: last_read }),
        });
        self.seen = seen.collect();
        self.last_read = Some(sent);
    }

    /// Returns a time before the renewal, if this process knows one.
    pub(crate) fn not_before(&self, tag: &Uuid, write: u64) -> Option<i64> {
        self.seen.get(tag).filter(|seen| seen.write == write)?.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_was_made_after_the_last_read_that_did_not_show_it() {
        let (mut observed, tag) = (Observed::default(), Uuid::from_u128(1));

        observed.see([(tag, 7)].into_iter(), 10, None);
        observed.see([(tag, 7)].into_iter(), 20, None);
        observed.see([(tag, 8)].into_iter(), 30, None);
        observed.see([(tag, 8)].into_iter(), 40, None);

        assert_eq!(observed.not_before(&tag, 7), None);
        assert_eq!(observed.not_before(&tag, 8), Some(20));
    }

    #[test]
    fn the_first_read_does_not_show_when_a_renewal_was_made() {
        let (mut observed, tag) = (Observed::default(), Uuid::from_u128(1));

        observed.see([(tag, 7)].into_iter(), 10, None);

        assert_eq!(observed.not_before(&tag, 7), None);
    }

    #[test]
    fn a_renewal_of_this_process_was_made_after_its_request_was_sent() {
        let (mut observed, tag) = (Observed::default(), Uuid::from_u128(1));

        observed.see([(tag, 7)].into_iter(), 10, None);
        observed.see([(tag, 8)].into_iter(), 90, Some(8));

        assert_eq!(observed.not_before(&tag, 8), Some(90));
    }
}
