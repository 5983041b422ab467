//! Faults that befell clients and their store, and the promises that exclude their effects.

use std::time::Duration;

/// A time for which the promises exclude some rules, after a fault.
#[derive(Debug)]
pub struct Window {
    /// The promise, as `docs/promises.md` has it.
    pub promise: &'static str,
    /// The rules.
    pub rules: &'static [&'static str],
    /// The longest violation: in TTLs, and in seconds more.
    pub longest: (u32, u32),
    /// The last start of a violation, counted from the end of the fault: in TTLs, and in seconds more.
    pub after: (u32, u32),
}

/// A fault that was in force.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The name of its kind.
    pub kind: &'static str,
    /// The window of the promises that it opens, if it opens one.
    pub window: Option<&'static Window>,
    /// Whether the promises exclude it, such as the loss of all data.
    pub is_outside: bool,
    /// The process that it hit, or the pair whose traffic it hit.
    pub target: String,
    /// The client processes that stood still.
    pub stopped: Vec<u32>,
    /// From when, by the clock that guards go by.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

impl Hit {
    /// The promise that excludes a violation of a rule at a time, if the fault opens such a window.
    pub fn excuse(
        &self,
        rule: &str,
        at: Duration,
        length: Duration,
        ttl: Duration,
    ) -> Option<&'static str> {
        let time = |(ttls, seconds): (u32, u32)| ttl * ttls + Duration::from_secs(seconds.into());
        let window = self.window?;
        let is_within = self.from <= at && at <= self.until + time(window.after);
        let is_excused =
            window.rules.contains(&rule) && is_within && length <= time(window.longest);
        is_excused.then_some(window.promise)
    }
}
