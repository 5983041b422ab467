//! The calls to a server as a member of a quorum.

use leasehold_core::backend::{Enlistment, StoreId};

use super::{Call, Words};
use crate::layout::{Layout, Member};
use crate::process::Process;
use crate::script::Script;

impl Call {
    /// The call that asks for the standing of a server that `process` is. A server without an identity takes `fresh`.
    pub(crate) fn standing(layout: &Layout, fresh: StoreId, process: &Process) -> Self {
        let words = Words::default().standing(&layout.member(), fresh, process);
        Self::new(words.shape(Script::Standing), words)
    }

    /// The call that makes the server a member.
    pub(crate) fn enlist(layout: &Layout, enlistment: &Enlistment, process: &Process) -> Self {
        // Not the identity that the enlistment is for: a server that lost it meanwhile would have it back.
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
