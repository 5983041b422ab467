//! Requests and replies as values.

use crate::contract::backend::{
    Attempt, AttemptAll, Claim, Enlistment, Finding, Fingerprint, KeyPage, Lease, LockBackend,
    Operation, Release, Renewal, Standing, StoreId,
};
use crate::contract::error::Error;
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// A request that a [`FaultBackend`](crate::fault::FaultBackend) sends to its store. Each variant
/// contains the arguments of a method of [`LockBackend`].
///
/// See [`Faults::on_request`](crate::fault::Faults::on_request) for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Request {
    /// [`LockBackend::try_acquire`].
    Acquire(Claim),
    /// [`LockBackend::try_acquire_all`].
    AcquireAll(Vec<Claim>),
    /// [`LockBackend::close`], which always succeeds.
    Close,
    /// [`LockBackend::diagnose`].
    Diagnose,
    /// [`LockBackend::enlist`].
    Enlist(Enlistment),
    /// [`LockBackend::force_release`].
    ForceRelease(LockKey, Option<Fingerprint>),
    /// [`LockBackend::inspect`].
    Inspect(LockKey),
    /// [`LockBackend::list`], with the prefix and the end of the previous page.
    List(String, Option<String>),
    /// [`LockBackend::ping`].
    Ping,
    /// [`LockBackend::release`].
    Release(Lease),
    /// [`LockBackend::renew`].
    Renew(Lease),
    /// [`LockBackend::renew_all`].
    RenewAll(Vec<Lease>),
    /// [`LockBackend::request_revocation`].
    Revoke(LockKey, Option<Fingerprint>),
    /// [`LockBackend::standing`].
    Standing(StoreId),
    /// [`LockBackend::watch`], [`LockBackend::watch_claim`] or [`LockBackend::watch_lease`]. If a
    /// script returns an error, the watch never fires.
    Watch(LockKey),
}

/// The reply to the [`Request`] of the same name.
///
/// See [`Faults::on_reply`](crate::fault::Faults::on_reply) for an example.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reply {
    /// The reply to [`Request::Acquire`].
    Acquire(Attempt),
    /// The reply to [`Request::AcquireAll`].
    AcquireAll(AttemptAll),
    /// The reply to [`Request::Diagnose`].
    Diagnose(Vec<Finding>),
    /// The reply to a request without a result, such as [`Request::Ping`].
    Done,
    /// The reply to [`Request::Enlist`].
    Enlist(Standing),
    /// The reply to [`Request::ForceRelease`].
    ForceRelease(ForcedRelease),
    /// The reply to [`Request::Inspect`].
    Inspect(Inspection),
    /// The reply to [`Request::List`].
    List(KeyPage),
    /// The reply to [`Request::Release`].
    Release(Release),
    /// The reply to [`Request::Renew`].
    Renew(Renewal),
    /// The reply to [`Request::RenewAll`], with one result per lease.
    RenewAll(Vec<Result<Renewal, Error>>),
    /// The reply to [`Request::Revoke`].
    Revoke(Revocation),
    /// The reply to [`Request::Standing`].
    Standing(Standing),
}

impl Request {
    /// Returns the operation whose faults apply to this request. No fault applies to [`Close`] and
    /// [`Watch`].
    ///
    /// [`Close`]: Self::Close
    /// [`Watch`]: Self::Watch
    pub(super) fn operation(&self) -> Option<Operation> {
        Some(match self {
            Self::Acquire(_) | Self::AcquireAll(_) => Operation::Acquire,
            Self::Close | Self::Watch(_) => return None,
            Self::Diagnose => Operation::Diagnose,
            Self::Enlist(_) | Self::Standing(_) => Operation::Enlist,
            Self::ForceRelease(..) => Operation::ForceRelease,
            Self::Inspect(_) => Operation::Inspect,
            Self::List(..) => Operation::List,
            Self::Ping => Operation::Ping,
            Self::Release(_) => Operation::Release,
            Self::Renew(_) | Self::RenewAll(_) => Operation::Renew,
            Self::Revoke(..) => Operation::Revoke,
        })
    }

    /// Returns the key of this request, or the first of several keys.
    pub(super) fn key(&self) -> Option<&LockKey> {
        match self {
            Self::Acquire(claim) => Some(claim.key()),
            Self::AcquireAll(claims) => claims.first().map(Claim::key),
            Self::ForceRelease(key, _)
            | Self::Inspect(key)
            | Self::Revoke(key, _)
            | Self::Watch(key) => Some(key),
            Self::Release(lease) | Self::Renew(lease) => Some(lease.key()),
            Self::RenewAll(leases) => leases.first().map(Lease::key),
            Self::Close
            | Self::Diagnose
            | Self::Enlist(_)
            | Self::List(..)
            | Self::Ping
            | Self::Standing(_) => None,
        }
    }

    /// Sends this request to `store`.
    pub(super) async fn send(&self, store: &impl LockBackend) -> Result<Reply, Error> {
        Ok(match self {
            Self::Acquire(claim) => Reply::Acquire(store.try_acquire(claim).await?),
            Self::AcquireAll(claims) => Reply::AcquireAll(store.try_acquire_all(claims).await?),
            Self::Close => {
                store.close().await;
                Reply::Done
            }
            Self::Diagnose => Reply::Diagnose(store.diagnose().await?),
            Self::Enlist(enlistment) => Reply::Enlist(store.enlist(enlistment).await?),
            Self::ForceRelease(key, only) => {
                Reply::ForceRelease(store.force_release(key, *only).await?)
            }
            Self::Inspect(key) => Reply::Inspect(store.inspect(key).await?),
            Self::List(prefix, after) => Reply::List(store.list(prefix, after.as_deref()).await?),
            Self::Ping => {
                store.ping().await?;
                Reply::Done
            }
            Self::Release(lease) => Reply::Release(store.release(lease).await?),
            Self::Renew(lease) => Reply::Renew(store.renew(lease).await?),
            Self::RenewAll(leases) => Reply::RenewAll(store.renew_all(leases).await),
            Self::Revoke(key, only) => Reply::Revoke(store.request_revocation(key, *only).await?),
            Self::Standing(fresh) => Reply::Standing(store.standing(*fresh).await?),
            Self::Watch(_) => Reply::Done,
        })
    }
}

pub(super) fn unexpected(reply: &Reply) -> ! {
    panic!("a script replied to a different type of request: {reply:?}")
}

/// Returns the content of a reply of this name, or the error.
macro_rules! read {
    ($reply:expr, $name:ident) => {
        match $reply {
            Ok(Reply::$name(content)) => Ok(content),
            Ok(reply) => exchange::unexpected(&reply),
            Err(error) => Err(error),
        }
    };
}

pub(super) use read;
