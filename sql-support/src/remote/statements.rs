//! The part of a dialect.

use std::fmt::Debug;

use leasehold_core::Error;
use leasehold_core::backend::{Enlistment, Finding, Fingerprint, StoreId};

use crate::remote::{Rows, Text};
use crate::request::{Acquire, Key, List, Named, Renew};

/// The texts of the transactions that [`Database`](crate::Database) lists, in one dialect. Both dialects reply in the same
/// [`Rows`](crate::remote::Rows).
pub trait Statements: Debug + Send + Sync + 'static {
    /// Decides a claim.
    fn acquire(&self, claim: &Acquire) -> Text;

    /// Decides several claims, 1 to [`Acquire::MAX_TOGETHER`], on keys of which each is different.
    fn acquire_all(&self, claims: &[Acquire]) -> Text;

    /// Renews 1 to [`Renew::MAX_TOGETHER`] leases.
    fn renew(&self, leases: &[Renew]) -> Text;

    /// Ends a lease, or gives up a place.
    fn release(&self, lease: &Named) -> Text;

    /// Asks the holders to finish.
    fn request_revocation(&self, key: &Key, only: Option<Fingerprint>) -> Text;

    /// Ends all holders.
    fn force_release(&self, key: &Key, only: Option<Fingerprint>) -> Text;

    /// Reads the holders.
    fn inspect(&self, key: &Key) -> Text;

    /// Reads the names of keys in use.
    fn list(&self, list: &List) -> Text;

    /// Reads the settings of the server that can endanger locks.
    fn diagnose(&self) -> Text;

    /// Judges the reply to [`diagnose`](Self::diagnose).
    ///
    /// # Errors
    ///
    /// Returns [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if it is none.
    fn findings(&self, rows: &Rows) -> Result<Vec<Finding>, Error>;

    /// Reads the standing as a member of a quorum, after the enlistment, if there is one.
    fn standing(&self, fresh: StoreId, enlistment: Option<&Enlistment>) -> Text;
}
