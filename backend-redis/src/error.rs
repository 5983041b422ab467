//! Maps the errors of the `redis` crate to Leasehold's errors.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use leasehold_core::{Error, ErrorKind};
use leasehold_redis_support::{ServerError, unreachable};
use redis::{ErrorKind as RedisKind, RedisError};

/// The name of this backend in errors and logs.
pub(crate) const BACKEND: &str = "redis";

/// Maps the error of a URL or of settings that the client crate rejects. The error texts contain
/// neither the URL nor the settings.
pub(crate) fn config(error: RedisError) -> Error {
    Error::new(ErrorKind::Invalid, "cannot use the server's URL or a file named in it")
        .with_backend(BACKEND)
        .with_source(error)
}

/// Maps the error of a connection attempt. No request was sent.
pub(crate) fn connect(error: RedisError) -> Error {
    let error = match server(error) {
        Ok(reply) => return reply.into_error(),
        Err(error) => error,
    };
    let (kind, message) = match error.kind() {
        RedisKind::AuthenticationFailed => {
            (ErrorKind::Denied, "the server rejected the user or the password")
        }
        RedisKind::Parse | RedisKind::UnexpectedReturnType => {
            (ErrorKind::Unexpected, "the endpoint does not use the Redis protocol")
        }
        // The client crate reports this error for servers that close the connection or fail the TLS
        // handshake.
        RedisKind::Io if is_tls(&error) => {
            (ErrorKind::Denied, "the TLS handshake failed; check the certificates of both sides")
        }
        RedisKind::InvalidClientConfig => {
            (ErrorKind::Invalid, "the address of the server is invalid")
        }
        _ => return unreachable(&format!("{:?} {error:?}", io(&error))),
    };
    Error::new(kind, message).with_source(error)
}

/// Maps the error of a request that was passed to the connection. The server may have applied the
/// request.
pub(crate) fn exchange(error: RedisError) -> Error {
    let message = match error.kind() {
        RedisKind::Parse => "the reply is malformed, so the outcome is unknown",
        _ => "the connection broke, so the outcome is unknown",
    };
    Error::new(ErrorKind::Indeterminate, message).with_source(error)
}

/// Returns the server's error reply, if the error is such a reply.
pub(crate) fn server(error: RedisError) -> Result<ServerError, RedisError> {
    match (error.kind(), error.code()) {
        (RedisKind::Server(_) | RedisKind::Extension, Some(code)) => {
            Ok(ServerError::new(code, error.detail().unwrap_or_default()))
        }
        _ => Err(error),
    }
}

/// Returns whether the TLS handshake failed.
fn is_tls(error: &RedisError) -> bool {
    io(error).is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
}

/// Returns the operating system's error that caused this error, if there is one.
fn io(error: &RedisError) -> Option<&io::Error> {
    // The client crate shares its causes in an `Arc`, so the error type is one level deeper.
    let cause = error.source()?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>();
    cause?.downcast_ref::<io::Error>()
}
