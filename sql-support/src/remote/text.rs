//! The text of one transaction.

use std::fmt;
use std::time::Duration;

/// The text of one transaction. `Debug` does not show it.
#[derive(Clone)]
pub struct Text {
    /// Begins the text, with the limit of time that the server gives itself.
    begin: fn(Duration) -> String,
    body: String,
}

impl Text {
    /// Creates a text that `begin` begins for each limit of time.
    pub(crate) fn new(begin: fn(Duration) -> String, body: String) -> Self {
        Self { begin, body }
    }

    /// The text that has the server end each of its statements after `limit`.
    ///
    /// MySQL counts whole seconds for locks, at least one, and waits for at most half of `limit`.
    pub fn at(&self, limit: Duration) -> String {
        (self.begin)(limit) + &self.body
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").finish_non_exhaustive()
    }
}

/// Replaces each `:name` by its value, in which nothing is replaced any more. A colon without a name stays, as in a cast.
pub(crate) fn bind(text: &str, values: &[(&str, String)]) -> String {
    let value = |name: &str| {
        let value = values.iter().find(|(known, _)| *known == name);
        value.map_or_else(|| panic!("a statement names a value `{name}`"), |(_, value)| &**value)
    };
    let mut bound = String::with_capacity(2 * text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(':') {
        bound.push_str(before);
        if let Some(type_of_cast) = after.strip_prefix(':') {
            bound.push_str("::");
            rest = type_of_cast;
            continue;
        }
        let end = after.find(|letter: char| letter != '_' && !letter.is_ascii_lowercase());
        let (name, after) = after.split_at(end.unwrap_or(after.len()));
        bound.push_str(if name.is_empty() { ":" } else { value(name) });
        rest = after;
    }
    bound + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_they_are() {
        let bound = bind("SELECT :a::text, :b", &[("a", ":b".to_owned()), ("b", "1".to_owned())]);

        assert_eq!(bound, "SELECT :b::text, 1");
    }

    #[test]
    fn colons_without_a_name_stay() {
        assert_eq!(bind("SELECT '+00:00', 1::text", &[]), "SELECT '+00:00', 1::text");
    }
}
