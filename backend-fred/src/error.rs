//! Maps the errors of the `fred` crate to Leasehold's errors.

use fred::error::{Error as FredError, ErrorKind as FredKind};
use leasehold_core::{Error, ErrorKind};
use leasehold_redis_support::{ServerError, unreachable};

/// The name of this backend in errors and logs.
pub(crate) const BACKEND: &str = "fred";

/// Maps the error of a connection attempt. No request was sent.
pub(crate) fn connect(error: FredError) -> Error {
    let error = match server(error) {
        Ok(reply) => return reply.into_error(),
        Err(error) => error,
    };
    let (kind, message) = match error.kind() {
        FredKind::Protocol | FredKind::Parse => {
            (ErrorKind::Unexpected, "the endpoint does not use the Redis protocol")
        }
        FredKind::IO if is_tls(&error) => {
            (ErrorKind::Denied, "the TLS handshake failed; check the certificates of both sides")
        }
        #[cfg(feature = "tls")]
        FredKind::Tls => (ErrorKind::Invalid, "the address of the server is invalid"),
        FredKind::Config | FredKind::Url => {
            (ErrorKind::Invalid, "the address of the server is invalid")
        }
        // fred keeps only the `Debug` text of a cause.
        _ => return unreachable(error.details()),
    };
    Error::new(kind, message).with_source(error)
}

/// Maps the error of a request that was passed to the connection. The server may have applied the
/// request.
pub(crate) fn exchange(error: FredError) -> Error {
    let message = match error.kind() {
        FredKind::Protocol | FredKind::Parse => "the reply is malformed, so the outcome is unknown",
        _ => "the connection broke, so the outcome is unknown",
    };
    Error::new(ErrorKind::Indeterminate, message).with_source(error)
}

/// Returns the error of a request whose connection has ended.
pub(crate) fn closed() -> FredError {
    FredError::new(FredKind::IO, "the connection has ended")
}

/// Returns the server's error reply, if the error is such a reply. fred's own errors do not start
/// with an error code.
pub(crate) fn server(error: FredError) -> Result<ServerError, FredError> {
    let (code, detail) = error.details().split_once(' ').unwrap_or((error.details(), ""));
    let is_code = code.len() > 1 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_code || is_of_the_client(error.kind()) {
        return Err(error);
    }
    Ok(ServerError::new(code, detail))
}

/// Returns whether the server supports only RESP2.
pub(crate) fn speaks_only_resp2(error: &FredError) -> bool {
    let said = error.details();
    said.starts_with("NOPROTO")
        || said.strip_prefix("ERR unknown command").is_some_and(|rest| {
            let named = rest.split(',').next().unwrap_or_default();
            named.to_ascii_uppercase().contains("HELLO")
        })
}

/// Returns whether errors of this kind always come from fred, not from a server.
fn is_of_the_client(kind: &FredKind) -> bool {
    matches!(
        kind,
        FredKind::IO
            | FredKind::Canceled
            | FredKind::Timeout
            | FredKind::Protocol
            | FredKind::Parse
            | FredKind::Url
            | FredKind::Backpressure
    )
}

/// Returns whether the TLS handshake failed.
fn is_tls(error: &FredError) -> bool {
    // fred keeps only the `Debug` text of a cause.
    error.details().contains("kind: InvalidData")
}
