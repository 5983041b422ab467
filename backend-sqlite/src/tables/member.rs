//! Records the quorum that the file is a member of.

use leasehold_core::backend::entry::StoreTime as _;
use leasehold_core::backend::{JoinRequest, MemberStatus, QuorumConfiguration, StoreId};
use leasehold_core::{Error, ErrorKind};
use leasehold_sql_support::Failure;
use leasehold_sql_support::request::token;
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

impl Tables {
    pub(crate) fn create_member(&self) -> rusqlite::Result<()> {
        self.execute_batch(CREATE)
    }

    /// Fails if the file has not joined the quorum with this configuration.
    pub(crate) fn check_membership(&self, quorum: &QuorumConfiguration) -> Result<(), Stop> {
        let text = "SELECT 1 FROM {member}, {host} WHERE charter = ?1 AND incarnation = boot";
        let member = self.first(text, params![quorum.as_str()], |_| Ok(()))?;
        member.ok_or_else(|| Stop::Failed(Failure::NotMember.error(Failure::NotMember.message())))
    }

    /// Returns the membership status of the file. A file without an identity gets the identity
    /// `fresh`. Restarting the machine starts a new incarnation, because a restart ends all leases
    /// and a power failure may have lost commits.
    pub(crate) fn member_status(&self, fresh: StoreId, now: i64) -> Result<MemberStatus, Stop> {
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
        let (store, configuration, since) = row.ok_or_else(|| emptied("member"))?;
        let store = StoreId::parse(&store)
            .ok_or_else(|| Stop::Failed(Failure::Layout.error(Failure::Layout.message())))?;
        Ok(MemberStatus::new(store)
            .with_configuration(configuration.as_deref().map(QuorumConfiguration::from_text))
            .with_min_token(self.largest_token()?)
            .with_age(now.since(since)))
    }

    /// Joins the quorum, if this is the intended file and it has not joined with a different quorum
    /// configuration.
    pub(crate) fn join(&self, request: &JoinRequest) -> Result<(), Stop> {
        let configuration = request.configuration().as_str();
        let joined = self.first(
            "UPDATE {member} SET charter = ?2 WHERE store = ?1 AND coalesce(charter, ?2) = ?2 RETURNING 1",
            params![request.store().to_string(), configuration],
            |_| Ok(()),
        )?;
        if joined.is_some() {
            self.raise_min_token(token(request.min_token()))?;
        }
        Ok(())
    }

    /// Returns the largest token that may have been granted.
    fn largest_token(&self) -> Result<u64, Stop> {
        let text = "SELECT max(min_token, coalesce((SELECT max(token) FROM {key}), 0)) FROM {host}";
        let largest: Option<i64> = self.first(text, [], |row| row.get(0))?;
        let largest = largest.ok_or_else(|| emptied("host"))?;
        Ok(u64::try_from(largest).unwrap_or_default())
    }
}
