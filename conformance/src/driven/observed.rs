//! A backend that reports its calls to the suite.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Error;
use leasehold_core::backend::{Layer, LockBackend, Reply, Request};

use super::Calls;
use crate::silences::Silences;

/// The backend of a [`Scene`](crate::Scene)'s clients. The wrapper contains the harness's backend,
/// and records whether a call is in progress and whether the store replies.
#[derive(Debug)]
pub(crate) struct Observed {
    inner: Arc<dyn LockBackend>,
    calls: Calls,
    silences: Silences,
}

impl Observed {
    pub(crate) fn new(inner: Arc<dyn LockBackend>, calls: Calls, silences: Silences) -> Self {
        Self { inner, calls, silences }
    }
}

#[async_trait]
impl Layer for Observed {
    fn inner(&self) -> &dyn LockBackend {
        &*self.inner
    }

    async fn request(&self, request: Request<'_>) -> Result<Reply, Error> {
        let _call = self.calls.begin().await;
        let asked = self.silences.ask();
        let reply = request.send(&*self.inner).await;
        asked.ends(match &reply {
            Ok(Reply::Renewals(renewals)) => renewals.iter().find_map(|it| it.as_ref().err()),
            reply => reply.as_ref().err(),
        });
        reply
    }

    async fn close(&self) {
        let _call = self.calls.begin().await;
        self.inner.close().await;
    }
}
