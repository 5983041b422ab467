//! The rules of admission: which claims can hold a key together, and which waiters are next.
//!
//! The rules are pure functions. A store that keeps an [`Entry`](crate::backend::entry::Entry) per
//! key does not call them, because the entry does. A store whose queue contains entries of other
//! programs calls them with the holders and waiters that it finds. Stores that decide in a script
//! or in SQL implement the same rules, and the conformance suite compares them with the
//! [reference](crate::memory::Machine).
//!
//! | rule | example |
//! | --- | --- |
//! | A claim is granted if the permits of all holders, of all earlier waiters and of the claim fit into the limit of the claim. | The limit is 3. One permit is held, and a waiter requests two. A new claim for one permit waits, because it would overtake the waiter. |
//! | Each claim applies its own limit. | Two permits are held. A claim for one permit is granted with the limit 3 and refused with the limit 2. |
//! | An exclusive claim or waiter counts as one permit with the limit 1. | A key with any holder or earlier waiter refuses a mutex. |
//! | A reader requests one permit of `u32::MAX`, a writer requests all of them. | A reader joins readers and waiting readers, and waits behind a waiting writer. |
//! | A key that is held exclusively refuses claims for permits, and the other way round. | A semaphore with the name of a held mutex fails with [`ErrorKind::WrongType`](crate::ErrorKind::WrongType). |
//! | A claim whose own lease is in force is always granted again, with a new token. | The reply to a claim was lost, and the client repeats the claim. |
//! | As soon as a waiter can be granted, its queue entry lasts for at most its [reservation](crate::backend::Claim::reservation). | A waiter crashed. It delays later waiters by at most 250 ms. |

use crate::contract::backend::Mode;

/// Returns whether a claim for `claim` fits in addition to `others`, which are the holders and the
/// waiters that are ahead of the claim.
///
/// ```
/// use leasehold_core::backend::Mode;
/// use leasehold_core::backend::rules::fits;
///
/// let permits = |units| Mode::Units { units, limit: 3 };
/// assert!(fits(permits(1), [permits(2)]));
/// assert!(!fits(permits(2), [permits(2)]));
/// ```
pub fn fits(claim: Mode, others: impl IntoIterator<Item = Mode>) -> bool {
    let total: u64 = others.into_iter().chain([claim]).map(|mode| u64::from(mode.units())).sum();
    total <= u64::from(claim.limit())
}

/// Returns whether two claims use a key as the same type of lock, so that one of them can wait for
/// the other.
///
/// ```
/// use leasehold_core::backend::Mode;
/// use leasehold_core::backend::rules::is_same_type;
///
/// assert!(is_same_type(Mode::READER, Mode::WRITER));
/// assert!(!is_same_type(Mode::READER, Mode::Exclusive));
/// ```
pub fn is_same_type(claim: Mode, other: Mode) -> bool {
    claim.is_mutex() == other.is_mutex()
}

/// Returns how many waiters from the front of `queue` can be granted now, in addition to the
/// `holders`.
///
/// ```
/// use leasehold_core::backend::Mode;
/// use leasehold_core::backend::rules::grantable;
///
/// let queue = [Mode::READER, Mode::READER, Mode::WRITER, Mode::READER];
/// assert_eq!(grantable([], queue), 2);
/// ```
pub fn grantable(
    holders: impl IntoIterator<Item = Mode>,
    queue: impl IntoIterator<Item = Mode>,
) -> usize {
    let mut total: u64 = holders.into_iter().map(|mode| u64::from(mode.units())).sum();
    let fit = queue.into_iter().take_while(|mode| {
        total += u64::from(mode.units());
        total <= u64::from(mode.limit())
    });
    fit.count()
}
