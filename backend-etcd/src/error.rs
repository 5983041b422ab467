//! Maps the errors of etcd and of the `etcd-client` crate to Leasehold's errors.

use std::error::Error as StdError;
use std::iter;

use etcd_client::Error as EtcdError;
use leasehold_core::backend::why_unreachable;
use leasehold_core::{Error, ErrorKind};
use tonic::{Code, ConnectError, Status};

/// The name of this backend in errors and logs.
pub(crate) const BACKEND: &str = "etcd";

/// A failed request, and what it means for the caller.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The token of the credentials has expired. Nothing was applied, and a new token may help.
    TokenExpired(Error),
    /// This member cannot be reached or cannot serve requests. Nothing was applied, and a different
    /// member may serve the request.
    MemberDown(Error),
    /// The runtime that drives the client has shut down. Nothing was sent, and a new client may
    /// work.
    Unsent(Error),
    /// The connection broke, or no reply arrived in time. The outcome is unknown.
    Unknown(Error),
    /// The etcd lease no longer exists. Nothing was applied.
    LeaseGone(Error),
    /// A different error.
    Final(Error),
}

impl Failure {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::TokenExpired(error)
            | Self::MemberDown(error)
            | Self::Unsent(error)
            | Self::Unknown(error)
            | Self::LeaseGone(error)
            | Self::Final(error) => error,
        }
    }

    /// Returns whether the request may have been applied, or may still be applied.
    pub(crate) fn leaves_doubt(&self) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::Final(error) => error.kind() == ErrorKind::Unexpected,
            Self::TokenExpired(_) | Self::MemberDown(_) | Self::Unsent(_) | Self::LeaseGone(_) => {
                false
            }
        }
    }

    /// Returns the error for another caller whose change was part of the same request. Returns
    /// `None` if nothing was applied, so that the caller may send a separate request.
    pub(crate) fn repeated(&self) -> Option<Self> {
        match self {
            Self::Unknown(error) => Some(Self::Unknown(error.repeated())),
            Self::Final(error) if self.leaves_doubt() => Some(Self::Final(error.repeated())),
            _ => None,
        }
    }

    /// Adds the address of the member to the error.
    pub(crate) fn at(self, endpoint: &str) -> Self {
        let (_, address) = endpoint.split_once("://").unwrap_or(("", endpoint));
        let named = |error: Error| Error::new(error.kind(), format!("{address}: {error}"));
        match self {
            Self::MemberDown(error) => Self::MemberDown(named(error)),
            Self::Final(error) => Self::Final(named(error)),
            failure => failure,
        }
    }

    /// Returns the error of a call that failed after its first request had an effect. `message`
    /// describes the effect.
    pub(crate) fn after(self, message: &'static str) -> Self {
        let error = self.into_error();
        if error.may_have_been_applied() {
            return Self::Unknown(error);
        }
        Self::Unknown(Error::new(ErrorKind::Indeterminate, message).with_source(error))
    }

    /// Returns the error for a reply that did not arrive in time.
    pub(crate) fn silent() -> Self {
        Self::Unknown(Error::new(
            ErrorKind::Indeterminate,
            "no reply arrived in time, so the outcome is unknown",
        ))
    }
}

/// Maps the error of a request that the client crate has accepted.
pub(crate) fn request(error: EtcdError) -> Failure {
    match error {
        EtcdError::GRpcStatus(status) => of_status(status),
        // The client crate returns this error if the server replies with a TTL of 0.
        EtcdError::LeaseKeepAliveError(text) if text == "lease not found" => {
            Failure::LeaseGone(Error::new(ErrorKind::Unavailable, "the etcd lease has expired"))
        }
        // The stream ended before it was opened.
        error @ (EtcdError::WatchError(_)
        | EtcdError::LeaseKeepAliveError(_)
        | EtcdError::IoError(_)
        | EtcdError::TransportError(_)) => {
            let message = "the connection broke, so the outcome is unknown";
            Failure::Unknown(Error::new(ErrorKind::Indeterminate, message).with_source(error))
        }
        error => {
            let message = "the reply is malformed, so the outcome is unknown";
            Failure::Final(Error::new(ErrorKind::Unexpected, message).with_source(error))
        }
    }
}

/// Maps the error of a connection attempt. No request was sent.
pub(crate) fn connect(error: EtcdError) -> Failure {
    match error {
        EtcdError::GRpcStatus(status) => match of_status(status) {
            Failure::Unknown(error) => Failure::MemberDown(unreachable(error)),
            failure => failure,
        },
        EtcdError::InvalidUri(_) | EtcdError::InvalidArgs(_) | EtcdError::EndpointError(_) => {
            let message = "the address or the TLS settings of a member are invalid";
            Failure::Final(Error::new(ErrorKind::Invalid, message).with_source(error))
        }
        EtcdError::TransportError(error) if !is_tls(&error) => {
            Failure::MemberDown(unreachable(error))
        }
        EtcdError::TransportError(error) => Failure::Final(untrusted(error)),
        error => Failure::MemberDown(unreachable(error)),
    }
}

/// The message for a network error without a known reason. The usual reason is that the server at
/// this address is not etcd.
const UNREACHABLE: &str = "cannot reach the server; check that it is etcd, and that TLS is used on both sides or on neither";

/// Returns the error for an unreachable member.
pub(crate) fn unreachable(cause: impl StdError + Send + Sync + 'static) -> Error {
    let reason = why_unreachable(&cause).unwrap_or(UNREACHABLE);
    Error::new(ErrorKind::Unavailable, reason)
}

fn untrusted(error: impl StdError + Send + Sync + 'static) -> Error {
    // Earlier causes contain the same text in `Debug` form.
    let cause = causes(&error).last().map(ToString::to_string).unwrap_or_default();
    Error::new(ErrorKind::Denied, format!("the TLS handshake failed: {cause}"))
}

/// Returns the server's message. The status would add text in `Debug` form.
fn words(status: &Status) -> String {
    status.message().to_owned()
}

/// Maps a status by its text, because etcd uses the same code for different errors. The texts come
/// from etcd's `api/v3rpc/rpctypes/error.go`.
fn of_status(status: Status) -> Failure {
    let is = |text: &str| status.message().contains(text);
    let error = |kind, message: &'static str| Error::new(kind, message);
    match status.code() {
        _ if never_left(&status) => {
            if is_tls(&status) {
                return Failure::Final(untrusted(status));
            }
            Failure::MemberDown(unreachable(status))
        }
        // The client crate returns this error before it sends a request.
        Code::Unknown if status.message().starts_with("Service was not ready") => {
            let message = "the runtime that opened the connection was shut down";
            Failure::Unsent(error(ErrorKind::Unavailable, message).with_source(words(&status)))
        }
        // "server stopped" is not included, because etcd also returns it after it has proposed the
        // request to the cluster.
        Code::Unavailable if is("no leader") || is("not capable") => {
            let message = "the cluster currently has no leader, or the member is not ready";
            Failure::MemberDown(error(ErrorKind::Unavailable, message).with_source(words(&status)))
        }
        Code::Unauthenticated => {
            let message = "the server rejected the user or the password";
            Failure::TokenExpired(error(ErrorKind::Denied, message).with_source(words(&status)))
        }
        Code::InvalidArgument if is("revision of auth store is old") => {
            let message = "the permissions changed during the request";
            Failure::TokenExpired(
                error(ErrorKind::Unavailable, message).with_source(words(&status)),
            )
        }
        Code::PermissionDenied => {
            let message = "the user lacks a permission; allow the user to read and write all keys with the prefix";
            Failure::Final(error(ErrorKind::Denied, message).with_source(words(&status)))
        }
        Code::InvalidArgument if is("authentication failed") || is("user name is empty") => {
            let message = "the server rejected the user or the password";
            Failure::Final(error(ErrorKind::Denied, message).with_source(words(&status)))
        }
        Code::FailedPrecondition if is("authentication is not enabled") => {
            let message =
                "the URL contains a user, but authentication is not enabled on the server";
            Failure::Final(error(ErrorKind::Denied, message).with_source(words(&status)))
        }
        Code::NotFound if is("lease not found") => Failure::LeaseGone(
            error(ErrorKind::Unavailable, "the etcd lease has expired").with_source(words(&status)),
        ),
        Code::InvalidArgument if is("too many operations") || is("request is too large") => {
            let message = "the transaction is too large for the server; set its --max-txn-ops and --max-request-bytes to at least the defaults";
            Failure::Final(error(ErrorKind::Refused, message).with_source(words(&status)))
        }
        Code::ResourceExhausted if is("database space exceeded") => {
            let message = "the server's disk quota is exhausted; it rejects writes until an operator compacts and defragments the data and disarms the alarm";
            Failure::Final(error(ErrorKind::Refused, message).with_source(words(&status)))
        }
        Code::ResourceExhausted if is("too many requests") => {
            let message = "the server is overloaded";
            Failure::MemberDown(error(ErrorKind::Unavailable, message).with_source(words(&status)))
        }
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown
        | Code::Internal
        | Code::Aborted => {
            let message = "the cluster did not reply, so the outcome is unknown";
            Failure::Unknown(error(ErrorKind::Indeterminate, message).with_source(words(&status)))
        }
        _ => {
            let message = "the server sent an unexpected reply";
            Failure::Final(error(ErrorKind::Unexpected, message).with_source(words(&status)))
        }
    }
}

/// Returns whether the request cannot have been sent because there was no connection.
fn never_left(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<ConnectError>())
}

/// Returns whether the TLS handshake failed. The client crate has no error type for TLS failures.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    causes(error)
        .map(ToString::to_string)
        .any(|text| text.contains("certificate") || text.contains("received fatal alert"))
}

/// Returns an error and all of its causes.
fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    iter::successors(Some(error), |error| {
        let error: &'a (dyn StdError + 'static) = *error;
        error.source()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stops_may_have_applied_the_request() {
        let stopped = Status::unavailable("etcdserver: server stopped");

        assert!(matches!(request(EtcdError::GRpcStatus(stopped)), Failure::Unknown(_)));
    }

    #[test]
    fn a_failure_after_a_place_in_line_does_not_undo_it() {
        let down = || Failure::MemberDown(Error::new(ErrorKind::Unavailable, "not there"));
        let full = || Failure::Final(Error::new(ErrorKind::Refused, "no space"));

        for (failure, kind) in [(down(), ErrorKind::Indeterminate), (full(), ErrorKind::Refused)] {
            let failure = failure.after("the claim was queued");
            assert!(matches!(&failure, Failure::Unknown(error) if error.kind() == kind));
        }
    }
}
