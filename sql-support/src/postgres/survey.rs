//! Checks the tables and settings of a database.

use leasehold_core::Error;

use crate::remote::Rows;

/// The tables, permissions and settings in a database.
///
/// The `leasehold-postgres` crate uses the survey to decide whether to create the tables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Survey {
    /// The schema of the tables. If there are no tables, this is the schema in which they would be
    /// created, or `None` if there is no such schema.
    pub schema: Option<String>,
    /// Whether all tables exist.
    pub has_tables: bool,
    /// Whether the user has the permissions that Leasehold's SQL statements need.
    pub has_rights: bool,
    /// Whether commits wait for the disk, so that a crash does not lose acknowledged data.
    pub is_durable: bool,
}

impl Survey {
    /// Reads the reply to [`Statements::survey`](super::Statements::survey).
    ///
    /// # Errors
    ///
    /// Returns [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if the reply does not match
    /// the request.
    pub fn read(rows: &Rows) -> Result<Self, Error> {
        let mut row = rows.one("survey")?;
        Ok(Self {
            schema: row.text().map(str::to_owned),
            has_tables: row.flag()?,
            has_rights: row.flag()?,
            is_durable: row.text() == Some("on"),
        })
    }
}
