//! Converts the values of prepared statements from and to text.

use std::error::Error;

use bytes::BytesMut;
use leasehold_sql_support::remote::Row;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

/// A value in the text format of its type.
#[derive(Debug)]
pub(crate) struct AsText<'a>(pub(crate) Option<&'a str>);

impl ToSql for AsText<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// Returns the type with this name.
pub(crate) fn type_of(name: &str) -> Type {
    match name {
        "bigint" => Type::INT8,
        "text" => Type::TEXT,
        "uuid" => Type::UUID,
        "bigint[]" => Type::INT8_ARRAY,
        "text[]" => Type::TEXT_ARRAY,
        "uuid[]" => Type::UUID_ARRAY,
        _ => unreachable!("`{name}` is not the type of a parameter"),
    }
}

/// Returns the columns of a row as texts. The driver requests all columns in the binary format.
pub(crate) fn texts_of(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    let column = |i| Ok(row.try_get::<_, Option<Column>>(i)?.map(|column| column.0));
    (0..row.len()).map(column).collect()
}

struct Column(String);

impl<'a> FromSql<'a> for Column {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(match *kind {
            Type::BOOL => if bool::from_sql(kind, raw)? { "t" } else { "f" }.to_owned(),
            Type::INT4 => i32::from_sql(kind, raw)?.to_string(),
            Type::INT8 => i64::from_sql(kind, raw)?.to_string(),
            Type::UUID => Uuid::from_slice(raw)?.to_string(),
            _ => String::from_sql(kind, raw)?,
        }))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::BOOL | Type::INT4 | Type::INT8 | Type::UUID)
            || <String as FromSql>::accepts(kind)
    }
}
