//! The operations for operators.

use std::collections::HashSet;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use leasehold_core::backend::entry::{Entry, Holding, Step};
use leasehold_core::backend::{
    Fingerprint, ForcedRelease, Inspection, KeyPage, Operation, Revocation, StoreAdmin,
};
use leasehold_core::{Error, ErrorKind, LockKey};
use leasehold_entry::Tag;
use uuid::Uuid;

use crate::backend::CasBackend;
use crate::documents::Start;
use crate::state::State;
use crate::store::CasStore;

/// The number of documents that a listing reads at the same time.
const READS_AT_A_TIME: usize = 16;

/// The holders at the first call of a step, which are the leases that the operation is about. If
/// the document changes in the meantime, the step is applied again, and does not end later
/// leases.
#[derive(Debug, Default)]
struct Meant(Option<HashSet<Uuid>>);

impl Meant {
    /// Removes the leases that are not meant from the entry, and returns them.
    fn separate(
        &mut self,
        entry: &mut Entry<Tag, i64>,
        only: Option<Fingerprint>,
    ) -> Vec<Holding<Tag, i64>> {
        let is_meant =
            |held: &&Holding<Tag, i64>| only.is_none_or(|only| held.name.fingerprint == only);
        let holders = entry.holders.iter().filter(is_meant).map(|held| held.name.id);
        let meant = self.0.get_or_insert_with(|| holders.collect());
        entry.holders.extract_if(.., |held| !meant.contains(&held.name.id)).collect()
    }

    /// Returns whether a lease that is meant is not among the holders.
    fn is_incomplete(&self, holders: &[Holding<Tag, i64>]) -> bool {
        let is_gone = |tag: &Uuid| !holders.iter().any(|held| held.name.id == *tag);
        self.0.as_ref().is_some_and(|meant| meant.iter().any(is_gone))
    }
}

/// Ends leases, and replaces a document that this version cannot read. `is_overwritten` shows
/// whether an earlier call has replaced the document.
fn force_release(
    state: &mut State,
    meant: &mut Meant,
    is_overwritten: &mut bool,
    only: Option<Fingerprint>,
) -> Result<Step<ForcedRelease>, Error> {
    let (now, tokens) = (state.now(), state.tokens());
    let is_unreadable = only.is_none() && state.is_unreadable();
    let may_be_applied = state.may_be_applied;
    let entry = state.entry();
    let may_be_gone = meant.is_incomplete(&entry.holders) || *is_overwritten && !is_unreadable;
    if may_be_applied && may_be_gone {
        let message = "the reply to a write was lost, and the document does not show whether leases were ended; inspect the key";
        return Err(Error::new(ErrorKind::Indeterminate, message));
    }
    let (asked_until, later) = (entry.asked_until, meant.separate(entry, only));
    let mut forced = entry.force_release(only, tokens, now);
    if !later.is_empty() {
        entry.holders.extend(later);
        entry.asked_until = asked_until;
        let ended = forced.reply.ended().iter().cloned();
        forced.reply = ended.fold(ForcedRelease::new(), ForcedRelease::with_ended);
    }
    if is_unreadable {
        // The former holder may have a token of the latest time.
        entry.last_token = entry.last_token.max(now.try_into().unwrap_or_default()) + 1;
        forced.reply = forced.reply.with_min_token(entry.last_token);
        forced.is_news = true;
        *is_overwritten = true;
        state.must_write = true;
    }
    Ok(forced)
}

/// Asks the holders that are meant to finish early.
fn request_revocation(
    state: &mut State,
    meant: &mut Meant,
    only: Option<Fingerprint>,
) -> Result<Revocation, Error> {
    let may_be_applied = state.may_be_applied;
    let entry = state.entry();
    let (asked_until, later) = (entry.asked_until, meant.separate(entry, only));
    let reply = if entry.is_held() { entry.request_revocation(only) } else { Revocation::NotHeld };
    let may_be_asked = reply == Revocation::NotHeld && meant.is_incomplete(&entry.holders);
    if !later.is_empty() {
        entry.asked_until = entry.asked_until.max(asked_until);
        entry.holders.extend(later);
    }
    if may_be_applied && may_be_asked {
        let message = "the reply to a write was lost, and the document does not show whether the holders were asked; inspect the key";
        return Err(Error::new(ErrorKind::Indeterminate, message));
    }
    Ok(reply)
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
        let context = |error: Error| {
            error.with_operation(Operation::List).with_backend(self.documents().facts.name)
        };
        let page = self.store().list(prefix, after).await.map_err(context)?;
        let next = page.next().map(ToOwned::to_owned);
        let in_use = |key: LockKey| async move {
            let is_in_use = self.documents().is_in_use(&key).await;
            is_in_use.map(|is_in_use| is_in_use.then_some(key))
        };
        let mut reads = stream::iter(page.keys().to_vec().into_iter().map(in_use))
            .buffer_unordered(READS_AT_A_TIME);
        let mut keys = Vec::new();
        while let Some(key) = reads.next().await {
            keys.extend(key.map_err(context)?);
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
        let mut is_overwritten = false;
        let force = |state: &mut State| force_release(state, &mut meant, &mut is_overwritten, only);
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
            let reply = request_revocation(state, &mut meant, only)?;
            Ok(Step { reply, is_news: false })
        };
        let requested = self.step(key, Operation::RequestRevocation, Start::Read, request).await?;
        self.notify_holders(key);
        Ok(requested)
    }
}
