//! Errors of the driver.

use leasehold_sql_support::mysql::reported;
use leasehold_sql_support::remote::{Row, RunError};
use mysql_async::{DriverError, Error, IoError};

/// Reads the error of an attempt to connect: nothing of ours was sent.
pub(crate) fn connect(error: Error) -> RunError {
    match &error {
        Error::Server(server) => reported(server.code, &[], error),
        _ if is_refusal(&error) => RunError::not_trusted(error),
        _ => RunError::not_sent(error),
    }
}

/// Reads the error of a text that was given to the connection, and whose reply had these rows before.
pub(crate) fn exchange(error: Error, rows: &[Row]) -> RunError {
    match &error {
        Error::Server(server) => reported(server.code, rows, error),
        _ => RunError::no_reply(error),
    }
}

/// Whether it comes from TLS, or from the way in which a password is asked for.
fn is_refusal(error: &Error) -> bool {
    match error {
        #[cfg(feature = "tls")]
        Error::Io(IoError::Tls(_)) => true,
        // The handshake of TLS says so.
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
