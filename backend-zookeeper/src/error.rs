//! Maps the errors of the `zookeeper-client` crate to Leasehold's errors.

use std::io;

use leasehold_core::backend::why_unreachable;
use leasehold_core::{Error, ErrorKind};
use zookeeper_client::Error as ClientError;

/// The name of this backend in errors and logs.
pub(crate) const BACKEND: &str = "zookeeper";

/// A failed request, and what it means for the caller.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server cannot be reached or cannot serve requests. Nothing was applied, and a different
    /// server may serve the request.
    ServerDown(Error),
    /// The server did not create a session, but a later attempt or a different server may succeed.
    /// Nothing was applied.
    NoRoom(Error),
    /// The connection broke, or no reply arrived in time. The request may have been applied.
    Unknown(Error),
    /// The session has expired, and its nodes are gone.
    SessionGone(Error),
    /// The nodes did not match the conditions of the request. Nothing was applied.
    Mismatch(ClientError),
    /// A different error.
    Final(Error),
}

impl Failure {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::ServerDown(error)
            | Self::NoRoom(error)
            | Self::Unknown(error)
            | Self::SessionGone(error)
            | Self::Final(error) => error,
            Self::Mismatch(error) => {
                let message = "the lock changed during the request; try again";
                Error::new(ErrorKind::Unavailable, message).with_source(error)
            }
        }
    }

    /// Adds the address of the server to the error.
    pub(crate) fn at(self, server: &str) -> Self {
        let named = |error: Error| Error::new(error.kind(), format!("{server}: {error}"));
        match self {
            Self::ServerDown(error) => Self::ServerDown(named(error)),
            Self::NoRoom(error) => Self::NoRoom(named(error)),
            Self::Final(error) => Self::Final(named(error)),
            failure => failure,
        }
    }

    /// Returns the failure of a call that failed after an earlier request had an effect. `message`
    /// describes the effect.
    pub(crate) fn after(self, message: &'static str) -> Self {
        let error = self.into_error();
        if error.may_have_been_applied() {
            return Self::Unknown(error);
        }
        Self::Unknown(Error::new(ErrorKind::Indeterminate, message).with_source(error))
    }

    /// Returns the failure for a reply that did not arrive in time.
    pub(crate) fn silent() -> Self {
        Self::Unknown(Error::new(
            ErrorKind::Indeterminate,
            "no reply arrived in time, so the outcome is unknown",
        ))
    }

    /// Returns whether the node does not exist.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Mismatch(ClientError::NoNode))
    }

    /// Returns whether the user lacks the permission.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Self::Final(error) if error.kind() == ErrorKind::Denied)
    }

    /// Maps the failure of a request that may be retried, because it does not change relevant data.
    pub(crate) fn of_a_look(self) -> Self {
        match self {
            Self::Unknown(error) => {
                let message = "the server did not reply";
                Self::ServerDown(Error::new(ErrorKind::Unavailable, message).with_source(error))
            }
            failure => failure,
        }
    }
}

/// Maps the error of a request that the client crate has accepted.
pub(crate) fn request(error: ClientError) -> Failure {
    match error {
        ClientError::NoNode
        | ClientError::NodeExists
        | ClientError::BadVersion
        | ClientError::NotEmpty
        | ClientError::NoChildrenForEphemerals
        | ClientError::RuntimeInconsistent => Failure::Mismatch(error),
        ClientError::SessionExpired => {
            Failure::SessionGone(new(ErrorKind::Unavailable, "the session has expired", error))
        }
        // Earlier requests on the same connection may have been applied.
        ClientError::SessionMoved => {
            let message = "the session has moved to another server, so the outcome is unknown";
            Failure::Unknown(new(ErrorKind::Indeterminate, message, error))
        }
        ClientError::NoAuth => {
            let message = "permission denied, because nodes of the lock belong to another user, or the password is wrong";
            Failure::Final(new(ErrorKind::Denied, message, error))
        }
        ClientError::AuthFailed => Failure::Final(refused_user(error)),
        ClientError::InvalidAcl => {
            let message = "the server does not know this user; check that it supports the user's authentication scheme";
            Failure::Final(new(ErrorKind::Denied, message, error))
        }
        ClientError::NotReadOnly => Failure::ServerDown(read_only(error)),
        ClientError::QuotaExceeded => {
            let message = "a quota of the server is exhausted";
            Failure::Final(new(ErrorKind::Refused, message, error))
        }
        ClientError::Throttled => {
            Failure::ServerDown(new(ErrorKind::Unavailable, "the server is overloaded", error))
        }
        ClientError::Unimplemented => {
            let message = "the server is too old; ZooKeeper 3.6 or newer is required";
            Failure::Final(new(ErrorKind::Unsupported, message, error))
        }
        ClientError::BadArguments(_) => Failure::Final(new(
            ErrorKind::Invalid,
            "the client library rejected the request",
            error,
        )),
        ClientError::UnexpectedErrorCode(_)
        | ClientError::UnmarshalError { .. }
        | ClientError::MarshallingError
        | ClientError::ReconfigDisabled
        | ClientError::NoWatcher => {
            let message = "the server sent an unexpected reply";
            Failure::Final(new(ErrorKind::Unexpected, message, error))
        }
        // The client crate also returns `UnexpectedError` for a closed connection.
        error => {
            let message = "the connection broke, so the outcome is unknown";
            Failure::Unknown(new(ErrorKind::Indeterminate, message, error))
        }
    }
}

/// Maps the error of a connection attempt. No request was sent.
pub(crate) fn connect(error: ClientError) -> Failure {
    match error {
        ClientError::SessionExpired => {
            Failure::SessionGone(new(ErrorKind::Unavailable, "the session has expired", error))
        }
        ClientError::AuthFailed => Failure::Final(refused_user(error)),
        ClientError::BadArguments(_) => {
            Failure::Final(new(ErrorKind::Invalid, "the address of the server is invalid", error))
        }
        _ => Failure::ServerDown(unreachable()),
    }
}

/// Returns the error of a server that does not create a session. The client crate does not report
/// the reason.
pub(crate) fn unreachable() -> Error {
    let message = "the server did not start a session; check that it is ZooKeeper, that a majority of the servers is running, and that maxClientCnxns allows more connections from this address";
    Error::new(ErrorKind::Unavailable, message)
}

/// Returns the error of a server that cannot be connected to, or whose name has no address.
pub(crate) fn refused(refused: &io::Error) -> Error {
    why_unreachable(refused).map_or_else(unreachable, |why| Error::new(ErrorKind::Unavailable, why))
}

/// Returns the error of a server that closes new connections immediately.
pub(crate) fn no_room() -> Error {
    let message = "the server closes new connections immediately, probably because of its limit for one address; raise maxClientCnxns in its configuration, or run fewer clients on this machine";
    Error::new(ErrorKind::Unavailable, message)
}

/// Returns the failure for a reply that does not match its request.
pub(crate) fn senseless() -> Failure {
    let message = "the reply is malformed, so the outcome is unknown";
    Failure::Final(Error::new(ErrorKind::Unexpected, message))
}

fn refused_user(error: ClientError) -> Error {
    new(ErrorKind::Denied, "the server rejected the user or the password", error)
}

fn read_only(error: ClientError) -> Error {
    let message =
        "the server is read-only, because it is not connected to a majority of the servers";
    new(ErrorKind::Unavailable, message, error)
}

fn new(kind: ErrorKind, message: &'static str, source: ClientError) -> Error {
    Error::new(kind, message).with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_leaves_the_outcome_open() {
        for error in [
            ClientError::ConnectionLoss,
            ClientError::Timeout,
            ClientError::ClientClosed,
            ClientError::SessionMoved,
            ClientError::UnexpectedError("BUG".to_owned()),
        ] {
            let failure = request(error.clone());
            assert!(matches!(failure, Failure::Unknown(_)), "{error}");
            assert_eq!(failure.into_error().kind(), ErrorKind::Indeterminate, "{error}");
        }
    }

    #[test]
    fn each_refusal_has_a_kind_of_its_own() {
        for (error, kind) in [
            (ClientError::NoAuth, ErrorKind::Denied),
            (ClientError::AuthFailed, ErrorKind::Denied),
            (ClientError::InvalidAcl, ErrorKind::Denied),
            (ClientError::NotReadOnly, ErrorKind::Unavailable),
            (ClientError::SessionExpired, ErrorKind::Unavailable),
            (ClientError::QuotaExceeded, ErrorKind::Refused),
            (ClientError::Throttled, ErrorKind::Unavailable),
            (ClientError::Unimplemented, ErrorKind::Unsupported),
            (ClientError::UnexpectedErrorCode(-7), ErrorKind::Unexpected),
        ] {
            assert_eq!(request(error.clone()).into_error().kind(), kind, "{error}");
        }
    }

    #[test]
    fn wrong_password_is_named_as_a_cause_of_a_missing_permission() {
        let refused = request(ClientError::NoAuth).into_error().to_string();

        assert!(refused.contains("or the password is wrong"), "{refused}");
    }

    #[test]
    fn a_failure_after_a_place_in_line_does_not_undo_it() {
        let down = || Failure::ServerDown(unreachable());
        let full = || Failure::Final(Error::new(ErrorKind::Refused, "no space"));

        for (failure, kind) in [(down(), ErrorKind::Indeterminate), (full(), ErrorKind::Refused)] {
            let failure = failure.after("the claim was queued");
            assert!(matches!(&failure, Failure::Unknown(error) if error.kind() == kind));
        }
    }
}
