//! Checks the tables and settings of a database.

use leasehold_core::Error;

use crate::remote::Rows;

/// The tables, permissions and settings in a database.
///
/// The `leasehold-postgres` crate uses the survey to decide whether to create the tables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Survey {
    /// Whether the user has the permission to create tables in the schema, or to create the schema if
    /// it does not exist.
    pub may_create: bool,
    /// Whether all tables exist.
    pub has_tables: bool,
    /// Whether the user has the permissions that Leasehold's SQL statements need.
    pub has_rights: bool,
    /// Whether commits wait for the disk, so that a crash does not lose acknowledged data.
    pub is_durable: bool,
    /// Whether the tables of layout 1 exist, whose leases may still be in force.
    pub has_old_leases: bool,
    /// Whether the database's encoding has all characters.
    pub has_all_characters: bool,
    /// Another schema that has such tables.
    pub other_schema: Option<String>,
    /// Whether the other schema is named like the user. Earlier versions preferred this schema.
    pub is_other_of_user: bool,
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
            may_create: row.flag()?,
            has_tables: row.flag()?,
            has_rights: row.flag()?,
            is_durable: row.text() == Some("on"),
            has_old_leases: row.flag()?,
            has_all_characters: row.flag()?,
            other_schema: row.text().map(str::to_owned),
            is_other_of_user: row.flag()?,
        })
    }
}
