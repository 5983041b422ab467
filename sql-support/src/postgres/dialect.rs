//! How PostgreSQL writes and executes statements.

use std::time::Duration;

use uuid::Uuid;

use super::texts;
use crate::call::{Call, Dialect, Form, Value, bind, or_null};
use crate::remote::Reply;

pub(crate) static DIALECT: Dialect = Dialect {
    literal,
    is_numbered: true,
    complete,
    reply: |_, rows| Ok(Reply { rows, ..Reply::default() }),
};

pub(super) fn literal(value: &Value) -> String {
    let array = |values: Vec<String>| format!("ARRAY[{}]", values.join(", "));
    let uuid = |uuid: &Option<Uuid>| or_null(uuid.map(|uuid| format!("'{uuid}'")));
    let text = |text: &Option<String>| or_null(text.as_deref().map(quoted));
    let literal = match value {
        Value::Int(value) => or_null(*value),
        Value::Text(value) => text(value),
        Value::Uuid(value) => uuid(value),
        Value::Ints(values) => array(values.iter().map(|value| or_null(*value)).collect()),
        Value::Texts(values) => array(values.iter().map(text).collect()),
        Value::Uuids(values) => array(values.iter().map(uuid).collect()),
    };
    format!("{literal}::{}", value.type_name())
}

/// Returns a value in the text format of its type.
pub(super) fn text_of(value: &Value) -> Option<String> {
    let array = |values: Vec<String>| Some(format!("{{{}}}", values.join(",")));
    match value {
        Value::Int(value) => value.map(|value| value.to_string()),
        Value::Text(value) => value.clone(),
        Value::Uuid(value) => value.map(|value| value.to_string()),
        Value::Ints(values) => array(values.iter().map(|value| or_null(*value)).collect()),
        Value::Texts(values) => {
            array(values.iter().map(|value| or_null(value.as_deref().map(element))).collect())
        }
        Value::Uuids(values) => array(values.iter().map(|value| or_null(*value)).collect()),
    }
}

/// Returns text as an element of an array in the text format.
fn element(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#))
}

/// Returns text as a literal that does not depend on `standard_conforming_strings`.
fn quoted(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', "''"))
}

/// Returns the complete query batch of a transaction.
fn complete(call: &Call, limit: Duration) -> String {
    if call.form() == Form::Setup {
        return call.text();
    }
    bind(texts::BEGIN, &[("limit", millis(limit))]) + &call.text()
}

/// Returns a time limit of at least one millisecond.
pub(super) fn millis(limit: Duration) -> String {
    format!("'{}'", limit.as_millis().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_an_array_are_quoted() {
        let texts = [Some(r#"a,"b"\{}"#.to_owned()), Some("NULL".to_owned()), None];

        let text = text_of(&Value::Texts(texts.to_vec())).unwrap();

        assert_eq!(text, r#"{"a,\"b\"\\{}","NULL",NULL}"#);
    }
}
