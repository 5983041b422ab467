//! The kind of a server.

use leasehold_core::Error;

use crate::remote::Rows;
use crate::request::Key;

/// The kind of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Survey {
    /// Whether it waits for the disk, so that a crash loses nothing that it acknowledged.
    pub is_durable: bool,
    /// Whether it is a node of a Galera cluster, where other nodes may write, too.
    pub is_in_cluster: bool,
}

impl Survey {
    /// Reads the reply to [`Statements::survey`](super::Statements::survey).
    pub fn read(rows: &Rows) -> Self {
        let value = |name| rows.of(name).next().and_then(|mut row| row.text());
        let logs_before = matches!(value("innodb_flush_log_at_trx_commit"), Some("1" | "3"));
        // Recovery rolls back transactions that are not in the binary log.
        let logs_all = value("log_bin") == Some("OFF") || value("sync_binlog") == Some("1");
        Self { is_durable: logs_before && logs_all, is_in_cluster: value("wsrep_on") == Some("ON") }
    }
}

/// Reads the reply to [`Statements::attempt`](super::Statements::attempt): whether all stripes are there.
///
/// # Errors
///
/// [`Unexpected`](leasehold_core::ErrorKind::Unexpected) if it is none.
pub fn has_all_stripes(rows: &Rows) -> Result<bool, Error> {
    Ok(rows.one("stripes")?.number::<u32>()? == Key::STRIPES)
}
