//! The channel through which the queue sends messages to a queued caller.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::contract::backend::Mode;
use crate::contract::owner::OwnerId;
use crate::engine::request::LockRequest;
use crate::options::LockOptions;
use crate::sync::{Mutex, lock};

/// A queued caller, as seen by the queue.
#[derive(Debug)]
pub(crate) struct Waiter<N>(Arc<Shared<N>>);

/// The receiving side of a queued caller's messages.
#[derive(Debug)]
pub(super) struct Messages<N>(Arc<Shared<N>>);

/// A message from the queue.
#[derive(Debug)]
pub(super) enum Message<N> {
    /// The last message.
    Next(N),
    /// An outage has started.
    Outage,
    /// The client was shut down.
    Closed,
}

/// A single allocation per wait, because hand-offs can happen once per microsecond.
#[derive(Debug)]
struct Shared<N> {
    mode: Mode,
    owner: Option<OwnerId>,
    options: Arc<LockOptions>,
    inbox: Mutex<Inbox<N>>,
}

#[derive(Debug)]
struct Inbox<N> {
    next: Option<N>,
    outage: bool,
    is_closed: bool,
    /// Whether the caller is gone.
    has_left: bool,
    waker: Option<Waker>,
}

impl<N> Waiter<N> {
    /// Creates the two sides for the caller of this request. If there is an `outage`, the first
    /// message reports it.
    pub(super) fn new(request: &LockRequest<'_>, outage: bool) -> (Self, Messages<N>) {
        let inbox = Inbox { next: None, outage, is_closed: false, has_left: false, waker: None };
        let shared = Arc::new(Shared {
            mode: request.mode,
            owner: request.owner,
            options: Arc::clone(request.options),
            inbox: Mutex::new(inbox),
        });
        (Self(Arc::clone(&shared)), Messages(shared))
    }

    pub(super) fn mode(&self) -> Mode {
        self.0.mode
    }

    pub(crate) fn owner(&self) -> Option<OwnerId> {
        self.0.owner
    }

    /// Returns whether this caller accepts a lease that was acquired with `options` instead of
    /// requesting its own lease from the store.
    pub(super) fn accepts(&self, options: &Arc<LockOptions>) -> bool {
        let wanted = &self.0.options;
        let is_alike = Arc::ptr_eq(wanted, options) || wanted.ask_for_the_same_lease(options);
        self.0.mode.is_mutex() && wanted.spare_tokens() > 0 && is_alike
    }

    /// Sends the last message. Returns the message if the caller is gone.
    pub(super) fn send(self, next: N) -> Result<(), N> {
        self.tell(|inbox| {
            if inbox.has_left {
                return Err(next);
            }
            inbox.next = Some(next);
            Ok(())
        })
    }

    pub(super) fn report_outage(self) {
        self.tell(|inbox| inbox.outage = true);
    }

    pub(super) fn close(self) {
        self.tell(|inbox| inbox.is_closed = true);
    }

    /// Adds a message to the inbox and wakes the caller.
    fn tell<R>(self, message: impl FnOnce(&mut Inbox<N>) -> R) -> R {
        let mut inbox = lock(&self.0.inbox);
        let told = message(&mut inbox);
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
        told
    }
}

/// A clone refers to the same caller.
impl<N> Clone for Waiter<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<N> Messages<N> {
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Message<N>> {
        let mut inbox = lock(&self.0.inbox);
        if let Some(next) = inbox.next.take() {
            return Poll::Ready(Message::Next(next));
        }
        if mem::take(&mut inbox.outage) {
            return Poll::Ready(Message::Outage);
        }
        if inbox.is_closed {
            return Poll::Ready(Message::Closed);
        }
        let is_known = inbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let replaced = if is_known { None } else { inbox.waker.replace(cx.waker().clone()) };
        drop(inbox);
        drop(replaced);
        Poll::Pending
    }

    /// Leaves the queue, so that a last message that is sent later is rejected. Returns the message
    /// if it has already arrived.
    pub(super) fn leave(&self) -> Option<N> {
        let mut inbox = lock(&self.0.inbox);
        inbox.has_left = true;
        inbox.next.take()
    }
}
