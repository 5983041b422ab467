//! A claim's queue entry, and the keys that show whether the claim still has to wait.

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use leasehold_core::backend::{Claim, Contention};

use crate::entry::Entry;
use crate::queue::Queue;

/// The queue entry of a claim, as of the last time when the whole queue was read.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) own: Entry,
    /// The entry that blocks the claim, or `None` if a combination of several entries blocks the
    /// claim.
    before: Option<Entry>,
    /// The holder that is reported to callers.
    holder: Option<Entry>,
}

impl Place {
    pub(crate) fn new(queue: &Queue, claim: &Claim, own: &Entry) -> Self {
        let before = queue.predecessor(claim, &own.tag);
        // An entry that sets a smaller limit may be blocked even if this claim is not.
        let blocks = |before: &&Entry| claim.mode().limit() <= before.mode.limit();
        Self {
            own: own.clone(),
            before: before.filter(blocks).cloned(),
            holder: queue.holders().next().cloned(),
        }
    }

    /// Returns a transaction that reads only the relevant keys, to check whether the claim still
    /// has to wait. Returns `None` if the whole queue must be read.
    ///
    /// The transaction is read-only, so only the member that receives it has to process it.
    pub(crate) fn question(&self) -> Option<Txn> {
        let is_as_seen = |entry: &Entry| {
            Compare::mod_revision(entry.key.as_slice(), CompareOp::Equal, entry.modified)
        };
        let unchanged = [&self.own, self.before.as_ref()?].map(is_as_seen);
        let look = |holder: &Entry| {
            TxnOp::get(holder.key.as_slice(), Some(GetOptions::new().with_keys_only()))
        };
        let reads: Vec<TxnOp> = self.holder.iter().map(look).collect();
        Some(Txn::new().when(unchanged).and_then(reads))
    }

    /// Returns the contention from the reply to the [question](Self::question). The contention
    /// contains the holder, if the holder has not changed. Returns `None` if the claim may no
    /// longer have to wait.
    pub(crate) fn answer(&self, reply: &TxnResponse) -> Option<Contention> {
        let is_same = |holder: &&Entry| {
            let found = reply.op_responses().into_iter().find_map(|response| match response {
                TxnOpResponse::Get(found) => found.kvs().first().map(KeyValue::create_revision),
                _ => None,
            });
            found == Some(holder.created)
        };
        let holder = self.holder.as_ref().filter(is_same).map(Entry::holder);
        let contention = holder.into_iter().fold(Contention::new(), Contention::with_holder);
        reply.succeeded().then_some(contention)
    }
}
