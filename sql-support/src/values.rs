//! The values of the statements on the rows of the keys.

use uuid::Uuid;

use crate::call::Value;
use crate::rows::Row;

/// The values of a claim on a free key.
///
/// [`postgres::RowStatements::acquire`](crate::postgres::RowStatements::acquire) takes an argument of this type.
#[derive(Clone, Copy, Debug)]
pub struct FreeClaim<'a> {
    /// The key.
    pub key: &'a str,
    /// The tag of the lease.
    pub tag: Uuid,
    /// How long the lease is valid, in microseconds.
    pub ttl: i64,
    /// The fingerprint of the lease.
    pub fingerprint: &'a str,
    /// The description of the holder.
    pub description: Option<&'a str>,
    /// The number of additional tokens.
    pub spare: i64,
    /// The requested minimum token, or 0.
    pub requested_token: i64,
    /// The quorum configuration that the store must have joined, or `None`.
    pub membership: Option<&'a str>,
}

/// A lease in the simple state.
///
/// [`postgres::RowStatements::renew`](crate::postgres::RowStatements::renew) takes arguments of this type.
#[derive(Clone, Copy, Debug)]
pub struct HeldLease<'a> {
    /// The key.
    pub key: &'a str,
    /// The generation of the key's row. MySQL has no generations.
    pub generation: i64,
    /// The tag of the lease.
    pub tag: Uuid,
    /// How long the lease is valid after the renewal, in microseconds.
    pub ttl: i64,
    /// The description of the holder.
    pub description: Option<&'a str>,
}

/// One row to replace.
///
/// [`postgres::RowStatements::swap`](crate::postgres::RowStatements::swap) takes an argument of this type.
#[derive(Clone, Copy, Debug)]
pub struct Replacement<'a> {
    /// The key.
    pub key: &'a str,
    /// The generation of the key's row. MySQL has no generations.
    pub generation: i64,
    /// The token of the row that was read.
    pub old_token: i64,
    /// The end of the row that was read.
    pub old_ends: i64,
    /// The document that was read and the time of the reading, if another client has sent them in a
    /// notification. Everybody who can connect to the database can send notifications, so the row is
    /// replaced only if it has this document, and if the time is just past.
    pub told: Option<(&'a str, i64)>,
    /// The new row.
    pub row: &'a Row,
}

impl FreeClaim<'_> {
    pub(crate) fn values(&self) -> Vec<(&'static str, Value)> {
        let mut values: Vec<(&'static str, Value)> = vec![
            ("key", self.key.into()),
            ("tag", self.tag.into()),
            ("ttl", self.ttl.into()),
            ("fingerprint", self.fingerprint.into()),
            ("description", self.description.into()),
            ("spare", self.spare.into()),
            ("requested", self.requested_token.into()),
        ];
        if let Some(configuration) = self.membership {
            values.push(("configuration", configuration.into()));
        }
        values
    }
}

impl<'a> FreeClaim<'a> {
    /// Returns the values of several claims, without their quorum configuration.
    pub(crate) fn all(
        claims: impl IntoIterator<Item = &'a Self> + Clone,
    ) -> Vec<(&'static str, Value)> {
        let claims = || claims.clone().into_iter();
        let texts = |text: fn(&Self) -> Option<&str>| {
            Value::Texts(claims().map(|claim| text(claim).map(str::to_owned)).collect())
        };
        let ints =
            |int: fn(&Self) -> i64| Value::Ints(claims().map(|claim| Some(int(claim))).collect());
        vec![
            ("keys", texts(|claim| Some(claim.key))),
            ("tags", Value::Uuids(claims().map(|claim| Some(claim.tag)).collect())),
            ("ttls", ints(|claim| claim.ttl)),
            ("fingerprints", texts(|claim| Some(claim.fingerprint))),
            ("descriptions", texts(|claim| claim.description)),
            ("spares", ints(|claim| claim.spare)),
            ("requested_tokens", ints(|claim| claim.requested_token)),
        ]
    }
}

impl Replacement<'_> {
    pub(crate) fn values(&self) -> Vec<(&'static str, Value)> {
        let Self { key, old_token, old_ends, row, .. } = *self;
        vec![
            ("key", key.into()),
            ("old_token", old_token.into()),
            ("old_ends", old_ends.into()),
            ("token", row.token.into()),
            ("spare", row.spare.into()),
            ("tag", row.tag.into()),
            ("ends", row.ends.into()),
            ("since", row.since.into()),
            ("fingerprint", row.fingerprint.as_deref().into()),
            ("description", row.description.as_deref().into()),
            ("document", row.document.as_deref().into()),
        ]
    }
}
