//! Prepares statements once per connection, so that the server plans them only once.
//!
//! A prepared statement exists only in one session of the server. A pooler may run each transaction
//! in a different session, in which the statement may be missing or may already exist. The server
//! then rejects the whole batch.

use uuid::Uuid;

use super::texts;
use crate::remote::{Preparable, replace};

/// A random namespace. The name of a prepared statement is derived from its text, so statements of
/// different versions never share a name.
const NAMESPACE: Uuid = Uuid::from_u128(0x9c1f_7d3e_52ab_4b0e_8d64_03f7_c2a9_5e18);

/// The types of the values in statements.
const TYPES: [(&str, &str); 13] = [
    ("capacity", "bigint"),
    ("description", "text"),
    ("fingerprint", "text"),
    ("key", "text"),
    ("observed", "boolean"),
    ("patience", "bigint"),
    ("place", "bigint"),
    ("spare", "bigint"),
    ("stripe", "smallint"),
    ("tag", "uuid"),
    ("ttl", "bigint"),
    ("units", "bigint"),
    ("whole", "boolean"),
];

/// Converts statements to a form that can be prepared. Each statement must end with a semicolon.
pub(super) fn preparable(statements: &[String]) -> Preparable {
    let all = statements.concat();
    let name = Uuid::new_v5(&NAMESPACE, all.as_bytes()).simple();
    let (mut preparation, mut execution) = (String::new(), texts::PLANNED_ONCE.to_owned());
    for (n, statement) in statements.iter().enumerate() {
        let mut values = Vec::new();
        let body = replace(statement, |value| {
            let known = values.iter().position(|known| *known == value);
            let position = known.unwrap_or_else(|| {
                values.push(value);
                values.len() - 1
            });
            format!("${}", position + 1)
        });
        let types: Vec<_> = values.iter().map(|value| type_of(value)).collect();
        let values: Vec<_> = values.iter().map(|value| format!(":{value}")).collect();
        let name = format!("leasehold_{name}_{n}");
        preparation += &format!("PREPARE {name}{} AS {body}", in_parentheses(&types));
        execution += &format!("EXECUTE {name}{};\n", in_parentheses(&values));
    }
    Preparable { statements: all, preparation, execution }
}

fn type_of(value: &str) -> &'static str {
    let known = TYPES.iter().find(|(known, _)| *known == value);
    known.unwrap_or_else(|| panic!("a statement uses the unknown value `{value}`")).1
}

fn in_parentheses(words: &[impl AsRef<str>]) -> String {
    if words.is_empty() {
        return String::new();
    }
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    format!(" ({})", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_a_statement_has_a_position_and_a_type() {
        let statements = ["SELECT :key, :ttl::text, :key;\n", "SELECT 1;\n"].map(str::to_owned);

        let Preparable { statements, preparation, execution } = preparable(&statements);

        assert_eq!(statements, "SELECT :key, :ttl::text, :key;\nSELECT 1;\n");
        let (first, second) = preparation.split_once('\n').unwrap();
        assert!(first.ends_with("_0 (text, bigint) AS SELECT $1, $2::text, $1;"), "{first}");
        assert!(second.ends_with("_1 AS SELECT 1;\n"), "{second}");
        assert!(execution.contains("_0 (:key, :ttl);\nEXECUTE "), "{execution}");
        assert!(execution.ends_with("_1;\n"), "{execution}");
    }

    #[test]
    fn other_statements_have_other_names() {
        let name = |statement: &str| preparable(&[statement.to_owned()]).execution;

        assert_eq!(name("SELECT 1;\n"), name("SELECT 1;\n"));
        assert_ne!(name("SELECT 1;\n"), name("SELECT 2;\n"));
    }
}
