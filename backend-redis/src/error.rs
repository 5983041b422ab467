//! The meaning of the client crate's errors, one by one.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use leasehold_core::{Error, ErrorKind};
use leasehold_redis_support::{ServerError, unreachable};
use redis::{ErrorKind as RedisKind, RedisError};

/// How errors and logs name this backend.
pub(crate) const BACKEND: &str = "redis";

/// The error of a URL or settings that the client crate refuses. Its texts do not repeat them.
pub(crate) fn config(error: RedisError) -> Error {
    Error::new(ErrorKind::Invalid, "cannot use the URL of the server or a file that it names")
        .with_backend(BACKEND)
        .with_source(error)
}

/// The error of an attempt to connect: none of our requests was sent.
pub(crate) fn connect(error: RedisError) -> Error {
    let error = match server(error) {
        Ok(reply) => return reply.into_error(),
        Err(error) => error,
    };
    let (kind, message) = match error.kind() {
        RedisKind::AuthenticationFailed => {
            (ErrorKind::Denied, "the server does not accept the user or the password")
        }
        RedisKind::Parse | RedisKind::UnexpectedReturnType => {
            (ErrorKind::Unexpected, "the endpoint does not speak Redis's protocol")
        }
        // The client crate says this of servers that close the connection or say no in TLS's own terms.
        RedisKind::Io if is_tls(&error) => {
            (ErrorKind::Denied, "no TLS connection that both sides trust")
        }
        RedisKind::InvalidClientConfig => {
            (ErrorKind::Invalid, "the address of the server is invalid")
        }
        _ => return unreachable(&format!("{:?} {error:?}", io(&error))),
    };
    Error::new(kind, message).with_source(error)
}

/// The error of a request that was given to the connection: the server may have applied it.
pub(crate) fn exchange(error: RedisError) -> Error {
    let message = match error.kind() {
        RedisKind::Parse => "the reply makes no sense, outcome unknown",
        _ => "the connection broke, outcome unknown",
    };
    Error::new(ErrorKind::Indeterminate, message).with_source(error)
}

/// The error that the server replied, if it is one.
pub(crate) fn server(error: RedisError) -> Result<ServerError, RedisError> {
    match (error.kind(), error.code()) {
        (RedisKind::Server(_) | RedisKind::Extension, Some(code)) => {
            Ok(ServerError::new(code, error.detail().unwrap_or_default()))
        }
        _ => Err(error),
    }
}

/// Whether the two sides did not agree on TLS.
fn is_tls(error: &RedisError) -> bool {
    io(error).is_some_and(|io| io.kind() == io::ErrorKind::InvalidData)
}

/// The failure of the system that is the cause, if it is one.
fn io(error: &RedisError) -> Option<&io::Error> {
    // The client crate shares its causes, and so hides their types one level deeper.
    let cause = error.source()?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>();
    cause?.downcast_ref::<io::Error>()
}
