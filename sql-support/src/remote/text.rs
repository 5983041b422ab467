//! The query batch of one transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The query batch of one transaction. `Debug` does not show its statements.
///
/// The example for [`postgres`](crate::postgres) creates a query batch.
#[derive(Clone)]
pub struct Text {
    /// A function that returns the start of the batch, with the time limit for the server.
    begin: fn(Duration) -> String,
    body: Body,
}

#[derive(Clone)]
enum Body {
    Whole(String),
    /// Statements that a connection may prepare, and the values of this transaction.
    Preparable(Arc<Preparable>, Vec<Value>),
}

/// The name of a value in the statements, and the value.
pub(crate) type Value = (&'static str, String);

/// The statements of a transaction, with a `:name` placeholder for each value.
#[derive(Debug)]
pub(crate) struct Preparable {
    /// The text of the statements.
    pub(crate) statements: String,
    /// The statements that prepare these statements on a connection.
    pub(crate) preparation: String,
    /// The statements that execute the prepared statements.
    pub(crate) execution: String,
}

impl Text {
    /// Creates a query batch. `begin` returns the start of the batch for a time limit.
    pub(crate) fn new(begin: fn(Duration) -> String, body: String) -> Self {
        Self { begin, body: Body::Whole(body) }
    }

    /// Creates a query batch whose statements a connection may prepare.
    pub(crate) fn preparable(
        begin: fn(Duration) -> String,
        statements: &Arc<Preparable>,
        values: Vec<Value>,
    ) -> Self {
        Self { begin, body: Body::Preparable(Arc::clone(statements), values) }
    }

    /// Returns the query batch as text. The server aborts each statement of the batch after
    /// `limit`.
    ///
    /// MySQL's limit for lock waits is half of `limit`, rounded down to whole seconds, but at least
    /// one second.
    pub fn at(&self, limit: Duration) -> String {
        let begin = (self.begin)(limit);
        match &self.body {
            Body::Whole(body) => begin + body,
            Body::Preparable(all, values) => begin + &bind(&all.statements, values),
        }
    }

    /// Returns the query batch for a connection that has `prepared` these statements. If `prepared`
    /// does not contain the batch's statements, the batch also prepares them. Returns `None` if the
    /// batch has no statements to prepare.
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

/// Replaces each `:name` with its value. Names inside values are not replaced. A colon without a
/// name is kept, for example in a cast.
pub(crate) fn bind(text: &str, values: &[(&str, String)]) -> String {
    replace(text, |name| {
        let value = values.iter().find(|(known, _)| *known == name);
        value.map_or_else(
            || panic!("a statement uses the unknown value `{name}`"),
            |(_, value)| value,
        )
    })
}

/// Replaces each `:name` with the value that `value` returns, according to the rules of [`bind`].
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
