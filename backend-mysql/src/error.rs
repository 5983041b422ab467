//! Maps the errors of the `mysql_async` crate to Leasehold's errors.

use leasehold_sql_support::mysql::reported;
use leasehold_sql_support::remote::{Row, RunError};
use mysql_async::{DriverError, Error, IoError};

/// Maps the error of a connection attempt. No statement was sent.
pub(crate) fn connect(error: Error) -> RunError {
    match &error {
        Error::Server(server) => reported(server.code, &[], error),
        _ if is_refusal(&error) => RunError::not_trusted(error),
        _ => RunError::not_sent(error),
    }
}

/// Maps the error of a message that precedes a statement, which was not sent.
pub(crate) fn before(error: Error) -> RunError {
    match &error {
        Error::Server(server) => reported(server.code, &[], error),
        _ => RunError::not_sent(error),
    }
}

/// Returns whether the server has rolled back a statement because of other transactions or a time
/// limit, so that the connection can be used again. After any other error, another connection may
/// lead to another server.
pub(crate) fn is_passing(error: &Error) -> bool {
    // A lock wait timeout, a deadlock victim, a changed row, a conflict in a cluster, an overflow,
    // and the time limits for statements.
    const CODES: [u16; 7] = [1205, 1213, 1020, 3101, 1690, 1969, 3024];

    matches!(error, Error::Server(server) if CODES.contains(&server.code))
}

/// Maps the error of a query batch that was passed to the connection. `rows` contains the rows that
/// arrived before the error.
pub(crate) fn exchange(error: Error, rows: &[Row]) -> RunError {
    match &error {
        Error::Server(server) => reported(server.code, rows, error),
        _ => RunError::no_reply(error),
    }
}

/// Returns whether the error comes from TLS, or from the requested authentication method.
fn is_refusal(error: &Error) -> bool {
    match error {
        #[cfg(feature = "tls")]
        Error::Io(IoError::Tls(_)) => true,
        // The TLS handshake reports its errors in this form.
        Error::Io(IoError::Io(error)) => error.kind() == std::io::ErrorKind::InvalidData,
        Error::Driver(error) => matches!(
            error,
            DriverError::NoClientSslFlagFromServer
                | DriverError::UnknownAuthPlugin { .. }
                | DriverError::MysqlOldPasswordDisabled
                | DriverError::CleartextPluginDisabled
        ),
        _ => false,
    }
}
