//! Times on the command line.

use std::fmt;
use std::time::Duration;

/// The units of a time. Longer units are not supported: `1M`, meant as a minute, would be a month.
const UNITS: [&str; 27] = [
    "ns", "nsec", "nanos", "us", "usec", "micros", "ms", "msec", "millis", "s", "sec", "secs",
    "second", "seconds", "m", "min", "mins", "minute", "minutes", "h", "hr", "hrs", "hour",
    "hours", "d", "day", "days",
];

/// A time, which messages show as the user wrote it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Time {
    text: String,
    pub(crate) span: Duration,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads `5` and `0.5` as seconds, and `5s`, `500ms`, `1h 30m` with units.
pub(crate) fn parse(text: &str) -> Result<Time, String> {
    let is_unitless = text.parse::<f64>().is_ok_and(f64::is_finite);
    let text = if is_unitless { format!("{text}s") } else { text.to_owned() };
    Ok(Time { span: span(&text)?, text })
}

/// Reads the time of `--wait`.
pub(crate) fn parse_wait(text: &str) -> Result<Time, String> {
    let hint = |why: String| match why.starts_with("not a time") {
        true => format!("{why}. To wait indefinitely, omit --wait"),
        false => why,
    };
    parse(text).map_err(hint)
}

fn span(text: &str) -> Result<Duration, String> {
    const HELP: &str = "not a time; use a number of seconds, or for example 500ms, 5m or 1h 30m";

    if text.starts_with('-') {
        return Err("a time cannot be negative".to_owned());
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(HELP.to_owned());
    }
    if let Some(Ok(seconds)) = text.strip_suffix('s').map(str::parse::<f64>) {
        return Duration::try_from_secs_f64(seconds).map_err(|_error| HELP.to_owned());
    }
    let mut units = text.split(|c: char| !c.is_alphabetic()).filter(|unit| !unit.is_empty());
    if let Some(unit) = units.find(|unit| !UNITS.contains(unit)) {
        return Err(format!("unknown unit {unit:?}; use ms, s, m, h or d"));
    }
    humantime::parse_duration(text).map_err(|_error| HELP.to_owned())
}

/// A time with its units, as in `1h 30m` and `1 day`.
pub(crate) fn show(time: Duration) -> String {
    humantime::format_duration(time).to_string().replace("day", " day")
}

/// A time that has passed, in whole seconds: `3m 2s`.
pub(crate) fn rough(time: Duration) -> String {
    show(Duration::from_secs(time.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_numbers_are_seconds() {
        let span = |text| parse(text).unwrap().span;

        assert_eq!(span("5"), Duration::from_secs(5));
        assert_eq!(span("0.25"), Duration::from_millis(250));
        assert_eq!(span("1h 30m"), Duration::from_secs(5_400));
        assert_eq!(span("2days"), Duration::from_secs(172_800));
        assert_eq!(parse("5").unwrap().to_string(), "5s");
        assert_eq!(parse("60s").unwrap().to_string(), "60s");
    }

    #[test]
    fn refusals_name_the_fault() {
        for text in ["1M", "1month", "2w", "1week", "1y", "5x"] {
            assert!(parse(text).unwrap_err().starts_with("unknown unit"), "{text}");
        }
        for text in ["soon", "forever", "inf", "NaN", "", "5 5"] {
            assert!(parse(text).unwrap_err().starts_with("not a time"), "{text}");
        }
        assert_eq!(parse("-1").unwrap_err(), "a time cannot be negative");
    }
}
