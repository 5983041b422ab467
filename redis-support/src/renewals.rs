//! Renewals of many mutexes by few scripts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::Lease;

use crate::client::{Client, Received, Request, Run};
use crate::layout::{Layout, Place};
use crate::line::Line;
use crate::reply::Reply;
use crate::script::Script;
use crate::words::{Words, millis};

/// Renews the mutexes of `leases`, which share a server: one script for each TTL. Tells of each whether it was renewed; the others take
/// scripts of their own.
pub(crate) async fn renew_all<C: Client>(
    line: &Arc<Line<C>>,
    layout: &Layout,
    leases: &[&Lease],
) -> Result<Vec<bool>, Error> {
    let mut order: Vec<usize> = (0..leases.len()).collect();
    order.sort_by_key(|index| leases[*index].ttl());
    let mut renewed = vec![false; leases.len()];
    for of_ttl in order.chunk_by(|one, other| leases[*one].ttl() == leases[*other].ttl()) {
        let mut words = Words::with_capacity(2 * of_ttl.len() + 2, 96 * of_ttl.len());
        words.push_key(&layout.shared_in(0), Place::Crowd);
        of_ttl.iter().for_each(|index| words.push_lock(layout, leases[*index].key()));
        words.end_keys();
        words.push_number(millis(leases[of_ttl[0]].ttl()));
        of_ttl.iter().for_each(|index| words.push_value(leases[*index]));
        let shape = words.shape(Script::RenewAll);
        let run = Run { shape: &shape, words: &words };
        let [reply] = line.run([Request::ByHash(run)], Duration::ZERO).await?;
        for (index, is_renewed) in of_ttl.iter().zip(read(&reply, of_ttl.len())) {
            renewed[*index] = is_renewed;
        }
    }
    Ok(renewed)
}

/// Whether each of so many locks was renewed. None was, as far as is known, if the reply makes no sense: a renewal may be repeated.
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
