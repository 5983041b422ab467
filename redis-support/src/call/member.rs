//! Calls to a server that is a member of a quorum.

use leasehold_core::backend::{JoinRequest, Lease, StoreId, Vote};

use super::{Call, Words};
use crate::layout::{Layout, MemberKeys, Place};
use crate::process::Process;
use crate::script::Script;

impl Call {
    /// Returns the call that reads the membership status of a server that runs as `process`. A
    /// server without an identity gets the identity `fresh`.
    pub(crate) fn status(layout: &Layout, fresh: StoreId, process: &Process) -> Self {
        let words = Words::of_member(&layout.member(), fresh, process);
        Self::new(words.shape(Script::Status), words)
    }

    /// Returns the call that makes the server a member of a quorum.
    pub(crate) fn join(layout: &Layout, request: &JoinRequest, process: &Process) -> Self {
        // The requested identity is not used, because a server that has lost this identity in the
        // meantime must not get it back.
        let words = Words::of_member(&layout.member(), StoreId::new(), process)
            .number(request.store())
            .word(request.configuration().as_str())
            .number(request.min_token());
        Self::new(words.shape(Script::Join), words)
    }

    /// Returns the call that tries to acquire a mutex on a member. `channel` has the same meaning
    /// as for [`Call::acquire`].
    pub(crate) fn vote(layout: &Layout, vote: &Vote, channel: Option<&str>) -> Self {
        let (claim, member) = (vote.claim(), layout.member());
        let words = Words::of_mutex(layout, claim)
            .key(&member.record)
            .wanted(claim, channel)
            .word(vote.configuration().as_str())
            .number(vote.requested_token())
            .word(&member.floor);
        Self::new(words.shape(Script::Vote), words)
    }

    /// Returns the call that renews a mutex on a member and raises the minimum token.
    pub(crate) fn raise(layout: &Layout, lease: &Lease, min_token: u64) -> Self {
        let keys = [Place::Lock, Place::Revoke, Place::Fence];
        let words = Words::of(&layout.places(lease.key()), &keys)
            .value(lease)
            .millis(lease.ttl())
            .number(min_token)
            .word(&layout.member().floor);
        Self::new(words.shape(Script::Raise), words)
    }
}

impl Words {
    fn of_member(member: &MemberKeys, fresh: StoreId, process: &Process) -> Self {
        Self::default()
            .key(&member.record)
            .word(&member.floor)
            .number(fresh)
            .word(&process.run)
            .number(u8::from(process.is_durable))
    }
}
