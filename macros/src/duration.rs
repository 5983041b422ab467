//! Parses durations in an attribute.

use std::time::Duration;

/// The supported forms, for error messages.
pub(crate) const FORMS: &str =
    "a whole number and a unit in quotes: \"200ms\", \"30s\", \"2m\" or \"1h\"";

/// Parses a duration. Returns `None` if the text does not match [`FORMS`] or the duration is too
/// long.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(millis_per_unit).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_counted() {
        for (text, millis) in
            [("200ms", 200), ("30s", 30_000), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "30",
            "s",
            " 30s",
            "30 s",
            "30s ",
            "-30s",
            "+30s",
            "1.5s",
            "1m30s",
            "30S",
            "30sec",
            "2d",
            "٣s",
            "18446744073709551616ms",
            "18446744073709551615s",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
