//! Requests and replies as values, for code that treats all operations of a store alike.

use std::borrow::Cow;

use crate::contract::backend::{
    Attempt, AttemptAll, Claim, Finding, Fingerprint, Grant, JoinRequest, KeyPage, Lease,
    LockBackend, MemberStatus, Operation, Release, Renewal, StoreId, Vote,
};
use crate::contract::error::{Error, ErrorKind};
use crate::contract::inspection::Inspection;
use crate::contract::key::LockKey;
use crate::contract::outcome::{ForcedRelease, Revocation};

/// A request to a store. Each variant contains the arguments of one method of [`LockBackend`],
/// [`StoreAdmin`](crate::backend::StoreAdmin) or [`Member`](crate::backend::Member).
///
/// A request borrows its arguments, or owns them if it was created by
/// [`into_owned`](Self::into_owned). See [`Layer`](crate::backend::Layer) for an example.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Request<'a> {
    /// [`LockBackend::acquire`].
    Acquire(Cow<'a, Claim>),
    /// [`LockBackend::acquire_all`].
    AcquireAll(Cow<'a, [Claim]>),
    /// [`StoreAdmin::diagnose`](crate::backend::StoreAdmin::diagnose).
    Diagnose,
    /// [`StoreAdmin::force_release`](crate::backend::StoreAdmin::force_release).
    ForceRelease(Cow<'a, LockKey>, Option<Fingerprint>),
    /// [`StoreAdmin::inspect`](crate::backend::StoreAdmin::inspect).
    Inspect(Cow<'a, LockKey>),
    /// [`Member::join`](crate::backend::Member::join).
    Join(Cow<'a, JoinRequest>),
    /// [`StoreAdmin::list`](crate::backend::StoreAdmin::list).
    List {
        /// The prefix of the encoded key names.
        prefix: Cow<'a, str>,
        /// The position where the previous page ended.
        after: Option<Cow<'a, str>>,
    },
    /// [`LockBackend::ping`].
    Ping,
    /// [`Member::raise`](crate::backend::Member::raise), with the minimum token.
    Raise(Cow<'a, Lease>, u64),
    /// [`LockBackend::release`].
    Release(Cow<'a, Lease>),
    /// [`LockBackend::renew`].
    Renew(Cow<'a, Lease>),
    /// [`LockBackend::renew_all`].
    RenewAll(Cow<'a, [Lease]>),
    /// [`StoreAdmin::request_revocation`](crate::backend::StoreAdmin::request_revocation).
    RequestRevocation(Cow<'a, LockKey>, Option<Fingerprint>),
    /// [`Member::status`](crate::backend::Member::status).
    Status(StoreId),
    /// [`Member::vote`](crate::backend::Member::vote).
    Vote(Cow<'a, Vote>),
}

/// The reply to a [`Request`].
///
/// [`read`](Self::read) converts a reply to the return type of the operation.
///
/// See [`Machine`](crate::memory::Machine) for an example that reads two replies.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reply {
    /// The reply to [`Request::Acquire`] and [`Request::Vote`].
    Attempt(Attempt),
    /// The reply to [`Request::AcquireAll`].
    AttemptAll(AttemptAll),
    /// The reply to [`Request::Ping`].
    Done,
    /// The reply to [`Request::Diagnose`].
    Findings(Vec<Finding>),
    /// The reply to [`Request::ForceRelease`].
    ForcedRelease(ForcedRelease),
    /// The reply to [`Request::Inspect`].
    Inspection(Inspection),
    /// The reply to [`Request::List`].
    KeyPage(KeyPage),
    /// The reply to [`Request::Join`] and [`Request::Status`].
    MemberStatus(MemberStatus),
    /// The reply to [`Request::Release`].
    Release(Release),
    /// The reply to [`Request::Raise`] and [`Request::Renew`].
    Renewal(Renewal),
    /// The reply to [`Request::RenewAll`], with one result per lease.
    Renewals(Vec<Result<Renewal, Error>>),
    /// The reply to [`Request::RequestRevocation`].
    Revocation(Revocation),
}

impl Request<'_> {
    /// Sends this request to `store`.
    ///
    /// # Errors
    ///
    /// Returns the error of the operation. Returns [`ErrorKind::Unsupported`] if the store does not
    /// have the [facet](LockBackend::admin) to which the operation belongs.
    pub async fn send<B>(&self, store: &B) -> Result<Reply, Error>
    where
        B: LockBackend + ?Sized,
    {
        let admin = || store.admin().ok_or_else(|| self.unsupported(store));
        let member = || store.member().ok_or_else(|| self.unsupported(store));
        Ok(match self {
            Self::Acquire(claim) => store.acquire(claim).await?.into(),
            Self::AcquireAll(claims) => store.acquire_all(claims).await?.into(),
            Self::Diagnose => admin()?.diagnose().await?.into(),
            Self::ForceRelease(key, only) => admin()?.force_release(key, *only).await?.into(),
            Self::Inspect(key) => admin()?.inspect(key).await?.into(),
            Self::Join(request) => member()?.join(request).await?.into(),
            Self::List { prefix, after } => admin()?.list(prefix, after.as_deref()).await?.into(),
            Self::Ping => store.ping().await?.into(),
            Self::Raise(lease, token) => member()?.raise(lease, *token).await?.into(),
            Self::Release(lease) => store.release(lease).await?.into(),
            Self::Renew(lease) => store.renew(lease).await?.into(),
            Self::RenewAll(leases) => store.renew_all(leases).await.into(),
            Self::RequestRevocation(key, only) => {
                admin()?.request_revocation(key, *only).await?.into()
            }
            Self::Status(fresh) => member()?.status(*fresh).await?.into(),
            Self::Vote(vote) => member()?.vote(vote).await?.into(),
        })
    }

    /// Returns a request that owns its arguments, for example to send it from another task.
    #[must_use]
    pub fn into_owned(self) -> Request<'static> {
        fn owned<T: ToOwned + ?Sized>(value: Cow<'_, T>) -> Cow<'static, T> {
            Cow::Owned(value.into_owned())
        }
        match self {
            Self::Acquire(claim) => Request::Acquire(owned(claim)),
            Self::AcquireAll(claims) => Request::AcquireAll(owned(claims)),
            Self::Diagnose => Request::Diagnose,
            Self::ForceRelease(key, only) => Request::ForceRelease(owned(key), only),
            Self::Inspect(key) => Request::Inspect(owned(key)),
            Self::Join(request) => Request::Join(owned(request)),
            Self::List { prefix, after } => {
                Request::List { prefix: owned(prefix), after: after.map(owned) }
            }
            Self::Ping => Request::Ping,
            Self::Raise(lease, token) => Request::Raise(owned(lease), token),
            Self::Release(lease) => Request::Release(owned(lease)),
            Self::Renew(lease) => Request::Renew(owned(lease)),
            Self::RenewAll(leases) => Request::RenewAll(owned(leases)),
            Self::RequestRevocation(key, only) => Request::RequestRevocation(owned(key), only),
            Self::Status(fresh) => Request::Status(fresh),
            Self::Vote(vote) => Request::Vote(owned(vote)),
        }
    }

    /// Returns the operation, as errors name it.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Acquire(_) | Self::AcquireAll(_) | Self::Vote(_) => Operation::Acquire,
            Self::Diagnose => Operation::Diagnose,
            Self::ForceRelease(..) => Operation::ForceRelease,
            Self::Inspect(_) => Operation::Inspect,
            Self::Join(_) | Self::Status(_) => Operation::Join,
            Self::List { .. } => Operation::List,
            Self::Ping => Operation::Ping,
            Self::Raise(..) | Self::Renew(_) | Self::RenewAll(_) => Operation::Renew,
            Self::Release(_) => Operation::Release,
            Self::RequestRevocation(..) => Operation::RequestRevocation,
        }
    }

    /// Returns the key of the request, or the first of several keys.
    pub fn key(&self) -> Option<&LockKey> {
        match self {
            Self::ForceRelease(key, _) | Self::Inspect(key) | Self::RequestRevocation(key, _) => {
                Some(key)
            }
            Self::Raise(lease, _) | Self::Release(lease) | Self::Renew(lease) => Some(lease.key()),
            Self::RenewAll(leases) => leases.first().map(Lease::key),
            _ => self.claims().first().map(Claim::key),
        }
    }

    /// Returns all keys of the request.
    pub fn keys(&self) -> impl Iterator<Item = &LockKey> {
        let (leases, claims) = match self {
            Self::RenewAll(leases) => (&leases[..], &[][..]),
            _ => (&[][..], self.claims()),
        };
        let is_single = leases.is_empty() && claims.is_empty();
        let single = self.key().filter(|_| is_single);
        leases.iter().map(Lease::key).chain(claims.iter().map(Claim::key)).chain(single)
    }

    /// Returns the claims of the request. The list is empty if the request does not acquire leases.
    pub fn claims(&self) -> &[Claim] {
        match self {
            Self::Acquire(claim) => std::slice::from_ref(claim),
            Self::AcquireAll(claims) => claims,
            Self::Vote(vote) => std::slice::from_ref(vote.claim()),
            _ => &[],
        }
    }

    fn unsupported<B: LockBackend + ?Sized>(&self, store: &B) -> Error {
        let error = super::unsupported(&store.capabilities(), self.operation());
        self.key().into_iter().fold(error, Error::with_key)
    }
}

impl Reply {
    /// Returns the grants of the reply, in the order of the claims. The list is empty if the reply
    /// does not grant leases.
    pub fn grants(&self) -> &[Grant] {
        match self {
            Self::Attempt(Attempt::Granted(grant)) => std::slice::from_ref(grant),
            Self::AttemptAll(AttemptAll::Granted(grants)) => grants,
            _ => &[],
        }
    }

    /// Returns the content of the reply.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unexpected`] if this is the reply to a different operation.
    pub fn read<T: TryFrom<Self, Error = Self>>(self) -> Result<T, Error> {
        T::try_from(self).map_err(|reply| {
            let message = format!("this is the reply to a different operation: {reply:?}");
            Error::new(ErrorKind::Unexpected, message)
        })
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl TryFrom<Reply> for () {
    type Error = Reply;

    fn try_from(reply: Reply) -> Result<Self, Reply> {
        match reply {
            Reply::Done => Ok(()),
            other => Err(other),
        }
    }
}

/// Implements the conversions between a [`Reply`] and the content of one variant.
macro_rules! replies {
    ($($variant:ident: $content:ty),* $(,)?) => {$(
        impl From<$content> for Reply {
            fn from(content: $content) -> Self {
                Self::$variant(content)
            }
        }

        impl TryFrom<Reply> for $content {
            type Error = Reply;

            fn try_from(reply: Reply) -> Result<Self, Reply> {
                match reply {
                    Reply::$variant(content) => Ok(content),
                    other => Err(other),
                }
            }
        }
    )*};
}

replies! {
    Attempt: Attempt,
    AttemptAll: AttemptAll,
    Findings: Vec<Finding>,
    ForcedRelease: ForcedRelease,
    Inspection: Inspection,
    KeyPage: KeyPage,
    MemberStatus: MemberStatus,
    Release: Release,
    Renewal: Renewal,
    Renewals: Vec<Result<Renewal, Error>>,
    Revocation: Revocation,
}
