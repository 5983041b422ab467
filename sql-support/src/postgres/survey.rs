//! The tables of a database, and its settings.

use leasehold_core::Error;

use crate::remote::Rows;

/// The tables, rights and settings in a database.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Survey {
    /// The schema of the tables or, if there are none, the one where they would be made; `None`: there is none.
    pub schema: Option<String>,
    /// Whether all tables are there.
    pub has_tables: bool,
    /// Whether the user has the rights on them that the texts need.
    pub has_rights: bool,
    /// Whether the server waits for the disk, so that a crash loses nothing that it acknowledged.
    pub is_durable: bool,
}

impl Survey {
    /// Reads the reply to [`Statements::survey`](super::Statements::survey).
    ///
    /// # Errors
    ///
    /// [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if it is none.
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
