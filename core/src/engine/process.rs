//! Detects whether a client is used in a forked process.

use std::process;

use crate::contract::error::{Error, ErrorKind};

/// The process that created a client.
///
/// A forked process gets a copy of the client without its threads, and the copy shares its
/// connections with the parent. Nothing in the copy may be used. Even the copied mutexes may be
/// locked, because another thread of the parent may have held them during the fork.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn current() -> Self {
        Self(process::id())
    }

    /// Returns whether the caller is running in a forked process.
    pub(crate) fn was_left(self) -> bool {
        self != Self::current()
    }

    /// Returns an error in a forked process.
    pub(crate) fn check(self) -> Result<(), Error> {
        if !self.was_left() {
            return Ok(());
        }
        let message = "the process was forked after the client was created; create a new client in the forked process";
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
        assert!(
            error.to_string().ends_with("create a new client in the forked process"),
            "{error}"
        );
    }
}
