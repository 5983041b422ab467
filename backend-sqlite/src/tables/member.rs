//! Records the quorum that the file is a member of.

use leasehold_core::backend::{Charter, Enlistment, Standing, StoreId};
use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Failure;
use leasehold_sql_support::reply::remaining;
use leasehold_sql_support::request::{Acquire, Key, token};
use rusqlite::params;

use super::{Stop, Tables, emptied};

/// The statement that creates the table, which files from earlier versions lack.
const CREATE: &str = "
CREATE TABLE IF NOT EXISTS {member} (
  id INTEGER PRIMARY KEY CHECK (id = 0),
  store TEXT NOT NULL,
  charter TEXT,
  since INTEGER NOT NULL,
  incarnation TEXT NOT NULL
) STRICT;
";

impl Tables<'_> {
    pub(crate) fn create_member(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch(&self.layout.fill(CREATE, '"'))
    }

    /// Fails if the claim has a quorum configuration and the file has not joined the quorum with
    /// this configuration.
    pub(crate) fn check_charter(&self, claim: &Acquire) -> Result<(), Stop> {
        let Some(charter) = &claim.charter else { return Ok(()) };
        let text = "SELECT 1 FROM {member}, {host} WHERE charter = ?1 AND incarnation = boot";
        let enlisted = self.first(text, params![charter.as_str()], |_| Ok(()))?;
        enlisted
            .ok_or_else(|| Stop::Failed(Failure::NotEnlisted.error(Failure::NotEnlisted.message())))
    }

    /// Returns the membership status of the file. A file without an identity gets the identity
    /// `fresh`. Restarting the machine starts a new incarnation, because a restart ends all leases
    /// and a power failure may have lost commits.
    pub(crate) fn standing(&self, fresh: StoreId, now: i64) -> Result<Standing, Stop> {
        if self.host()?.boot.is_empty() {
            let message = "a file can be a member of a quorum only on Linux, because other systems do not identify restarts of the machine";
            return Err(Stop::Failed(Error::new(ErrorKind::Unsupported, message)));
        }
        self.execute(
            "INSERT INTO {member} SELECT 0, ?1, NULL, ?2, boot FROM {host} WHERE true \
             ON CONFLICT (id) DO UPDATE SET store = excluded.store, charter = NULL, \
                 since = excluded.since, incarnation = excluded.incarnation \
             WHERE incarnation <> excluded.incarnation",
            params![fresh.to_string(), now],
        )?;
        let row = self.first("SELECT store, charter, since FROM {member}", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?))
        })?;
        let (store, charter, since) = row.ok_or_else(|| emptied("member"))?;
        let store = StoreId::parse(&store)
            .ok_or_else(|| Stop::Failed(Failure::Layout.error(Failure::Layout.message())))?;
        Ok(Standing::new(store)
            .with_charter(charter.as_deref().map(Charter::from_text))
            .with_floor(self.floor()?)
            .with_age(remaining(now, since)))
    }

    /// Joins the quorum, if this is the intended file and it has not joined with a different quorum
    /// configuration.
    pub(crate) fn enlist(&self, enlistment: &Enlistment) -> Result<(), Stop> {
        let charter = enlistment.charter().as_str();
        let enlisted = self.first(
            "UPDATE {member} SET charter = ?2 WHERE store = ?1 AND coalesce(charter, ?2) = ?2 RETURNING 1",
            params![enlistment.store().to_string(), charter],
            |_| Ok(()),
        )?;
        if enlisted.is_some() {
            let floor = token(enlistment.floor());
            self.execute("UPDATE {stripe} SET token = max(token, ?1)", params![floor])?;
        }
        Ok(())
    }

    /// Returns the largest token of all lock-table partitions.
    fn floor(&self) -> Result<u64, Stop> {
        let text = "SELECT max(token) FROM {stripe} HAVING count(*) = ?1";
        let floor: Option<i64> = self.first(text, params![Key::STRIPES], |row| row.get(0))?;
        let floor = floor.ok_or_else(|| emptied("stripe"))?;
        Ok(u64::try_from(floor).unwrap_or_default())
    }
}
