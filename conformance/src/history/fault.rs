//! Faults of clients and of their store, and the limits of the guarantees, that is, the violations
//! that are permitted after a fault.

use std::time::Duration;

use crate::{FaultKind, Rule};

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
    /// How long after the end of the fault a violation may last, as a number of TTLs plus a number
    /// of seconds.
    pub after: (u32, u32),
}

/// A fault that was in effect.
///
/// [`History::new`](super::checker::History::new) takes an argument that contains values of this
/// type.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The period, if any, in which some rules do not apply because of the fault.
    pub window: Option<&'static Window>,
    /// Whether the fault is outside the guarantees, for example the loss of all data.
    pub is_outside: bool,
    /// The affected process, or the pair of processes whose traffic is affected.
    pub target: String,
    /// The only affected key, if the fault affects one key.
    pub key: Option<String>,
    /// The client processes that were paused.
    pub stopped: Vec<u32>,
    /// The start of the fault, on the clock that guards use.
    pub from: Duration,
    /// The end of the fault.
    pub until: Duration,
}

impl Hit {
    /// Creates a fault without a target, to which all rules apply.
    pub fn new(kind: FaultKind, from: Duration, until: Duration) -> Self {
        let (target, stopped) = (String::new(), Vec::new());
        Self { kind, window: None, is_outside: false, target, key: None, stopped, from, until }
    }

    /// Returns the guarantee whose limits excuse a violation of the rule at this time, or `None` if
    /// no guarantee excuses the violation. The faults must be in the order of their start.
    ///
    /// A fault that occurs during an excused violation may prolong the violation.
    pub fn excuse(
        hits: &[Self],
        rule: Rule,
        at: Duration,
        length: Duration,
        ttl: Duration,
    ) -> Option<&'static str> {
        let time = |(ttls, seconds): (u32, u32)| ttl * ttls + Duration::from_secs(seconds.into());
        let (mut promise, mut permitted_until, mut longest) = (None, at, Duration::ZERO);
        for hit in hits {
            let Some(window) = hit.window.filter(|window| window.rules.contains(&rule)) else {
                continue;
            };
            let until = hit.until + time(window.after);
            if hit.from <= permitted_until && at <= until {
                promise = promise.or(Some(window.promise));
                permitted_until = permitted_until.max(until);
                longest += time(window.longest);
            }
        }
        promise.filter(|_| at + length <= permitted_until && length <= longest)
    }

    /// Returns whether the fault can explain a failure of a call for the key, or the loss of its
    /// lease, that began at `from` and ended at `until`.
    pub(super) fn explains(
        &self,
        key: &str,
        from: Duration,
        until: Duration,
        after_effects: Duration,
    ) -> bool {
        let concerns = self.key.as_deref().is_none_or(|it| it == key);
        concerns && self.from <= until && self.until + after_effects >= from
    }
}
