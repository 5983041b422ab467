//! The session of a connection.

use std::time::Duration;

use super::dialect::{millis, text_of};
use super::texts;
use crate::call::{Call, Form, Value, bind};

/// The session of a connection that Leasehold opens.
///
/// The `leasehold-postgres` crate uses a session for each connection.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    limit: Duration,
}

/// A request that executes a call in a [`Session`].
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// A statement to prepare, and its values.
    Prepared(&'a str, Vec<Parameter>),
    /// Statements that are sent as one message.
    Text(String),
}

/// A value of a prepared statement.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The name of the value's type, which is `bigint`, `text`, `uuid` or an array such as `text[]`.
    pub type_name: &'static str,
    /// The value in the text format of its type, or `None` for the null of SQL.
    pub text: Option<String>,
}

impl Session {
    /// An option of the connection attempt that marks the session. A pooler does not pass the option
    /// to its own sessions, which other clients may use.
    pub const MARK: &str = "-c leasehold.session=1";

    /// Creates a session with this time limit for a call. The server aborts each statement after four
    /// fifths of the limit.
    pub fn new(limit: Duration) -> Self {
        Self { limit }
    }

    /// Returns the statement that applies the settings. The statement returns a row only if the
    /// session has the [`MARK`](Self::MARK). Otherwise, it changes nothing.
    pub fn settings(&self) -> String {
        bind(texts::SETTINGS, &[("limit", millis(server_limit(self.limit)))])
    }

    /// Returns the message that executes a call in this session. The client waits for at most `left`.
    /// If much less than the time limit of a call is left, the message lowers the server's time limit.
    pub fn message<'a>(&self, call: &'a Call, left: Duration) -> Message<'a> {
        if call.form() == Form::Setup {
            return Message::Text(texts::DEFAULTS.to_owned() + &call.text());
        }
        if left < self.limit.mul_f64(SHORT) {
            let limits = bind(texts::LIMITS, &[("limit", millis(server_limit(left)))]);
            return Message::Text(limits + &call.text());
        }
        match call.prepared() {
            Some((prepared, values)) => {
                Message::Prepared(&prepared.text, values.map(parameter).collect())
            }
            None => Message::Text(call.text()),
        }
    }
}

fn parameter(value: &Value) -> Parameter {
    Parameter { type_name: value.type_name(), text: text_of(value) }
}

/// The part of the time limit of a call below which the server's time limit is lowered.
const SHORT: f64 = 0.9;

/// The server gives up before the client.
fn server_limit(limit: Duration) -> Duration {
    limit * 4 / 5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Template;
    use crate::postgres::dialect::DIALECT;

    const LIMIT: Duration = Duration::from_secs(1);

    fn call(n: i64) -> Call {
        let template = Template::prepared(&DIALECT, "SELECT :key, :n::text, :key".into());
        Call::new(&template, vec![("n", n.into()), ("key", r"a\:n'".into())])
    }

    #[test]
    fn a_statement_receives_each_value_once() {
        let call = call(-2);

        let Message::Prepared(text, values) = Session::new(LIMIT).message(&call, LIMIT) else {
            panic!("the statement is not prepared");
        };

        assert_eq!(text, "SELECT $1, $2::text, $1");
        let values: Vec<_> = values.iter().map(|it| (it.type_name, it.text.as_deref())).collect();
        assert_eq!(values, [("text", Some(r"a\:n'")), ("bigint", Some("-2"))]);
    }

    #[test]
    fn a_call_with_little_time_left_lowers_the_limit_of_the_server() {
        let call = call(1);

        let Message::Text(text) = Session::new(LIMIT).message(&call, LIMIT / 2) else {
            panic!("the limit is not lowered");
        };

        assert!(text.starts_with("SET LOCAL statement_timeout = '400'"), "{text}");
        assert!(
            text.ends_with(r"SELECT E'a\\:n'''::text, 1::bigint::text, E'a\\:n'''::text"),
            "{text}"
        );
    }
}
