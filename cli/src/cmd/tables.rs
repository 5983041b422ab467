//! `leasehold tables`

use std::process::ExitCode;

use serde_json::json;

use crate::args::Backend;
use crate::exit::Failure;
use crate::out;
use crate::place::{Place, Store};

/// Prints the SQL statements that create the tables of locks in a database.
///
/// Nothing is connected to. An administrator runs the statements where the application's user may not create tables, and then those that
/// `leasehold acl` prints. Statements for tables that exist change nothing. Clients use the tables with `tables=exist` in their URL.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    /// The store, instead of that of --backend or LEASEHOLD_BACKEND.
    #[arg(value_name = "URL")]
    store: Option<String>,
}

const HELP: &str = "\
Examples:
  leasehold tables postgres://db.example/app | psql app
  leasehold acl --user app postgres://db.example/app | psql app";

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let url = args.backend.url_or(args.store.as_deref())?;
    let statements = match Place::of(&url)?.store {
        Store::Postgres => postgres(&url)?,
        Store::Mysql => mysql(&url)?,
        Store::Sqlite => {
            return Err(Failure::usage(
                "a lock file needs no statements: the first command creates its tables",
            ));
        }
        _ => {
            return Err(Failure::usage(
                "this store has no tables; databases have: postgres://, mysql://, mariadb://",
            ));
        }
    };
    if out::style().json {
        out::print_json(&json!({ "statements": statements }))?;
    } else {
        out::print(statements.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<String, Failure> {
    Ok(leasehold::postgres::PostgresConfig::from_url(url)?.migration())
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str) -> Result<String, Failure> {
    Err(Failure::usage(
        "the statements for PostgreSQL need the Cargo feature `postgres` of leasehold-cli",
    ))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str) -> Result<String, Failure> {
    Ok(leasehold::mysql::MysqlConfig::from_url(url)?.migration())
}

#[cfg(not(feature = "mysql"))]
fn mysql(_: &str) -> Result<String, Failure> {
    Err(Failure::usage("the statements for MySQL need the Cargo feature `mysql` of leasehold-cli"))
}
