//! Calls to a server that is a member of a quorum.

use leasehold_core::backend::{Enlistment, StoreId};

use super::{Call, Words};
use crate::layout::{Layout, Member};
use crate::process::Process;
use crate::script::Script;

impl Call {
    /// Returns the call that reads the membership status of a server that runs as `process`. A
    /// server without an identity gets the identity `fresh`.
    pub(crate) fn standing(layout: &Layout, fresh: StoreId, process: &Process) -> Self {
        let words = Words::default().standing(&layout.member(), fresh, process);
        Self::new(words.shape(Script::Standing), words)
    }

    /// Returns the call that makes the server a member of a quorum.
    pub(crate) fn enlist(layout: &Layout, enlistment: &Enlistment, process: &Process) -> Self {
        // The requested identity is not used, because a server that has lost this identity in the
        // meantime must not get it back.
        let words = Words::default().standing(&layout.member(), StoreId::new(), process);
        let words = words.number(enlistment.store()).word(enlistment.charter().as_str());
        let words = words.number(enlistment.floor());
        Self::new(words.shape(Script::Enlist), words)
    }
}

impl Words {
    fn standing(self, member: &Member, fresh: StoreId, process: &Process) -> Self {
        self.key(&member.record)
            .word(&member.floor)
            .number(fresh)
            .word(&process.run)
            .number(u8::from(process.is_durable))
    }
}
