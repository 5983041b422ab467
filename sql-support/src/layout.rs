//! The names of the tables.

use leasehold_core::{Error, ErrorKind, LockKey};

/// The names of the tables: `[<schema>.]<prefix>key`, `[<schema>.]<prefix>min_token` and
/// `[<schema>.]<prefix>member`.
///
/// Statements qualify table names with the schema, so that they do not depend on a `search_path` or
/// a default database.
///
/// ```
/// use leasehold_sql_support::Layout;
///
/// let layout = Layout::new("locks_")?.in_schema("app")?;
/// let text = layout.fill("SELECT key FROM {key}", '"');
/// assert_eq!(text, r#"SELECT key FROM "app"."locks_key""#);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Layout {
    schema: Option<String>,
    prefix: String,
}

impl Layout {
    /// The default prefix.
    pub const DEFAULT_PREFIX: &str = "leasehold_";

    /// The maximum length of an encoded key name, in bytes. The encoding uses up to three bytes for
    /// each byte of the name.
    pub const MAX_KEY: usize = 3 * LockKey::MAX_LEN;

    /// The maximum length of a prefix and of a schema. Complete names must stay below PostgreSQL's
    /// limit of 63 characters.
    const MAX_NAME: usize = 32;

    /// Creates a layout with this prefix.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the prefix is empty, is longer than 32 characters,
    /// contains characters other than `a-z 0-9 _`, or begins with a digit. A valid prefix has the
    /// same meaning in every database, quoted or unquoted.
    pub fn new(prefix: impl Into<String>) -> Result<Self, Error> {
        Self::default().with_prefix(prefix)
    }

    /// Sets the prefix of all names.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if [`Layout::new`] does not accept the prefix.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self, Error> {
        self.prefix = checked("prefix", prefix.into())?;
        Ok(self)
    }

    /// Sets the schema of the tables. By default, the tables are in the schema `public` of
    /// PostgreSQL. In MySQL, a schema is a database, and the default is the connection's database.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the schema is empty, is longer than 32 characters,
    /// contains characters other than `a-z 0-9 _`, or begins with a digit.
    pub fn in_schema(mut self, schema: impl Into<String>) -> Result<Self, Error> {
        self.schema = Some(checked("schema", schema.into())?);
        Ok(self)
    }

    /// Returns this layout, in the given schema unless a schema was set.
    pub(crate) fn or_in_schema(&self, schema: &str) -> Self {
        let schema = self.schema.as_deref().unwrap_or(schema);
        Self { schema: Some(schema.to_owned()), prefix: self.prefix.clone() }
    }

    /// Returns the schema, if it was set.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Returns the prefix of all names. The names of additional objects, such as functions and
    /// channels, also start with the prefix.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Replaces the placeholders for names in an SQL statement. Replaces each `{name}` with the
    /// qualified [name](Self::object) of the object, and each `{=name}` with the object's name
    /// without a schema, which `CREATE INDEX` needs.
    pub fn fill(&self, text: &str, quote: char) -> String {
        let mut parts = text.split('{');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').expect("a brace in a statement is closed");
            filled.push_str(&match name.strip_prefix('=') {
                Some(name) => format!("{quote}{}{name}{quote}", self.prefix),
                None => self.object(name, quote),
            });
            filled.push_str(rest);
        }
        filled
    }

    /// Returns the qualified and quoted name of a table or another database object.
    pub fn object(&self, name: &str, quote: char) -> String {
        let prefix = &self.prefix;
        match &self.schema {
            Some(schema) => format!("{quote}{schema}{quote}.{quote}{prefix}{name}{quote}"),
            None => format!("{quote}{prefix}{name}{quote}"),
        }
    }
}

impl Default for Layout {
    fn default() -> Self {
        Self { schema: None, prefix: Self::DEFAULT_PREFIX.to_owned() }
    }
}

fn checked(option: &str, name: String) -> Result<String, Error> {
    let first = name.bytes().next().unwrap_or(b'0');
    let plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    if !plain || first.is_ascii_digit() || name.len() > Layout::MAX_NAME {
        let message = format!(
            "{option} must be 1 to {} characters long, may contain only a-z, 0-9 and _, and must not start with a digit",
            Layout::MAX_NAME
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_database_reads_otherwise_are_refused() {
        for name in ["", "1a", "A", "a b", "a\"", "a`", "a.b", "a;--", "é", &"x".repeat(33)] {
            assert_eq!(Layout::new(name).unwrap_err().kind(), ErrorKind::Invalid, "{name}");
            let in_schema = Layout::default().in_schema(name);
            assert_eq!(in_schema.unwrap_err().kind(), ErrorKind::Invalid, "{name}");
        }
    }

    #[test]
    fn every_name_in_a_text_is_replaced() {
        let layout = Layout::default().in_schema("app").unwrap();

        let filled = layout.fill("CREATE INDEX {=ends} ON {lease}; UPDATE {stripe}", '`');

        assert_eq!(
            filled,
            "CREATE INDEX `leasehold_ends` ON `app`.`leasehold_lease`; UPDATE `app`.`leasehold_stripe`"
        );
    }
}
