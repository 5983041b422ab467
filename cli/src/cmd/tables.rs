//! `leasehold tables`

use std::process::ExitCode;

use serde_json::json;

use crate::exit::Failure;
use crate::help::Help;
use crate::out;
use crate::place::{Place, Store};
use crate::store::Backend;

/// Prints the SQL statements that create the tables for locks in a database.
///
/// If the application's database user is not allowed to create tables, run these statements as an administrator, followed by the statements
/// that `leasehold acl` prints. Then add `tables=exist` to the clients' URL. The statements do not change existing tables, except the
/// tables of earlier versions. On PostgreSQL, the tables are in the schema of the URL, or in `public`. This subcommand does not connect to the store.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,
}

pub(crate) const HELP: Help = Help {
    examples: "\
leasehold tables --backend postgres://db.example/app | psql app
leasehold acl --user app --backend postgres://db.example/app | psql app",
    ..Help::OFFLINE
};

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let url = args.backend.url()?;
    let statements = match Place::of(&url)?.store {
        Store::Postgres => postgres(&url)?,
        Store::Mysql => mysql(&url)?,
        Store::Sqlite => {
            return Err(Failure::usage(
                "a lock file does not need any SQL statements for setup; the first command that uses the file creates the tables",
            ));
        }
        _ => {
            return Err(Failure::usage(
                "this store has no tables; use the URL of a database: postgres://, mysql:// or mariadb://",
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
    Err(crate::place::disabled("PostgreSQL support", "postgres"))
}

#[cfg(feature = "mysql")]
fn mysql(url: &str) -> Result<String, Failure> {
    Ok(leasehold::mysql::MysqlConfig::from_url(url)?.migration())
}

#[cfg(not(feature = "mysql"))]
fn mysql(_: &str) -> Result<String, Failure> {
    Err(crate::place::disabled("MySQL support", "mysql"))
}
