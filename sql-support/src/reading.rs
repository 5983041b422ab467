//! A row of a key, as a statement returns it.

use std::str::FromStr;

use crate::rows::Row;

/// The row of a key, and what was read with it.
///
/// The `read` and `create` statements of [`postgres`](crate::postgres) and
/// [`mysql`](crate::mysql) return it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reading {
    /// The key.
    pub key: String,
    /// The generation of the row. MySQL has no generations.
    pub generation: i64,
    /// The row, or `None` if the key has none.
    pub row: Option<Row>,
    /// Every new token of the key must be larger than this token.
    pub min_token: i64,
    /// The clock of the database, in microseconds since 1970.
    pub now: i64,
}

impl Reading {
    /// Reads the columns of a row. Returns `None` if the reply does not match the request.
    pub fn of(columns: &[Option<String>]) -> Option<Self> {
        let [
            key,
            generation,
            token,
            spare,
            tag,
            ends,
            since,
            fingerprint,
            description,
            document,
            min_token,
            now,
        ] = columns
        else {
            return None;
        };
        let row = match token {
            None => None,
            Some(token) => Some(Row {
                token: token.parse().ok()?,
                spare: required(spare)?,
                tag: optional(tag).ok()?,
                ends: required(ends)?,
                since: optional(since).ok()?,
                fingerprint: fingerprint.clone(),
                description: description.clone(),
                document: document.clone(),
            }),
        };
        Some(Self {
            key: key.clone()?,
            generation: optional(generation).ok()?.unwrap_or(0),
            row,
            min_token: required(min_token)?,
            now: required(now)?,
        })
    }
}

impl Reading {
    /// Reads the message of a client that has queued a claim. Returns `None` if the message is not
    /// valid.
    pub(crate) fn told(text: &str) -> Option<Self> {
        let mut words = text.splitn(6, ' ');
        let key = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        let (generation, token, ends) = (number()?, number()?, number()?);
        let now = number()?;
        let document = Some(words.next()?.to_owned());
        let row = Some(Row { token, ends, document, ..Row::default() });
        // The row's token is at least the minimum token that its writer has read.
        Some(Self { key, generation, row, min_token: 0, now })
    }
}

fn required<T: FromStr>(column: &Option<String>) -> Option<T> {
    column.as_deref()?.parse().ok()
}

/// Returns `None` for the null of SQL.
fn optional<T: FromStr>(column: &Option<String>) -> Result<Option<T>, T::Err> {
    column.as_deref().map(str::parse).transpose()
}
