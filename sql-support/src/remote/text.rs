//! The text of one transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The text of one transaction. `Debug` does not show it.
#[derive(Clone)]
pub struct Text {
    /// Begins the text, with the limit of time that the server gives itself.
    begin: fn(Duration) -> String,
    body: Body,
}

#[derive(Clone)]
enum Body {
    Whole(String),
    /// Statements that a connection may prepare, and the values of this transaction.
    Preparable(Arc<Preparable>, Vec<Value>),
}

/// A value, and its name in statements.
pub(crate) type Value = (&'static str, String);

/// The statements of a transaction, with `:name`s for its values.
#[derive(Debug)]
pub(crate) struct Preparable {
    /// The statements themselves.
    pub(crate) statements: String,
    /// Prepares the statements on a connection, which keeps them.
    pub(crate) preparation: String,
    /// Executes the prepared statements.
    pub(crate) execution: String,
}

impl Text {
    /// Creates a text that `begin` begins for each limit of time.
    pub(crate) fn new(begin: fn(Duration) -> String, body: String) -> Self {
        Self { begin, body: Body::Whole(body) }
    }

    /// Creates the text of statements that a connection may prepare.
    pub(crate) fn preparable(
        begin: fn(Duration) -> String,
        statements: &Arc<Preparable>,
        values: Vec<Value>,
    ) -> Self {
        Self { begin, body: Body::Preparable(Arc::clone(statements), values) }
    }

    /// The text that has the server end each of its statements after `limit`.
    ///
    /// MySQL counts whole seconds for locks, at least one, and waits for at most half of `limit`.
    pub fn at(&self, limit: Duration) -> String {
        let begin = (self.begin)(limit);
        match &self.body {
            Body::Whole(body) => begin + body,
            Body::Preparable(all, values) => begin + &bind(&all.statements, values),
        }
    }

    /// The text for a connection that has `prepared` these statements, and prepares its own unless it is among them. `None` if it has no
    /// statements to prepare.
    pub(crate) fn prepared(
        &self,
        limit: Duration,
        prepared: &mut Vec<Arc<Preparable>>,
    ) -> Option<String> {
        let Body::Preparable(all, values) = &self.body else { return None };
        let mut text = (self.begin)(limit);
        if !prepared.iter().any(|known| Arc::ptr_eq(known, all)) {
            text.push_str(&all.preparation);
            prepared.push(Arc::clone(all));
        }
        Some(text + &bind(&all.execution, values))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Text").finish_non_exhaustive()
    }
}

/// Replaces each `:name` by its value, in which nothing is replaced any more. A colon without a name stays, as in a cast.
pub(crate) fn bind(text: &str, values: &[(&str, String)]) -> String {
    replace(text, |name| {
        let value = values.iter().find(|(known, _)| *known == name);
        value.map_or_else(|| panic!("a statement names a value `{name}`"), |(_, value)| value)
    })
}

/// Replaces each `:name`, as [`bind`] does, by its value.
pub(crate) fn replace<'t, V: AsRef<str>>(
    text: &'t str,
    mut value: impl FnMut(&'t str) -> V,
) -> String {
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
        if name.is_empty() {
            bound.push(':');
        } else {
            bound.push_str(value(name).as_ref());
        }
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
