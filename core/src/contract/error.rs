//! The ways in which a request fails, and the knowledge of its outcome.

use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;

use crate::contract::holder::Holder;
use crate::contract::key::LockKey;
use crate::contract::loss::LossReason;

/// Why an operation failed: a [kind](ErrorKind) to match on, and the context to print.
///
/// Contention, a refused renewal and a lease that is no longer ours are outcomes, not errors. An
/// error never holds a password, a URL or a lease id.
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

/// The kind of an [`Error`].
///
/// See the example of [`Error`](crate::Error).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The client was shut down.
    Closed,
    /// The store refused our credentials or our rights; nothing was applied.
    Denied,
    /// The reply was lost: the store may or may not have applied the request.
    Indeterminate,
    /// The input is wrong; nothing was sent.
    Invalid,
    /// The lease ended before its holder released it.
    LeaseLost,
    /// The store answers, but cannot write at the moment: the server is a read-only replica, or has fewer replicas than required. Nothing
    /// stays applied.
    NotWritable,
    /// The owner already holds the key as many times as it may.
    ReentryLimit,
    /// The store answers, but cannot write until an operator acts, for example because its memory or disk is full.
    Refused,
    /// The wait budget ran out while another owner held the key.
    Timeout,
    /// As many callers as may already ask or wait for the key in this process.
    TooManyWaiters,
    /// The store could not be reached, or cannot serve yet: the request was not applied.
    Unavailable,
    /// The store answered something that this version does not understand; outcome unknown.
    Unexpected,
    /// The store, or the backend's declaration, does not support the request; nothing was sent.
    Unsupported,
    /// The caller would wait for itself: it holds a lease that keeps others, and so itself, out.
    WouldDeadlock,
    /// The key is in use as another type of lock, or contains data that is not a lock. It was not changed.
    WrongType,
}

/// The operation in which an [`Error`] arose.
///
/// See the example of [`Error`](crate::Error).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// [`LockBackend::try_acquire`](crate::backend::LockBackend::try_acquire), or the waiting around it.
    Acquire,
    /// Connecting to the store.
    Connect,
    /// [`LockBackend::diagnose`](crate::backend::LockBackend::diagnose).
    Diagnose,
    /// [`LockBackend::standing`](crate::backend::LockBackend::standing) or [`LockBackend::enlist`](crate::backend::LockBackend::enlist).
    Enlist,
    /// [`LockBackend::force_release`](crate::backend::LockBackend::force_release).
    ForceRelease,
    /// [`LockBackend::inspect`](crate::backend::LockBackend::inspect).
    Inspect,
    /// [`LockBackend::list`](crate::backend::LockBackend::list).
    List,
    /// [`LockBackend::ping`](crate::backend::LockBackend::ping).
    Ping,
    /// [`LockBackend::release`](crate::backend::LockBackend::release).
    Release,
    /// [`LockBackend::renew`](crate::backend::LockBackend::renew), also in batches.
    Renew,
    /// [`LockBackend::request_revocation`](crate::backend::LockBackend::request_revocation).
    Revoke,
    /// Work done under the lock.
    Run,
    /// [`LockClient::shutdown`](crate::LockClient::shutdown).
    Shutdown,
}

impl Error {
    /// Creates an error of `kind`; `message` is lower case, without a full stop, and names the remedy if that is not plain.
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

    /// Creates the error of calls, new or waiting, when the client is shut down.
    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client was shut down")
    }

    /// Creates the error of a request that was given up on.
    pub(crate) fn no_reply() -> Self {
        Self::new(ErrorKind::Indeterminate, "no reply in time")
    }

    /// Creates the error of a holder whose lease was lost for `reason`.
    pub(crate) fn lost(reason: LossReason) -> Self {
        let mut error = Self::new(ErrorKind::LeaseLost, format!("the lease was lost: {reason}"));
        error.0.loss = Some(reason);
        error
    }

    /// Names a holder of the key.
    pub(crate) fn with_holder(mut self, holder: Option<Holder>) -> Self {
        self.0.holder = holder;
        self
    }

    /// Names the operation, unless one is named already.
    #[must_use]
    pub fn with_operation(mut self, operation: Operation) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Names the key, unless one is named already.
    #[must_use]
    pub fn with_key(mut self, key: &LockKey) -> Self {
        self.0.key.get_or_insert_with(|| key.clone());
        self
    }

    /// Names the backend, unless one is named already.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend.get_or_insert(backend);
        self
    }

    /// Keeps the cause. It must not hold a secret.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same failure of another request that it struck, as in a batch; the cause stays with this one.
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

    /// The kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation, if known.
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// The key concerned, where there is one.
    pub fn key(&self) -> Option<&LockKey> {
        self.0.key.as_ref()
    }

    /// The backend that failed, where one did.
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// Why the lease was lost, if this is [`ErrorKind::LeaseLost`].
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss
    }

    /// A holder of the key at the end of the wait, if this is [`ErrorKind::Timeout`] and the store told it.
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// Whether the same request may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Indeterminate | ErrorKind::NotWritable | ErrorKind::Unavailable
        )
    }

    /// Whether the store may have applied the request nevertheless.
    ///
    /// A request that failed half-way counts: only an error that is known to precede every effect does not.
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
        // Without an operation or a key, the name of the store is the subject.
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
            Self::Enlist => "join the quorum",
            Self::ForceRelease => "force release",
            Self::Inspect => "inspect",
            Self::List => "list keys",
            Self::Diagnose => "diagnose",
            Self::Ping => "ping",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::Revoke => "request revocation of",
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
        let error = Error::new(ErrorKind::Indeterminate, "reply lost, outcome unknown")
            .with_operation(Operation::Renew)
            .with_key(&LockKey::new("invoice:42").unwrap())
            .with_backend("redis");

        assert_eq!(
            error.to_string(),
            "cannot renew \"invoice:42\" on redis: reply lost, outcome unknown"
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
