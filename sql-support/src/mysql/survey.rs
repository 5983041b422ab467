//! Detects the type of a server.

use leasehold_core::Error;

use crate::remote::Rows;
use crate::request::Key;

/// The type of a server.
///
/// The `leasehold-mysql` crate uses the survey to determine the strength of fencing tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Survey {
    /// Whether commits wait for the disk, so that a crash does not lose acknowledged data.
    pub is_durable: bool,
    /// Whether the server is a node of a Galera cluster, in which every node may accept writes.
    pub is_in_cluster: bool,
}

impl Survey {
    /// Reads the reply to [`Statements::survey`](super::Statements::survey).
    pub fn read(rows: &Rows) -> Self {
        let value = |name| rows.of(name).next().and_then(|mut row| row.text());
        let logs_before = matches!(value("innodb_flush_log_at_trx_commit"), Some("1" | "3"));
        // Crash recovery rolls back transactions that are not in the binary log.
        let logs_all = value("log_bin") == Some("OFF") || value("sync_binlog") == Some("1");
        Self { is_durable: logs_before && logs_all, is_in_cluster: value("wsrep_on") == Some("ON") }
    }
}

/// Reads the reply to [`Statements::attempt`](super::Statements::attempt). Returns whether all
/// lock-table partitions exist.
///
/// # Errors
///
/// Returns [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if the reply does not match the
/// request.
pub fn has_all_stripes(rows: &Rows) -> Result<bool, Error> {
    Ok(rows.one("stripes")?.number::<u32>()? == Key::STRIPES)
}
