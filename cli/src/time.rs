//! Times on the command line.

use std::time::Duration;

/// The units that a time may have. Longer ones are left out: `1M` for a minute would be a month.
const UNITS: [&str; 26] = [
    "ns", "nsec", "nanos", "us", "usec", "micros", "ms", "msec", "millis", "s", "sec", "secs",
    "second", "seconds", "m", "min", "mins", "minute", "minutes", "h", "hr", "hrs", "hour",
    "hours", "d", "day",
];

/// Reads `5` and `0.5` as seconds, and `5s`, `500ms`, `1h 30m` with units.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|_error| "a time is not negative, and not for ever".to_owned());
    }
    let units = text.split(|c: char| !c.is_alphabetic()).filter(|unit| !unit.is_empty());
    for unit in units {
        if unit != "days" && !UNITS.contains(&unit) {
            return Err(format!("{unit:?} is no unit here: take ms, s, m, h or d"));
        }
    }
    humantime::parse_duration(text).map_err(|_error| {
        "a time is a number of seconds, or like 500ms, 30s, 5m, 1h 30m".to_owned()
    })
}

/// A time as users write it.
pub(crate) fn show(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

/// A time that has passed, to the second: `3m 2s`.
pub(crate) fn rough(time: Duration) -> String {
    show(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_numbers_are_seconds() {
        assert_eq!(parse("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse("2days"), Ok(Duration::from_secs(172_800)));
    }

    #[test]
    fn units_above_days_are_refused() {
        for text in ["1M", "1month", "2w", "1week", "1y", "soon", "-1", "inf", "NaN", "", "5 5"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
