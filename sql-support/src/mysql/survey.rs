//! Detects the type of a server.

use crate::failure::Failure;
use crate::remote::{Rows, RunError};

/// The type of a server.
///
/// The `leasehold-mysql` crate uses the survey to determine the strength of fencing tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Survey {
    /// Whether commits wait for the disk, so that a crash does not lose acknowledged data.
    pub is_durable: bool,
    /// Whether the server is a node of a Galera cluster, in which every node may accept writes.
    pub is_in_cluster: bool,
    /// Whether the server reports every statement that a Galera cluster aborts.
    reports_aborts: bool,
}

impl Survey {
    /// Reads the reply to [`Statements::survey`](super::Statements::survey).
    pub fn read(rows: &Rows) -> Self {
        let value = |name| rows.of(name).next().and_then(|mut row| row.text());
        let logs_before = matches!(value("innodb_flush_log_at_trx_commit"), Some("1" | "3"));
        // Crash recovery rolls back transactions that are not in the binary log.
        let logs_all = value("log_bin") == Some("OFF") || value("sync_binlog") == Some("1");
        Self {
            is_durable: logs_before && logs_all,
            is_in_cluster: value("wsrep_on") == Some("ON"),
            reports_aborts: value("version").is_some_and(reports_aborts),
        }
    }

    /// Checks that the server reports every transaction that it aborts. Without such a report, two
    /// clients on different nodes of a Galera cluster might both hold a lock.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Layout`] if the server is a node of a cluster, and either its version is too
    /// old or the transactions consist of several statements.
    pub fn check_cluster(&self, has_own_connections: bool) -> Result<(), RunError> {
        let message = match self {
            Self { is_in_cluster: false, .. } => return Ok(()),
            Self { reports_aborts: false, .. } => OLD_CLUSTER,
            _ if !has_own_connections => THEIR_CONNECTIONS,
            _ => return Ok(()),
        };
        Err(RunError::without_source(Failure::Layout, message))
    }
}

const OLD_CLUSTER: &str = "the server is a node of a Galera cluster and may report an aborted transaction as committed; use MariaDB 10.6.21, 10.11.11, 11.4.5, 11.7.2 or newer";

const THEIR_CONNECTIONS: &str = "the server is a node of a Galera cluster, which does not report every aborted transaction of several statements; let Leasehold open its own connections, with a URL or with options";

/// The first version of each series that reports every aborted prepared statement (MDEV-35446).
const REPORTING: [[u32; 3]; 4] = [[10, 6, 21], [10, 11, 11], [11, 4, 5], [11, 7, 2]];

fn reports_aborts(version: &str) -> bool {
    let numbers: Vec<u32> =
        version.split(['.', '-']).map_while(|number| number.parse().ok()).take(3).collect();
    let is_fixed = match REPORTING.iter().find(|first| numbers.starts_with(&first[..2])) {
        Some(first) => numbers >= first.to_vec(),
        None => numbers > REPORTING[3].to_vec(),
    };
    version.contains("MariaDB") && is_fixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_hide_aborts_are_refused_in_a_cluster() {
        for (version, is_accepted) in [
            ("10.6.20-MariaDB", false),
            ("10.6.21-17-MariaDB-enterprise", true),
            ("10.7.8-MariaDB", false),
            ("10.11.10-MariaDB-ubu2204", false),
            ("10.11.19-MariaDB-0+deb12u1", true),
            ("11.5.2-MariaDB", false),
            ("11.7.1-MariaDB", false),
            ("11.8.3-MariaDB", true),
            ("12.0.1-MariaDB", true),
            ("8.0.36-28.1", false),
        ] {
            let values = [("version", version), ("wsrep_on", "ON")];
            let rows =
                values.map(|(name, value)| vec![Some(name.to_owned()), Some(value.to_owned())]);
            let survey = Survey::read(&Rows(rows.to_vec()));

            assert_eq!(survey.check_cluster(true).is_ok(), is_accepted, "{version}");
            assert!(survey.check_cluster(false).is_err(), "{version}");
            let alone = Survey { is_in_cluster: false, ..survey };
            assert!(alone.check_cluster(false).is_ok(), "{version}");
        }
    }
}
