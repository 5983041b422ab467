//! Faults of clients and of their store, and the limits of the guarantees, that is, the violations
//! that are permitted after a fault.

use std::time::Duration;

use crate::Rule;

/// A period after a fault in which some rules do not apply.
///
/// [`Hit`] contains a value of this type.
#[derive(Debug)]
pub struct Window {
    /// The guarantee, as stated in `docs/promises.md`.
    pub promise: &'static str,
    /// The rules that do not apply.
    pub rules: &'static [Rule],
    /// The longest allowed violation, as a number of TTLs plus a number of seconds.
    pub longest: (u32, u32),
    /// How long after the end of the fault a violation may start, as a number of TTLs plus a number
    /// of seconds.
    pub after: (u32, u32),
}

/// A fault that was in effect.
///
/// [`History::new`](super::judge::History::new) takes an argument that contains values of this
/// type.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The kind of the fault.
    pub kind: &'static str,
    /// The period, if any, in which some rules do not apply because of the fault.
    pub window: Option<&'static Window>,
    /// Whether the fault is outside the guarantees, for example the loss of all data.
    pub is_outside: bool,
    /// The affected process, or the pair of processes whose traffic is affected.
    pub target: String,
    /// The client processes that were paused.
    pub stopped: Vec<u32>,
    /// The start of the fault, on the clock that guards use.
    pub from: Duration,
    /// The end of the fault.
    pub until: Duration,
}

impl Hit {
    /// Returns the guarantee whose limits excuse a violation of the rule at this time, or `None` if
    /// no guarantee excuses the violation.
    pub fn excuse(
        &self,
        rule: Rule,
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
