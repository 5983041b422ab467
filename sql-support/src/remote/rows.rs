//! Reads the rows of a reply in which the first column of each row is a word that determines the
//! remaining columns.

use std::str::FromStr;

use leasehold_core::Error;

use crate::failure::Failure;

/// A row in text form. A column is `None` if its value is null.
///
/// [`Rows`] contains these rows.
pub type Row = Vec<Option<String>>;

/// The rows of all statements of a query batch, in order.
///
/// [`Run::run`](crate::remote::Run::run) returns these rows.
#[derive(Clone, Debug)]
pub struct Rows(pub Vec<Row>);

/// The reply to a statement.
///
/// [`Execute::execute`](crate::remote::Execute::execute) returns a value of this type.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The rows that a query returned.
    pub rows: Vec<Row>,
    /// MySQL: the number of rows that the statement has changed.
    pub changed: u64,
    /// MySQL: the insert id.
    pub insert_id: i64,
}

/// The columns of one row, which are read in order.
pub(crate) struct Columns<'a>(std::slice::Iter<'a, Option<String>>);

impl Rows {
    /// Returns the first row that starts with this word, without the word.
    pub(crate) fn one(&self, word: &str) -> Result<Columns<'_>, Error> {
        self.of(word).next().ok_or_else(nonsense)
    }

    /// Returns the rows that start with this word, without the word.
    pub(crate) fn of(&self, word: &str) -> impl Iterator<Item = Columns<'_>> {
        let rows = self.0.iter().map(|row| Columns(row.iter()));
        rows.filter_map(move |mut row| (row.text() == Some(word)).then_some(row))
    }
}

impl<'a> Columns<'a> {
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        self.0.next().and_then(Option::as_deref)
    }

    pub(crate) fn optional<T: FromStr>(&mut self) -> Result<Option<T>, Error> {
        self.text().map(|text| text.parse().map_err(|_| nonsense())).transpose()
    }

    pub(crate) fn number<T: FromStr>(&mut self) -> Result<T, Error> {
        self.optional()?.ok_or_else(nonsense)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Error> {
        self.number().map(|Flag(flag)| flag)
    }
}

/// A Boolean in the format of either dialect.
struct Flag(bool);

impl FromStr for Flag {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "1" | "t" => Ok(Self(true)),
            "0" | "f" => Ok(Self(false)),
            _ => Err(()),
        }
    }
}

fn nonsense() -> Error {
    Failure::Unexpected.error("the database's reply does not match the request")
}
