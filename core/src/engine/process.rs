//! The process that made a client.

use std::process;

use crate::contract::error::{Error, ErrorKind};

/// The process that made a client.
///
/// A forked process has a copy of the client, but not its threads, and shares its connections with the parent. Nothing in the copy may be
/// used, not even its mutexes, because another thread of the parent may have locked them at the time of the fork.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(process::id())
    }

    /// Whether the caller is in another process, which was forked.
    pub(crate) fn was_left(self) -> bool {
        self != Self::current()
    }

    /// Refuses a forked process.
    pub(crate) fn check(self) -> Result<(), Error> {
        if !self.was_left() {
            return Ok(());
        }
        let message = "the process was forked after it had made the client; make a new client in the forked process";
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_process_is_told_to_make_a_new_client() {
        assert!(Process::current().check().is_ok());

        let error = Process(0).check().unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().ends_with("make a new client in the forked process"), "{error}");
    }
}
