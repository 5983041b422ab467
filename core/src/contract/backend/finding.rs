//! What a backend finds out about its servers.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// Above this, the clock of a server is worth a warning: fencing tokens and minimum hold times depend on clocks.
const SKEW: Duration = Duration::from_secs(1);

/// The outcome of one check of a server.
///
/// See [`Finding`](crate::backend::Finding) for an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing endangers the locks.
    Ok,
    /// Locks work, with the risk that the message describes.
    Warning,
    /// The server grants no locks, or does not keep the promises of the backend.
    Failed,
}

/// One check of a server: the answer of [`LockBackend::diagnose`](crate::backend::LockBackend::diagnose) is a list of them.
///
/// ```
/// use leasehold_core::backend::{Finding, Verdict};
///
/// let finding = Finding::warning("persistence", "a restart frees all locks").with_server("10.0.0.1:6379");
/// assert_eq!(finding.verdict(), Verdict::Warning);
/// assert_eq!(finding.server(), Some("10.0.0.1:6379"));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    server: Option<String>,
    check: Cow<'static, str>,
    verdict: Verdict,
    message: Cow<'static, str>,
}

impl Finding {
    /// Creates a finding without any risk.
    pub fn ok(check: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Verdict::Ok, check.into(), message.into())
    }

    /// Creates a finding with a risk. The message names the remedy.
    pub fn warning(
        check: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Verdict::Warning, check.into(), message.into())
    }

    /// Creates the finding that a server cannot be used. The message names the remedy.
    pub fn failed(
        check: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Verdict::Failed, check.into(), message.into())
    }

    /// Compares the clock of a server with the clock of this machine. It shows `theirs` now.
    pub fn clock(theirs: SystemTime) -> Self {
        let ours = SystemTime::now();
        let skew = theirs.duration_since(ours).or_else(|_| ours.duration_since(theirs));
        let skew = skew.unwrap_or_default();
        let message = format!("{skew:.1?} from this machine's");
        if skew > SKEW { Self::warning("clock", message) } else { Self::ok("clock", message) }
    }

    fn new(verdict: Verdict, check: Cow<'static, str>, message: Cow<'static, str>) -> Self {
        Self { server: None, check, verdict, message }
    }

    /// Names the server, if the store has several.
    #[must_use]
    pub fn with_server(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }

    /// The server, if the store has several.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The subject of the check, such as `persistence`.
    pub fn check(&self) -> &str {
        &self.check
    }

    /// The outcome.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The value that was found and, unless the outcome is [`Verdict::Ok`], the risk and the remedy. It contains no secret.
    pub fn message(&self) -> &str {
        &self.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_differs_by_more_than_a_second_is_a_warning() {
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);

        assert_eq!(Finding::clock(now).verdict(), Verdict::Ok);
        assert_eq!(Finding::clock(now + hour).verdict(), Verdict::Warning);
        assert_eq!(Finding::clock(now - hour).verdict(), Verdict::Warning);
    }
}
