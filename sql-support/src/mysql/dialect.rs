//! How MySQL and MariaDB write and execute statements.

use std::fmt::Write as _;
use std::time::Duration;

use super::texts;
use crate::call::{Call, Dialect, Form, Value, bind, or_null};
use crate::remote::table::{nonsense, number};
use crate::remote::{Reply, Row, RunError};

pub(crate) static DIALECT: Dialect = Dialect { literal, is_numbered: false, complete, reply };

pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::Int(value) => or_null(*value),
        Value::Text(value) => or_null(value.as_ref().map(|value| hex(value.as_bytes()))),
        Value::Uuid(value) => or_null(value.as_ref().map(|value| hex(value.as_bytes()))),
        Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => {
            unreachable!("the statements of MySQL have no arrays")
        }
    }
}

/// Returns bytes as a literal that does not depend on a character set or an SQL mode.
fn hex(bytes: &[u8]) -> String {
    let mut literal = String::with_capacity(2 * bytes.len() + 3);
    literal.push_str("x'");
    for byte in bytes {
        write!(literal, "{byte:02x}").expect("a string can always be written");
    }
    literal + "'"
}

/// Returns the complete query batch of a transaction.
fn complete(call: &Call, limit: Duration) -> String {
    [texts::NAMES, texts::SETTINGS, &limits(limit), &transaction(call, limit)].concat()
}

pub(super) fn transaction(call: &Call, limit: Duration) -> String {
    let wait = bind(texts::WAIT, &[("seconds", seconds(limit, 1))]);
    let (start, done) = match call.form() {
        Form::Setup => ("", texts::END),
        _ if call.is_query() => (texts::START_TO_READ, texts::DONE),
        _ => (texts::START, texts::DONE),
    };
    [&wait, start, &call.text(), done, texts::COMMIT].concat()
}

/// Reads the rows of a [transaction].
fn reply(call: &Call, mut rows: Vec<Row>) -> Result<Reply, RunError> {
    if call.form() == Form::Setup {
        return Ok(Reply { rows, ..Reply::default() });
    }
    let is_done = |row: &Row| row.first().and_then(Option::as_deref) == Some("done");
    let done = rows.iter().rposition(is_done).ok_or_else(nonsense)?;
    let (changed, insert_id) = (number(&rows[done], 1)?, number(&rows[done], 2)?);
    rows.truncate(done);
    // After a statement that returns rows, the number is -1.
    Ok(Reply { rows, changed: changed.try_into().unwrap_or(0), insert_id })
}

/// Lock waits have a limit in whole seconds, which is at most half of `limit` but at least one
/// second.
pub(super) fn limits(limit: Duration) -> String {
    let millis = limit.as_millis().max(1);
    let values = [
        ("seconds", seconds(limit, 1)),
        ("wait", seconds(limit, 2)),
        ("millis", millis.to_string()),
        ("fraction", format!("{}.{:03}", millis / 1000, millis % 1000)),
    ];
    bind(texts::LIMITS, &values)
}

fn seconds(limit: Duration, part: u64) -> String {
    (limit.as_secs() / part).max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Template;

    #[test]
    fn values_of_mysql_are_literals_without_a_character_set() {
        let template = Template::once(&DIALECT, "SELECT :key, :ttl".into());
        let call = Call::new(&template, vec![("ttl", 5.into()), ("key", "k'".into())]);

        assert_eq!(call.text(), "SELECT x'6b27', 5");
    }

    #[test]
    fn a_statement_of_mysql_takes_a_value_once_per_placeholder() {
        let template = Template::prepared(&DIALECT, "SELECT :a, :b, :a".into());
        let call = Call::new(&template, vec![("a", 1.into()), ("b", 2.into())]);

        let (prepared, values) = call.prepared().unwrap();
        let values: Vec<_> = values.map(literal).collect();

        assert_eq!(
            (prepared.text.as_str(), values),
            ("SELECT ?, ?, ?", vec!["1".to_owned(), "2".to_owned(), "1".to_owned()])
        );
    }
}
