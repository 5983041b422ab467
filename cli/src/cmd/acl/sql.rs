//! Users of databases.

use super::Step;
use crate::place::{Place, Store};

const COMMENT: &str = "In the database with the tables, as their owner or as an administrator, \
     after the statements that leasehold tables prints. The user must exist.";

/// Statements for an administrator of the database, in which the tables are.
pub(super) fn steps(place: &Place, mark: char, user: &str) -> Vec<Step> {
    let schema = place.parameter("schema").map(|it| quote(it, mark) + ".").unwrap_or_default();
    let table = |name: &str| format!("{schema}{}{name}", place.prefix());
    let mut statements = vec![
        format!("GRANT SELECT, UPDATE ON {} TO {user};", table("stripe")),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {user};", table("lease")),
        format!("GRANT SELECT, UPDATE ON {} TO {user};", table("member")),
    ];
    if place.store == Store::Postgres {
        let schema = place.parameter("schema").unwrap_or("public");
        statements.insert(0, format!("GRANT USAGE ON SCHEMA {} TO {user};", quote(schema, mark)));
    }
    vec![Step::new("database", COMMENT, statements)]
}

/// A name in SQL, in quotation marks if necessary.
pub(super) fn quote(name: &str, mark: char) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.bytes().all(is_plain) && mark != '\'' {
        return name.to_owned();
    }
    let doubled = name.replace(mark, &format!("{mark}{mark}"));
    format!("{mark}{doubled}{mark}")
}
