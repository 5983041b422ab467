//! Maps the errors of the `tokio-postgres` crate to Leasehold's errors.

use std::error::Error as _;
use std::io;

use leasehold_sql_support::Failure;
use leasehold_sql_support::postgres::reported;
use leasehold_sql_support::remote::RunError;
use tokio_postgres::error::DbError;

/// Maps the error of a connection attempt, or of the preparation of a statement. Nothing was executed.
pub(crate) fn before(error: tokio_postgres::Error) -> RunError {
    match error.as_db_error().cloned() {
        Some(reason) => {
            let run = reported(reason.code().code(), error);
            match run.failure() {
                // The server closed the connection. The error of a pooler names the setting that is the
                // reason.
                Failure::Unknown => {
                    let message = format!("the connection was closed: {}", reason.message());
                    RunError::new(Failure::NotApplied, message, run)
                }
                _ => run,
            }
        }
        None if is_refusal(&error) => RunError::not_trusted(error),
        None if is_read_only(&error) => {
            RunError::new(Failure::ReadOnly, Failure::ReadOnly.message(), error)
        }
        None => RunError::not_sent(error),
    }
}

/// Returns whether the server has rolled back a statement because of other transactions or a time
/// limit, so that the connection can be used again. After any other error, another connection may
/// lead to another server.
pub(crate) fn is_passing(error: &tokio_postgres::Error) -> bool {
    // A serialization failure, a deadlock victim, and the time limits for locks and statements.
    const CODES: [&str; 4] = ["40001", "40P01", "55P03", "57014"];

    error.code().is_some_and(|code| CODES.contains(&code.code()))
}

/// Returns whether a server or a pooler may have refused the connection because of an option. The
/// codes have other meanings too.
pub(crate) fn may_be_option(error: &tokio_postgres::Error) -> bool {
    // A protocol violation, a feature that is not supported, or an invalid or unknown parameter.
    const CODES: [&str; 4] = ["08P01", "0A000", "22023", "42704"];

    error.code().is_some_and(|code| CODES.contains(&code.code()))
}

/// Maps the error of a query batch that was passed to the connection.
pub(crate) fn exchange(error: tokio_postgres::Error) -> RunError {
    match error.code().cloned() {
        Some(code) => reported(code.code(), error),
        None => RunError::no_reply(error),
    }
}

/// Returns whether the server warns that it stopped waiting for its replica, in which case a
/// failover may lose an acknowledged commit.
///
/// The text of the warning depends on the server's language, and all warnings share the same code.
pub(crate) fn is_doubt(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// Returns the error of a commit that a replica may lack.
pub(crate) fn doubt(warning: DbError) -> RunError {
    let message = "the wait for a replica was cancelled, so the outcome is unknown";
    RunError::new(Failure::Unknown, message, warning)
}

/// Returns whether the server is a standby although `target_session_attrs=read-write` requires the
/// primary.
///
/// The driver reports a standby as a permission error that does not come from the operating system.
fn is_read_only(error: &tokio_postgres::Error) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|io| {
        io.kind() == io::ErrorKind::PermissionDenied
            && io.get_ref().is_some_and(|cause| cause.to_string().contains("allow writes"))
    })
}

/// Returns whether the client and the server do not trust each other, or credentials are missing.
/// The driver reports these reasons only in its error texts.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    const REFUSALS: [&str; 3] =
        ["authentication error", "error performing TLS handshake", "invalid configuration"];

    let text = error.to_string();
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match io {
        // rustls reports this error if the server rejects the connection, even after the handshake.
        Some(io) => io.kind() == io::ErrorKind::InvalidData,
        None => REFUSALS.iter().any(|refusal| text.starts_with(refusal)),
    }
}
