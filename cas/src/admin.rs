//! The operations for operators.

use std::collections::HashSet;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use leasehold_core::backend::entry::{Entry, Step};
use leasehold_core::backend::{
    Fingerprint, ForcedRelease, Inspection, KeyPage, Operation, Revocation, StoreAdmin,
};
use leasehold_core::{Error, LockKey};
use leasehold_entry::Tag;
use uuid::Uuid;

use crate::backend::CasBackend;
use crate::documents::Start;
use crate::state::State;
use crate::store::CasStore;

/// The number of documents that a listing reads at the same time.
const READS_AT_A_TIME: usize = 16;

/// The leases that an operation may end, which are the holders at its first call. If the reply to a
/// write is lost, the operation is applied again, and must not end later leases.
#[derive(Debug, Default)]
struct Meant(Option<HashSet<Uuid>>);

impl Meant {
    /// Applies `step` to the entry without the leases that are not meant.
    fn apply<R>(
        &mut self,
        entry: &mut Entry<Tag, i64>,
        step: impl FnOnce(&mut Entry<Tag, i64>) -> R,
    ) -> R {
        let holders = entry.holders.iter().map(|held| held.name.id);
        let meant = self.0.get_or_insert_with(|| holders.collect());
        let later: Vec<_> =
            entry.holders.extract_if(.., |held| !meant.contains(&held.name.id)).collect();
        let reply = step(entry);
        entry.holders.extend(later);
        reply
    }
}

/// Ends leases, and replaces a document that this version cannot read.
fn force_release(
    state: &mut State,
    meant: &mut Meant,
    only: Option<Fingerprint>,
) -> Step<ForcedRelease> {
    let (now, tokens) = (state.now(), state.tokens());
    let is_overwritten = only.is_none() && state.is_unreadable();
    state.must_write |= is_overwritten;
    let entry = state.entry();
    let mut forced = meant.apply(entry, |entry| entry.force_release(only, tokens, now));
    if is_overwritten {
        entry.last_token = entry.last_token.max(tokens.at_least) + 1;
        forced.reply = forced.reply.with_min_token(entry.last_token);
        forced.is_news = true;
    }
    forced
}

#[async_trait]
impl<S: CasStore> StoreAdmin for CasBackend<S> {
    async fn inspect(&self, key: &LockKey) -> Result<Inspection, Error> {
        let inspect = |state: &mut State| {
            let now = state.now();
            Ok(Step { reply: state.entry().inspect(now), is_news: false })
        };
        self.step(key, Operation::Inspect, Start::Read, inspect).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, Error> {
        let listed = self.store().list(prefix, after).await;
        let page = listed.map_err(|error| error.with_operation(Operation::List))?;
        let next = page.next().map(ToOwned::to_owned);
        let in_use = |key: LockKey| async move {
            let is_in_use =
                |state: &mut State| Ok(Step { reply: !state.entry().is_empty(), is_news: false });
            let is_in_use = self.step(&key, Operation::List, Start::Read, is_in_use).await?;
            Ok::<_, Error>(is_in_use.then_some(key))
        };
        let mut reads = stream::iter(page.keys().to_vec().into_iter().map(in_use))
            .buffer_unordered(READS_AT_A_TIME);
        let mut keys = Vec::new();
        while let Some(key) = reads.next().await {
            keys.extend(key?);
        }
        Ok(KeyPage::new(keys).with_next(next))
    }

    async fn force_release(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<ForcedRelease, Error> {
        let mut meant = Meant::default();
        let start = if only.is_none() { Start::Overwrite } else { Start::Read };
        let force = |state: &mut State| Ok(force_release(state, &mut meant, only));
        let forced = self.step(key, Operation::ForceRelease, start, force).await?;
        self.notify_holders(key);
        Ok(forced)
    }

    async fn request_revocation(
        &self,
        key: &LockKey,
        only: Option<Fingerprint>,
    ) -> Result<Revocation, Error> {
        let mut meant = Meant::default();
        let request = |state: &mut State| {
            let entry = state.entry();
            let reply = meant.apply(entry, |entry| entry.request_revocation(only));
            Ok(Step { reply, is_news: false })
        };
        let requested = self.step(key, Operation::RequestRevocation, Start::Read, request).await?;
        self.notify_holders(key);
        Ok(requested)
    }
}
