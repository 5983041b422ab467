//! A statement and the values of one call.
//!
//! Each statement is written once, as a [`Template`] with a `:name` placeholder for each value. A
//! [`Call`] adds the values. On a connection that Leasehold opens, the statement is prepared once
//! and executed with the values. On any other connection, the client sends a complete query batch.

use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use uuid::Uuid;

use crate::remote::{Reply, Row, RunError};

/// A value of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Uuid(Option<Uuid>),
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Uuids(Vec<Option<Uuid>>),
}

/// The statements of a transaction, with a `:name` placeholder for each value.
pub(crate) struct Template {
    text: String,
    dialect: &'static Dialect,
    form: Form,
    prepared: OnceLock<Prepared>,
}

/// How a database writes and executes statements.
pub(crate) struct Dialect {
    /// Returns the literal for a value, which does not depend on settings of the session.
    pub(crate) literal: fn(&Value) -> String,
    /// Whether placeholders have numbers (`$1`), so that a value is passed once. Otherwise, each
    /// placeholder is a question mark.
    pub(crate) is_numbered: bool,
    /// Returns the query batch for [`Call::at`].
    pub(crate) complete: fn(&Call, Duration) -> String,
    /// Reads the reply for [`Call::reply`].
    pub(crate) reply: fn(&Call, Vec<Row>) -> Result<Reply, RunError>,
}

/// How the statements of a transaction are executed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    /// One statement, which each connection prepares.
    Prepared,
    /// One statement that is rare or different each time.
    Once,
    /// Several statements in one transaction. A node of a Galera cluster may not report that it has
    /// aborted such a transaction.
    Several,
    /// Statements that prepare the database or read its settings. They are not one transaction. On
    /// PostgreSQL, they use the user's search path and time limits.
    Setup,
}

/// A statement in the form in which a connection prepares it.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// The statement, with the database's placeholders.
    pub(crate) text: String,
    /// The names of the values, in the order in which they are passed.
    names: Vec<String>,
}

/// The statements and the values of one transaction. `Debug` does not show the values.
///
/// ```
/// use leasehold_sql_support::postgres::RowStatements;
/// use leasehold_sql_support::Layout;
///
/// let statements = RowStatements::new(&Layout::default().in_schema("app")?, None);
/// let call = statements.move_key("it's", 3);
/// assert!(call.text().contains(r#""app"."leasehold_key""#));
/// assert!(call.text().contains(r"E'it''s'::text"));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Call {
    template: Arc<Template>,
    values: Vec<(&'static str, Value)>,
}

impl Template {
    /// Returns a statement that each connection prepares.
    pub(crate) fn prepared(dialect: &'static Dialect, text: String) -> Arc<Self> {
        Self::new(dialect, Form::Prepared, text)
    }

    /// Returns a statement that is sent with its values.
    pub(crate) fn once(dialect: &'static Dialect, text: String) -> Arc<Self> {
        Self::new(dialect, Form::Once, text)
    }

    pub(crate) fn new(dialect: &'static Dialect, form: Form, text: String) -> Arc<Self> {
        let text = text.trim_end().trim_end_matches(';').to_owned();
        Arc::new(Self { text, dialect, form, prepared: OnceLock::new() })
    }

    /// Returns the statement in the form in which a connection prepares it.
    pub(crate) fn to_prepared(&self) -> &Prepared {
        self.prepared.get_or_init(|| {
            let mut names: Vec<String> = Vec::new();
            let text = replace(&self.text, |name| {
                let known = names.iter().position(|known| known == name);
                let is_numbered = self.dialect.is_numbered;
                let position = known.filter(|_| is_numbered).unwrap_or_else(|| {
                    names.push(name.to_owned());
                    names.len() - 1
                });
                if is_numbered { format!("${}", position + 1) } else { "?".to_owned() }
            });
            Prepared { text, names }
        })
    }
}

impl Call {
    pub(crate) fn new(template: &Arc<Template>, values: Vec<(&'static str, Value)>) -> Self {
        Self { template: Arc::clone(template), values }
    }

    /// Returns whether the statement only reads, and locks nothing.
    pub(crate) fn is_query(&self) -> bool {
        self.template.text.starts_with("SELECT") && !self.template.text.contains("FOR UPDATE")
    }

    pub(crate) fn form(&self) -> Form {
        self.template.form
    }

    /// Returns this call with `\uXXXX` in place of each UTF-16 code unit of a character outside ASCII, as in
    /// JSON. Only descriptions and documents contain such characters.
    pub(crate) fn escaped(&self) -> Self {
        let mut call = self.clone();
        for (_, value) in &mut call.values {
            match value {
                Value::Text(Some(text)) => *text = escape(text),
                Value::Texts(texts) => {
                    for text in texts.iter_mut().flatten() {
                        *text = escape(text);
                    }
                }
                _ => {}
            }
        }
        call
    }

    /// Returns the statements with their values.
    pub fn text(&self) -> String {
        replace(&self.template.text, |name| (self.template.dialect.literal)(self.value(name)))
    }

    /// Returns the complete query batch of the transaction, which does not depend on the session's
    /// settings. The server aborts each statement of the batch after `limit`.
    ///
    /// MySQL's limit for lock waits is half of `limit`, rounded down to whole seconds, but at least
    /// one second.
    pub fn at(&self, limit: Duration) -> String {
        (self.template.dialect.complete)(self, limit)
    }

    /// Reads the rows of all statements of the query batch [`at`](Self::at).
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Unexpected`](crate::Failure::Unexpected) if the rows do not match the query
    /// batch.
    pub fn reply(&self, rows: Vec<Row>) -> Result<Reply, RunError> {
        (self.template.dialect.reply)(self, rows)
    }

    /// Returns the statement in the form in which a connection prepares it, with its values. Returns
    /// `None` if the statement is sent as [`text`](Self::text).
    pub(crate) fn prepared(&self) -> Option<(&Prepared, impl Iterator<Item = &Value>)> {
        if self.template.form != Form::Prepared {
            return None;
        }
        let prepared = self.template.to_prepared();
        Some((prepared, prepared.names.iter().map(|name| self.value(name))))
    }

    /// For tests, changes the statements.
    #[doc(hidden)]
    #[must_use]
    pub fn edited(&self, edit: impl FnOnce(String) -> String) -> Self {
        let Template { text, dialect, form, .. } = &*self.template;
        let template = Template::new(dialect, *form, edit(text.clone()));
        Self { template, values: self.values.clone() }
    }

    fn value(&self, name: &str) -> &Value {
        let value = self.values.iter().find(|(known, _)| *known == name);
        value.map_or_else(
            || panic!("a statement uses the unknown value `{name}`"),
            |(_, value)| value,
        )
    }
}

impl Value {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Int(_) => "bigint",
            Self::Text(_) => "text",
            Self::Uuid(_) => "uuid",
            Self::Ints(_) => "bigint[]",
            Self::Texts(_) => "text[]",
            Self::Uuids(_) => "uuid[]",
        }
    }
}

/// Replaces the characters outside ASCII, as [`Call::escaped`] describes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            escaped.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04x}").expect("a String can be written");
        }
    }
    escaped
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

impl From<Uuid> for Value {
    fn from(value: Uuid) -> Self {
        Self::Uuid(Some(value))
    }
}

impl From<Option<Uuid>> for Value {
    fn from(value: Option<Uuid>) -> Self {
        Self::Uuid(value)
    }
}

/// The text of a statement that is not prepared may contain values.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = (self.form == Form::Prepared).then_some(&self.text);
        f.debug_struct("Template")
            .field("form", &self.form)
            .field("text", &text)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("template", &self.template).finish_non_exhaustive()
    }
}

pub(crate) fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
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
