//! Reads durations in a human-readable form, such as `1h 30m`.

use std::fmt;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Reads a duration such as `"30s"`.
pub(super) fn time<'de, D: Deserializer<'de>>(format: D) -> Result<Option<Duration>, D::Error> {
    format.deserialize_any(Time).map(Some)
}

struct Time;

impl Visitor<'_> for Time {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with a unit, such as \"30s\" or \"200ms\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text).map_err(|error| {
            E::custom(format!("{error}; use a time with a unit, such as \"30s\" or \"200ms\""))
        })
    }
}
