//! What the numbers of errors mean.

use crate::failure::Failure;

/// Finds what is known about a transaction for which the server reported the error with this number before its commit began.
///
/// The statement that failed was the last that ran: the transaction is open or rolled back, and the end of its connection ends it.
pub fn failure(code: u16) -> Failure {
    match code {
        // A lock that others kept, deadlock victim, a row that changed, a node of a cluster that lost.
        1205 | 1213 | 1020 | 3101 => Failure::Conflict,
        // The limits of time of MariaDB and MySQL.
        1969 | 3024 => Failure::NotApplied,
        // The server, or the transaction, is read-only: a replica, or a primary that steps down. A node without its cluster.
        1290 | 1792 | 1836 | 1047 | 3100 => Failure::NotApplied,
        // It shuts down, or somebody ended the statement or the connection, or it was idle for too long.
        1053 | 1317 | 1927 | 3169 | 4031 => Failure::NotApplied,
        // Too many connections, of all or of this user; no memory, no threads.
        1040 | 1203 | 1226 | 1037 | 1038 | 1041 | 1135 => Failure::NotApplied,
        // The disk or the table is full; the storage engine, or a file, fails.
        3 | 1021 | 1026 | 1030 | 1114 => Failure::Full,
        // A password, a right, a host, a kind of authentication, an account that is locked or expired.
        1044 | 1045 | 1129 | 1130 | 1142 | 1143 | 1227 | 1251 | 1275 | 1370 | 1698 | 1820
        | 1862 | 3118 | 3159 | 4151 => Failure::Denied,
        // An overflow: a stripe is missing. Databases, tables, columns and their types.
        1690 | 1046 | 1049 | 1050 | 1054 | 1136 | 1146 | 1264 | 1364 | 1366 | 1406 => {
            Failure::Layout
        }
        // A syntax, a setting or a feature that it does not know: too old. A binary log of statements.
        1064 | 1193 | 1231 | 1235 | 1665 => Failure::Layout,
        _ => Failure::Unexpected,
    }
}

/// The same of an error of the commit itself.
pub fn failure_of_commit(code: u16) -> Failure {
    match failure(code) {
        // The nodes of a cluster vote in the commit.
        Failure::Conflict => Failure::Conflict,
        _ => Failure::Unknown,
    }
}
