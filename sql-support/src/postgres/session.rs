//! The session of a connection.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use uuid::Uuid;

use super::dialect::{literal, millis};
use super::texts;
use crate::call::{Call, Form, bind};

/// The session of a connection that Leasehold opens: the settings and the prepared statements.
///
/// The `leasehold-postgres` crate uses a session for each connection.
#[derive(Debug)]
pub struct Session {
    limit: Duration,
    prepared: HashSet<Uuid>,
}

impl Session {
    /// An option of the connection attempt that marks the session. A pooler does not pass the option
    /// to its own sessions, which other clients may use.
    pub const MARK: &str = "-c leasehold.session=1";

    /// Creates a session with this time limit for a call. The server aborts each statement after four
    /// fifths of the limit.
    pub fn new(limit: Duration) -> Self {
        Self { limit, prepared: HashSet::new() }
    }

    /// Returns the statement that applies the settings. The statement returns a row only if the
    /// session has the [`MARK`](Self::MARK). Otherwise, it changes nothing.
    pub fn settings(&self) -> String {
        bind(texts::SETTINGS, &[("limit", millis(server_limit(self.limit)))])
    }

    /// Returns whether the next [`message`](Self::message) for this call prepares its statement. If the
    /// message fails, it is not known whether the statement is prepared.
    pub fn prepares(&self, call: &Call) -> bool {
        call.prepared().is_some_and(|(prepared, _)| !self.prepared.contains(&prepared.id))
    }

    /// Returns the message that executes a call in this session. The client waits for at most `left`.
    /// If much less than the time limit of a call is left, the message lowers the server's time limit.
    pub fn message(&mut self, call: &Call, left: Duration) -> String {
        let mut text = String::new();
        if call.form() == Form::Setup {
            text.push_str(texts::DEFAULTS);
        } else if left < self.limit.mul_f64(SHORT) {
            text = bind(texts::LIMITS, &[("limit", millis(server_limit(left)))]);
        }
        let Some((prepared, values)) = call.prepared() else { return text + &call.text() };
        let name = prepared.id.simple();
        let values: Vec<_> = values.collect();
        let is_new = self.prepared.insert(prepared.id);
        let list = |list: Vec<String>| {
            if list.is_empty() { String::new() } else { format!(" ({})", list.join(", ")) }
        };
        if is_new {
            let types = list(values.iter().map(|value| value.type_name().to_owned()).collect());
            writeln!(text, "PREPARE leasehold_{name}{types} AS {};", prepared.text)
                .expect("a string can always be written");
        }
        let literals = list(values.into_iter().map(literal).collect());
        text + &format!("EXECUTE leasehold_{name}{literals}")
    }
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
    fn a_session_prepares_a_statement_once() {
        let mut session = Session::new(LIMIT);

        let [first, second] = [1, -2].map(|n| session.message(&call(n), LIMIT));

        let (prepare, execute) = first.split_once('\n').unwrap();
        assert!(prepare.ends_with(" (text, bigint) AS SELECT $1, $2::text, $1;"), "{prepare}");
        assert!(execute.ends_with(r" (E'a\\:n'''::text, 1::bigint)"), "{execute}");
        assert!(second.starts_with("EXECUTE ") && second.ends_with("-2::bigint)"), "{second}");
    }

    #[test]
    fn a_call_with_little_time_left_lowers_the_limit_of_the_server() {
        let mut session = Session::new(LIMIT);

        let message = session.message(&call(1), LIMIT / 2);

        assert!(message.starts_with("SET LOCAL statement_timeout = '400'"), "{message}");
    }
}
