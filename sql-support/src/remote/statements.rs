//! The interface of an SQL dialect.

use std::fmt::Debug;

use leasehold_core::Error;
use leasehold_core::backend::{Enlistment, Finding, Fingerprint, StoreId};

use crate::remote::{Rows, Text};
use crate::request::{Acquire, Key, List, Named, Renew};

/// Creates the query batches for the transactions of [`Database`](crate::Database) in one SQL
/// dialect. In both dialects, the replies contain [`Rows`](crate::remote::Rows) with the same
/// columns.
///
/// [`mysql::Statements`](crate::mysql::Statements) and
/// [`postgres::Statements`](crate::postgres::Statements) implement this trait.
pub trait Statements: Debug + Send + Sync + 'static {
    /// Returns the query batch that decides whether a claim is granted.
    fn acquire(&self, claim: &Acquire) -> Text;

    /// Returns the query batch that decides 1 to [`Acquire::MAX_TOGETHER`] claims on different
    /// keys.
    fn acquire_all(&self, claims: &[Acquire]) -> Text;

    /// Returns the query batch that renews 1 to [`Renew::MAX_TOGETHER`] leases.
    fn renew(&self, leases: &[Renew]) -> Text;

    /// Returns the query batch that releases a lease or removes a queue entry.
    fn release(&self, lease: &Named) -> Text;

    /// Returns the query batch that requests the revocation of leases.
    fn request_revocation(&self, key: &Key, only: Option<Fingerprint>) -> Text;

    /// Returns the query batch that revokes leases.
    fn force_release(&self, key: &Key, only: Option<Fingerprint>) -> Text;

    /// Returns the query batch that reads the holders.
    fn inspect(&self, key: &Key) -> Text;

    /// Returns the query batch that reads the names of keys in use.
    fn list(&self, list: &List) -> Text;

    /// Returns the query batch that reads the settings that can endanger locks.
    fn diagnose(&self) -> Text;

    /// Evaluates the reply to [`diagnose`](Self::diagnose).
    ///
    /// # Errors
    ///
    /// Returns [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if the reply does not match
    /// the request.
    fn findings(&self, rows: &Rows) -> Result<Vec<Finding>, Error>;

    /// Returns the query batch that reads the membership status. If `enlistment` is given, the
    /// batch joins the quorum first.
    fn standing(&self, fresh: StoreId, enlistment: Option<&Enlistment>) -> Text;
}
