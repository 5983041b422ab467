//! A claim's place in line, and the keys that tell whether it still waits there.

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use leasehold_core::backend::{Claim, Contention};

use crate::entry::Entry;
use crate::queue::Queue;

/// A claim's place in line, as the last look at the whole queue saw it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) own: Entry,
    /// The entry in whose presence the claim cannot be admitted; `None` if it takes several to make room.
    before: Option<Entry>,
    /// The holder that callers are told of.
    holder: Option<Entry>,
}

impl Place {
    pub(crate) fn new(queue: &Queue, claim: &Claim, own: &Entry) -> Self {
        let before = queue.predecessor(claim, &own.tag);
        // A predecessor that wants the lock with fewer units to share may be refused where the claim is not.
        let blocks = |before: &&Entry| claim.share().limit() <= before.share.limit();
        Self {
            own: own.clone(),
            before: before.filter(blocks).cloned(),
            holder: queue.holders().next().cloned(),
        }
    }

    /// Asks for these keys alone whether the claim still waits. `None` if that takes a look at the whole queue.
    ///
    /// It changes nothing, so no member but the one that is asked has any work with it.
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

    /// The answer to the [question](Self::question): the holder, if it is the same still. `None` unless the claim still waits.
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
