//! Models of [`InOrder`]. The models check that no release is applied before an acquisition of its
//! lease, even if the caller of the acquisition has left, and that no record of an acquisition is
//! left at the end.

use std::sync::Arc;
use std::time::Duration;

use shuttle::future::block_on;
use shuttle::thread;

use super::{cancelled_after, in_many_orders, join};
use crate::batch::InOrder;
use crate::sync::{Mutex, lock, scheduling_point, yield_now};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Applied {
    Acquisition,
    Release,
}

/// A store with several connections, which applies each request at any time after it was sent.
#[derive(Default)]
struct Store {
    in_order: InOrder<u8>,
    /// The requests that were applied to each of the two leases.
    applied: [Mutex<Vec<Applied>>; 2],
}

impl Store {
    fn apply(&self, lease: u8, request: Applied) {
        lock(&self.applied[usize::from(lease)]).push(request);
    }

    /// Sends an acquisition of `leases`, and stops waiting for the reply after a number of polls.
    fn acquire(self: &Arc<Self>, leases: &'static [u8], polls: u32) {
        let store = Arc::clone(self);
        let acquisition = async move {
            yield_now().await;
            leases.iter().for_each(|lease| store.apply(*lease, Applied::Acquisition));
        };
        let acquiring = self.in_order.acquire(leases.iter().copied(), acquisition);
        cancelled_after(polls, acquiring);
    }

    fn release(&self, lease: u8) {
        block_on(async {
            let ended = self.in_order.wait_for_acquisitions(&lease, Duration::MAX).await;
            ended.expect("timers never fire in a model");
            scheduling_point();
            self.apply(lease, Applied::Release);
        });
    }
}

#[test]
fn release_is_applied_after_a_dropped_acquisition() {
    in_many_orders(|| {
        let store = Arc::new(Store::default());

        store.acquire(&[0], 1);
        store.release(0);

        assert_eq!(*lock(&store.applied[0]), [Applied::Acquisition, Applied::Release]);
        assert!(store.in_order.is_idle());
    });
}

#[test]
fn each_release_waits_for_all_acquisitions_of_its_lease() {
    in_many_orders(|| {
        let store = Arc::new(Store::default());
        // The second acquisition is a repetition for one of the leases.
        store.acquire(&[0, 1], 1);
        store.acquire(&[0], 2);

        let releasing = [0, 1].map(|lease| {
            let store = Arc::clone(&store);
            thread::spawn(move || store.release(lease))
        });
        join(releasing);

        let applied = [0, 1].map(|lease: usize| lock(&store.applied[lease]).clone());
        let (acquisition, release) = (Applied::Acquisition, Applied::Release);
        assert_eq!(applied[0], [acquisition, acquisition, release]);
        assert_eq!(applied[1], [acquisition, release]);
        assert!(store.in_order.is_idle());
    });
}
