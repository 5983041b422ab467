//! Users of databases.

use super::step::Step;
use crate::place::{Place, Store};

const COMMENT: &str = "In the database with the tables, as their owner or as an administrator, \
     after the statements that leasehold tables prints. The user must exist.";

/// Statements for an administrator of the database, in which the tables are.
pub(super) fn steps(place: &Place, mark: char, user: &str) -> Vec<Step> {
    let default = (place.store == Store::Postgres).then_some("public");
    let schema = place.parameter("schema").or(default).map(|it| quote(it, mark));
    let table = |name: &str| match &schema {
        Some(schema) => format!("{schema}.{}{name}", place.prefix()),
        None => [&*place.prefix(), name].concat(),
    };
    let min_token = match place.store {
        Store::Postgres => format!("SEQUENCE {}", table("min_token")),
        _ => table("min_token"),
    };
    let mut statements = vec![
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {user};", table("key")),
        format!("GRANT SELECT, UPDATE ON {min_token} TO {user};"),
        format!("GRANT SELECT, UPDATE ON {} TO {user};", table("member")),
    ];
    if let (Store::Postgres, Some(schema)) = (place.store, &schema) {
        statements.insert(0, format!("GRANT USAGE ON SCHEMA {schema} TO {user};"));
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
