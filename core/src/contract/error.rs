//! Errors, and what they imply about the outcome of a request.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;

use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::contract::loss::LossReason;

/// The error type of all operations. An error has a [kind](ErrorKind) for programs and a message
/// for people.
///
/// Contention is not an `Error`: if the lock is held, `try_lock` returns
/// [`TryLockError::Busy`](crate::TryLockError::Busy). An error never contains a password, a URL or
/// a lease id.
///
/// ```
/// use leasehold_core::{ErrorKind, LockKey};
///
/// let error = LockKey::new("").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.to_string(), "a key must not be empty");
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: Option<Operation>,
    key: Option<LockKey>,
    backend: Option<&'static str>,
    message: Cow<'static, str>,
    loss: Option<LossReason>,
    holder: Option<Holder>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`], for programs to match on.
///
/// ```
/// use leasehold_core::{Error, ErrorKind};
///
/// /// Returns the HTTP status for a request that failed.
/// fn status(error: &Error) -> u16 {
///     match error.kind() {
///         ErrorKind::Timeout | ErrorKind::TooManyWaiters => 409, // another request holds the lock
///         ErrorKind::LeaseLost => 500,                            // the work may be done in part
///         _ if error.is_retryable() => 503,
///         _ => 500,
///     }
/// }
/// # assert_eq!(status(&Error::new(ErrorKind::Unavailable, "the store is down")), 503);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The client was [drained](crate::LockClient::drain) or [shut
    /// down](crate::LockClient::shutdown).
    Closed,
    /// The store rejected the credentials, or a permission is missing. The request was not applied.
    Denied,
    /// The lease is in force, but its remaining time is shorter than the caller requires. See
    /// [`LockGuard::ensure_held`](crate::LockGuard::ensure_held).
    ExpiresSoon,
    /// No reply arrived, so the store may or may not have applied the request.
    Indeterminate,
    /// An argument or an option is invalid. No request was sent.
    Invalid,
    /// The lease ended before its holder released it.
    LeaseLost,
    /// The store responds but cannot write at the moment, for example because the server is a
    /// read-only replica or has fewer replicas than required. The request was not applied.
    NotWritable,
    /// The owner already holds the lock as many times as
    /// [`LockOptions::reentry_limit`](crate::LockOptions::reentry_limit) allows.
    ReentryLimit,
    /// The store is reachable but rejects writes until an operator intervenes, for example because
    /// its disk is full.
    Refused,
    /// The fencing token was rejected, because the resource has already admitted a larger token.
    /// See [`Fence::admit`](crate::Fence::admit).
    StaleToken,
    /// The wait ended while another caller still held the lock.
    Timeout,
    /// [`Builder::max_waiters`](crate::Builder::max_waiters) callers of this process are already
    /// waiting for the key.
    TooManyWaiters,
    /// The store is unreachable or not ready. The request was not applied.
    Unavailable,
    /// The store sent a reply that this version does not understand. The outcome of the request is
    /// unknown.
    Unexpected,
    /// The store does not support the request. No request was sent.
    Unsupported,
    /// The caller would wait for itself, because it already holds a lease that excludes the
    /// request.
    WouldDeadlock,
    /// The key is in use by a lock of a different type, or by data that is not a lock. The request
    /// did not change the key.
    WrongType,
}

/// The operation that produced an [`Error`].
///
/// See [`Error`](crate::Error) for an example.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Acquiring a lease with
    /// [`LockBackend::acquire`](crate::backend::LockBackend::acquire), or waiting for a lease.
    Acquire,
    /// Connecting to the store.
    Connect,
    /// Checking the servers with [`StoreAdmin::diagnose`](crate::backend::StoreAdmin::diagnose).
    Diagnose,
    /// Ending leases with
    /// [`StoreAdmin::force_release`](crate::backend::StoreAdmin::force_release).
    ForceRelease,
    /// Inspecting a key with [`StoreAdmin::inspect`](crate::backend::StoreAdmin::inspect).
    Inspect,
    /// Joining a quorum with [`Member::status`](crate::backend::Member::status) or
    /// [`Member::join`](crate::backend::Member::join).
    Join,
    /// Listing keys with [`StoreAdmin::list`](crate::backend::StoreAdmin::list).
    List,
    /// Checking the store with [`LockBackend::ping`](crate::backend::LockBackend::ping).
    Ping,
    /// Releasing a lease with [`LockBackend::release`](crate::backend::LockBackend::release).
    Release,
    /// Renewing one or more leases with [`LockBackend::renew`](crate::backend::LockBackend::renew)
    /// or [`LockBackend::renew_all`](crate::backend::LockBackend::renew_all).
    Renew,
    /// Requesting a revocation with
    /// [`StoreAdmin::request_revocation`](crate::backend::StoreAdmin::request_revocation).
    RequestRevocation,
    /// Running work under the lock.
    Run,
    /// Shutting down the client with [`LockClient::shutdown`](crate::LockClient::shutdown).
    Shutdown,
}

impl Error {
    /// Creates an error of `kind`.
    ///
    /// `message` starts in lower case, does not end with a full stop, and names the remedy unless
    /// it is obvious.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            operation: None,
            key: None,
            backend: None,
            message: message.into(),
            loss: None,
            holder: None,
            source: None,
        }))
    }

    /// Creates the error for new and waiting calls after the client has been shut down.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client was shut down")
    }

    /// Creates the error for a request that was not answered in time.
    pub(crate) fn no_reply() -> Self {
        Self::new(ErrorKind::Indeterminate, "no reply in time")
    }

    /// Creates the error for a lease that was lost because of `reason`.
    pub(crate) fn lost(reason: LossReason) -> Self {
        let mut error = Self::new(ErrorKind::LeaseLost, format!("the lease was lost: {reason}"));
        error.0.loss = Some(reason);
        error
    }

    /// Sets a holder of the key.
    pub(crate) fn with_holder(mut self, holder: Option<Holder>) -> Self {
        self.0.holder = holder;
        self
    }

    /// Sets the operation, unless it is already set.
    #[must_use]
    pub fn with_operation(mut self, operation: Operation) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Sets the key, unless it is already set.
    #[must_use]
    pub fn with_key(mut self, key: &LockKey) -> Self {
        self.0.key.get_or_insert_with(|| key.clone());
        self
    }

    /// Replaces the key.
    pub(crate) fn of_key(mut self, key: &LockKey) -> Self {
        self.0.key = Some(key.clone());
        self
    }

    /// Sets the name of the backend, unless it is already set.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend.get_or_insert(backend);
        self
    }

    /// Sets the cause of the error. The cause must not contain a secret.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns a copy of this error, without its source, for another request that failed for the
    /// same reason. For example, all requests of a batch may fail together.
    #[must_use]
    pub fn repeated(&self) -> Self {
        Self(Box::new(Inner {
            kind: self.0.kind,
            operation: self.0.operation,
            key: self.0.key.clone(),
            backend: self.0.backend,
            message: self.0.message.clone(),
            loss: self.0.loss,
            holder: self.0.holder.clone(),
            source: None,
        }))
    }

    /// Returns the kind, for programs to match on. See [`ErrorKind`] for an example.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the operation that failed, if it is known.
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// Returns the key of the operation, if there is one.
    pub fn key(&self) -> Option<&LockKey> {
        self.0.key.as_ref()
    }

    /// Returns the name of the backend, if it is known.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// Returns the reason why the lease was lost, if the kind is [`ErrorKind::LeaseLost`].
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss
    }

    /// Returns one of the clients that held the key when the call gave up, if the kind is
    /// [`ErrorKind::Timeout`] and the store reported a holder.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// Returns whether retrying the same request later may succeed.
    ///
    /// The kinds [`ErrorKind::Unavailable`], [`ErrorKind::NotWritable`] and
    /// [`ErrorKind::Indeterminate`] are retryable.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Indeterminate | ErrorKind::NotWritable | ErrorKind::Unavailable
        )
    }

    /// Returns whether the store may have applied the request despite the error.
    ///
    /// Returns `false` only if the request is known to have had no effect.
    pub fn may_have_been_applied(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Indeterminate
                | ErrorKind::Refused
                | ErrorKind::Unexpected
                | ErrorKind::WrongType
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { operation, key, backend, message, .. } = &*self.0;
        let preposition = if *operation == Some(Operation::Connect) { "to" } else { "on" };
        let context = [
            operation.map(|operation| format!("cannot {operation}")),
            key.as_ref().map(|key| format!("\"{key}\"")),
            backend.map(|backend| format!("{preposition} {backend}")),
        ];
        let context: Vec<String> = context.into_iter().flatten().collect();
        if context.is_empty() {
            return f.write_str(message);
        }
        // Without an operation or a key, the message starts with the name of the store.
        let context = context.join(" ");
        let context = context.strip_prefix("on ").unwrap_or(&context);
        write!(f, "{context}: {message}")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &format_args!("{self}"))
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "acquire",
            Self::Connect => "connect",
            Self::Join => "join the quorum",
            Self::ForceRelease => "force release",
            Self::Inspect => "inspect",
            Self::List => "list keys",
            Self::Diagnose => "diagnose",
            Self::Ping => "ping",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::RequestRevocation => "request revocation of",
            Self::Run => "run",
            Self::Shutdown => "shut down",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_operation_key_and_store() {
        let error =
            Error::new(ErrorKind::Indeterminate, "the reply was lost, so the outcome is unknown")
                .with_operation(Operation::Renew)
                .with_key(&LockKey::new("invoice:42").unwrap())
                .with_backend("redis");

        assert_eq!(
            error.to_string(),
            "cannot renew \"invoice:42\" on redis: the reply was lost, so the outcome is unknown"
        );
    }

    #[test]
    fn context_that_is_known_already_is_kept() {
        let error = Error::new(ErrorKind::Unavailable, "no route")
            .with_operation(Operation::Connect)
            .with_operation(Operation::Renew);

        assert_eq!(error.to_string(), "cannot connect: no route");
    }
}
