//! Renews many mutexes with a few scripts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::Lease;

use crate::connection::ConnectionManager;
use crate::driver::{Driver, Request, Run};
use crate::layout::{Layout, Place};
use crate::reply::{Received, Reply};
use crate::script::Script;
use crate::words::{Words, millis};

/// Renews the mutexes of `leases` on one server, with one script per TTL in a single round trip.
/// Returns whether each mutex was renewed. Each lease that was not renewed needs a separate script.
pub(crate) async fn renew_all<D: Driver>(
    connection: &Arc<ConnectionManager<D>>,
    layout: &Layout,
    leases: &[&Lease],
) -> Result<Vec<bool>, Error> {
    let mut renewed = vec![false; leases.len()];
    if leases.is_empty() {
        return Ok(renewed);
    }
    let mut order: Vec<usize> = (0..leases.len()).collect();
    order.sort_by_key(|index| leases[*index].ttl());
    let mut words = Words::with_capacity(2 * leases.len() + 2, 96 * leases.len());
    let mut scripts = Vec::with_capacity(1);
    for of_ttl in order.chunk_by(|one, other| leases[*one].ttl() == leases[*other].ttl()) {
        words.begin();
        words.push_key(&layout.shared(), Place::Contended);
        of_ttl.iter().for_each(|index| words.push_lock(layout, leases[*index].key()));
        words.end_keys();
        words.push_number(millis(leases[of_ttl[0]].ttl()));
        of_ttl.iter().for_each(|index| words.push_value(leases[*index]));
        scripts.push((words.shape(Script::RenewAll), of_ttl));
    }
    let runs = scripts.iter().map(|(shape, _)| Run { shape, words: &words });
    let by_hash: Vec<_> = runs.map(Request::ByHash).collect();
    let replies = connection.run(&by_hash, Duration::ZERO).await?;
    for ((_, of_ttl), reply) in scripts.iter().zip(&replies) {
        for (index, is_renewed) in of_ttl.iter().zip(read(reply, of_ttl.len())) {
            renewed[*index] = is_renewed;
        }
    }
    Ok(renewed)
}

/// Returns whether each of `count` locks was renewed. If the reply cannot be read, all locks count
/// as not renewed, because a renewal may be retried.
fn read(reply: &Received, count: usize) -> Vec<bool> {
    let Ok(Reply::Array(left_alone)) = reply else { return vec![false; count] };
    let mut renewed = vec![true; count];
    for number in left_alone {
        let index = match number {
            Reply::Int(number) => usize::try_from(*number).ok().and_then(|n| n.checked_sub(1)),
            _ => None,
        };
        let Some(renewed) = index.and_then(|index| renewed.get_mut(index)) else {
            return vec![false; count];
        };
        *renewed = false;
    }
    renewed
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;

    use super::*;
    use crate::fake::Fake;

    fn lease(seconds: u64) -> Lease {
        Lease::new(&LockKey::new("k").unwrap(), Duration::from_secs(seconds))
    }

    #[tokio::test(start_paused = true)]
    async fn mutexes_of_several_ttls_are_renewed_in_one_round_trip() {
        let (fake, leases) = (Fake::default(), [3, 1, 2, 1].map(lease));
        // The script skips the second lease.
        fake.serve("h:1", |_words| Some(Ok(Reply::Array(vec![Reply::Int(2)]))));
        let connection = fake.connection(&Layout::default());
        connection.connect().await.unwrap();
        let before = fake.round_trips().len();

        let of: Vec<&Lease> = leases.iter().collect();
        let renewed = renew_all(&connection, &Layout::default(), &of).await.unwrap();

        assert_eq!(fake.round_trips()[before..], [3]);
        // A number that is larger than the number of leases is not valid, so none of the leases
        // counts as renewed.
        assert_eq!(renewed, [false, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_leases_take_no_request() {
        let fake = Fake::default();

        let connection = fake.connection(&Layout::default());
        assert!(renew_all(&connection, &Layout::default(), &[]).await.unwrap().is_empty());

        assert!(fake.round_trips().is_empty());
    }
}
