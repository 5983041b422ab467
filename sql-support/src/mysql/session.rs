//! The session of a connection.

use std::time::Duration;

use super::dialect::{limits, transaction};
use super::texts;
use crate::call::{Call, Form, Value};
use crate::remote::Row;

/// The session of a connection that Leasehold opens: the settings and the time limits.
///
/// The `leasehold-mysql` crate uses a session for each connection.
#[derive(Debug)]
pub struct Session {
    limit: Duration,
    /// The server's current time limit for a statement.
    server_limit: Duration,
}

/// A request that executes a call in a [`Session`].
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// A statement to prepare, and its values.
    Prepared(&'a str, Vec<Parameter>),
    /// One statement, which is a transaction.
    Statement(String),
    /// A query batch, whose rows [`Call::reply`] reads. After an error, the transaction may be open.
    Batch(String),
}

/// A value of a prepared statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Parameter {
    /// The null of SQL.
    Null,
    /// An integer.
    Int(i64),
    /// Text or binary data.
    Bytes(Vec<u8>),
}

impl Session {
    /// Ends a failed transaction of a [batch](Message::Batch).
    pub const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE; SET wait_timeout = DEFAULT";

    /// Creates a session with this time limit for a call. The server aborts each statement after four
    /// fifths of the limit.
    pub fn new(limit: Duration) -> Self {
        Self { limit, server_limit: limit * 4 / 5 }
    }

    /// Returns the query batch that applies the settings. [`more_settings`](Self::more_settings) reads
    /// the reply.
    pub fn settings(&self) -> String {
        [texts::SESSION, texts::SETTINGS, &limits(self.server_limit), texts::CLUSTER].concat()
    }

    /// Returns the statement that must be executed after [`settings`](Self::settings), if any.
    pub fn more_settings(rows: &[Row]) -> Option<&'static str> {
        (!rows.is_empty()).then_some(texts::CAUSAL)
    }

    /// Returns the statement that changes the server's time limit, if the statement must be executed
    /// before a call. The client waits for at most `left`.
    pub fn limits(&mut self, left: Duration) -> Option<String> {
        let is_short = left < self.limit.mul_f64(SHORT);
        let wanted = if is_short { left } else { self.limit } * 4 / 5;
        if self.server_limit <= wanted && wanted.mul_f64(SHORT) <= self.server_limit {
            return None;
        }
        self.server_limit = wanted;
        Some(limits(wanted))
    }

    /// Returns the message that executes a call in this session.
    pub fn message<'a>(&self, call: &'a Call) -> Message<'a> {
        if let Some((prepared, values)) = call.prepared() {
            return Message::Prepared(&prepared.text, values.map(parameter).collect());
        }
        match call.form() {
            Form::Prepared | Form::Once => Message::Statement(call.text()),
            Form::Several | Form::Setup => Message::Batch(transaction(call, self.server_limit)),
        }
    }
}

/// The part of a time limit below which another limit counts as shorter.
const SHORT: f64 = 0.9;

fn parameter(value: &Value) -> Parameter {
    let parameter = match value {
        Value::Int(value) => value.map(Parameter::Int),
        Value::Text(value) => value.as_ref().map(|text| Parameter::Bytes(text.clone().into())),
        Value::Uuid(value) => value.map(|uuid| Parameter::Bytes(uuid.as_bytes().to_vec())),
        Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => {
            unreachable!("the statements of MySQL have no arrays")
        }
    };
    parameter.unwrap_or(Parameter::Null)
}
