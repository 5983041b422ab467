//! The results of server checks.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// Clock skew larger than this limit is reported as a warning, because fencing tokens and minimum
/// hold times depend on clocks.
const SKEW: Duration = Duration::from_secs(1);

/// The outcome of one check of a server.
///
/// See [`Finding`](crate::backend::Finding) for an example that creates a warning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The check did not find a risk to locks.
    Ok,
    /// Locks work, but there is a risk, which the message describes.
    Warning,
    /// The server cannot grant locks, or it does not meet the guarantees of the backend.
    Failed,
}

/// The result of one check of a server, as returned by
/// [`StoreAdmin::diagnose`](crate::backend::StoreAdmin::diagnose).
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
    /// Creates the result of a check that did not find a risk.
    pub fn ok(check: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Verdict::Ok, check.into(), message.into())
    }

    /// Creates the result of a check that found a risk. The message should suggest a remedy.
    pub fn warning(
        check: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Verdict::Warning, check.into(), message.into())
    }

    /// Creates the check result for a server that cannot be used. The message should suggest a
    /// remedy.
    pub fn failed(
        check: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Verdict::Failed, check.into(), message.into())
    }

    /// Compares the current time on a server with the clock of this machine.
    pub fn clock(theirs: SystemTime) -> Self {
        let ours = SystemTime::now();
        let skew = theirs.duration_since(ours).or_else(|_| ours.duration_since(theirs));
        let skew = skew.unwrap_or_default();
        let message = format!("differs from this machine's clock by {skew:.1?}");
        if skew > SKEW { Self::warning("clock", message) } else { Self::ok("clock", message) }
    }

    fn new(verdict: Verdict, check: Cow<'static, str>, message: Cow<'static, str>) -> Self {
        Self { server: None, check, verdict, message }
    }

    /// Sets the server that was checked, if the store has several servers.
    #[must_use]
    pub fn with_server(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }

    /// Returns the server that was checked, if the store has several servers.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Returns the subject of the check, such as `persistence`.
    pub fn check(&self) -> &str {
        &self.check
    }

    /// Returns the outcome of the check.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the observed value and, unless the outcome is [`Verdict::Ok`], the risk and its
    /// remedy. The message does not contain secrets.
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
