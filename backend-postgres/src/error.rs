//! Errors of the driver.

use std::error::Error as _;
use std::io;

use leasehold_sql_support::Failure;
use leasehold_sql_support::postgres::reported;
use leasehold_sql_support::remote::RunError;
use tokio_postgres::error::DbError;

/// Reads the error of an attempt to connect: nothing of ours was sent.
pub(crate) fn connect(error: tokio_postgres::Error) -> RunError {
    match error.code().cloned() {
        Some(code) => {
            let run = reported(code.code(), error);
            match run.failure() {
                // It ended while it let us in.
                Failure::Unknown => RunError::not_sent(run),
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

/// Reads the error of a text that was given to the connection.
pub(crate) fn exchange(error: tokio_postgres::Error) -> RunError {
    match error.code().cloned() {
        Some(code) => reported(code.code(), error),
        None => RunError::no_reply(error),
    }
}

/// Whether a server says that it stopped waiting for its replica, and acknowledges a commit that a failover may lose.
///
/// The text depends on the server's language, and its code is that of all warnings.
pub(crate) fn is_doubt(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// The error of a commit that a replica may lack.
pub(crate) fn doubt(warning: DbError) -> RunError {
    let message = "the wait for a replica was cancelled, outcome unknown";
    RunError::new(Failure::Unknown, message, warning)
}

/// Whether the server serves, and is not the primary that `target_session_attrs=read-write` asks for.
///
/// The driver says so as if the system forbade a socket, but without an error of the system.
fn is_read_only(error: &tokio_postgres::Error) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|io| {
        io.kind() == io::ErrorKind::PermissionDenied
            && io.get_ref().is_some_and(|cause| cause.to_string().contains("allow writes"))
    })
}

/// Whether one side does not trust the other, or has nothing to be trusted by. The driver tells only by its texts.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    const REFUSALS: [&str; 3] =
        ["authentication error", "error performing TLS handshake", "invalid configuration"];

    let text = error.to_string();
    let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match io {
        // The error of rustls when the other side refuses, also after the handshake.
        Some(io) => io.kind() == io::ErrorKind::InvalidData,
        None => REFUSALS.iter().any(|refusal| text.starts_with(refusal)),
    }
}
