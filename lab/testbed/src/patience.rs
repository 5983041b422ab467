//! Time for replies, on a machine that is busy.

/// The URL of a store, with as much time for replies as a busy machine may need, unless it says how much.
#[must_use]
pub fn patiently(url: &str) -> String {
    let separator = match url {
        _ if url.contains("?timeout-ms=") || url.contains("&timeout-ms=") => return url.to_owned(),
        _ if url.contains('?') => '&',
        _ => '?',
    };
    format!("{url}{separator}timeout-ms=15000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_in_the_url_is_kept() {
        assert_eq!(patiently("redis://a"), "redis://a?timeout-ms=15000");
        assert_eq!(patiently("redis://a?push=off"), "redis://a?push=off&timeout-ms=15000");
        assert_eq!(patiently("redis://a?timeout-ms=9"), "redis://a?timeout-ms=9");
        assert_eq!(patiently("redis://a?push=off&timeout-ms=9"), "redis://a?push=off&timeout-ms=9");
    }

    #[test]
    fn a_different_timeout_in_the_url_says_nothing_about_replies() {
        assert_eq!(
            patiently("redlock+redis://a,b,c?member-timeout-ms=9"),
            "redlock+redis://a,b,c?member-timeout-ms=9&timeout-ms=15000"
        );
    }
}
