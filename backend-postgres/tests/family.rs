//! The tests of databases on a server, with this client crate, and the tests of PostgreSQL alone.

use leasehold_postgres::{PostgresBackend as Backend, PostgresConfig as Config};
use leasehold_testbed::{Postgres as Server, PostgresOptions as Options, until};

use direct::Direct;

mod direct;

#[path = "../../sql-support/tests/family/mod.rs"]
mod family;

mod own;

mod pooled;

use pooled::{Store, start};

/// Locks the row of the key `other`.
const KEEP_OTHER: &str = "SELECT token FROM leasehold_key WHERE key = 'other' FOR UPDATE";

/// The tables whose only row must not be missing.
const TABLES_OF_ONE_ROW: &[&str] = &["leasehold_member"];

/// The rights that the documentation asks for.
const RIGHTS: &str = include_str!("rights.sql");

/// Rights that every user has, each of which is needed.
const MORE_REVOCATIONS: &[&str] = &["REVOKE USAGE ON SCHEMA public FROM PUBLIC, locker"];

/// Every user may look for tables. Up to PostgreSQL 14, every user may also create tables in `public`
/// by default.
const LET_IN: &[&str] = &["REVOKE CREATE ON SCHEMA public FROM PUBLIC"];

const CREATE_SCHEMA: &str = "CREATE SCHEMA app AUTHORIZATION locker";

fn create_user(password: &str) -> String {
    format!("CREATE ROLE locker LOGIN PASSWORD '{password}'")
}

fn asking_for_passwords() -> Options {
    Options::new().passwords()
}

#[cfg(feature = "tls")]
fn asking_for_certificates() -> Options {
    asking_for_passwords().tls_with_client_certificates()
}

/// The server asks all users for a certificate.
#[cfg(feature = "tls")]
const NEED_CERTIFICATE: &str = "GRANT CREATE ON SCHEMA public TO locker";

#[cfg(feature = "tls")]
const TLS_PARAMETERS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

#[cfg(feature = "tls")]
const TLS_MODES: [&str; 3] = ["disable", "require", "verify-full"];

fn in_serializable_sessions() -> Options {
    Options::new().set("default_transaction_isolation", "serializable")
}

/// Serialization failure, deadlock victim.
const CONFLICTS: [&str; 2] = ["40001", "40P01"];

const INTERRUPTED: &str = "57014";

/// Counts all connections that were made.
const COUNT_CONNECTIONS: &str = "SELECT sum(sessions)::bigint FROM pg_stat_database";

/// Returns the number of connections that were opened, including the connection of this query.
async fn opened_connections(server: &Server) -> u64 {
    let direct = Direct::open(&server.url()).await;
    // A session counts itself with some delay, but not later than at its end.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    let number = async |sql: &str| -> u64 {
        direct.query(sql).await.unwrap()[0][0].as_ref().unwrap().parse().unwrap()
    };
    until("the sessions have ended", async || number(others).await == 0).await;
    number(COUNT_CONNECTIONS).await
}

/// Returns settings that limit the number of connections, each with the options of a server.
fn connection_limits() -> [(&'static str, Options); 1] {
    let options = Options::new().set("superuser_reserved_connections", "0");
    ["max_connections"].map(|name| (name, options.clone().set(name, "12")))
}

const REASONS_TO_GIVE_UP: &[&str] = &["time limit"];

fn counting_statements() -> Options {
    Options::new().set("shared_preload_libraries", "pg_stat_statements")
}

const FORGET_STATEMENTS: &str =
    "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()";

/// Returns one line per statement: the number of its executions and its text.
const EXECUTED_STATEMENTS: &str =
    "SELECT calls || ' ' || translate(query, chr(10), ' ') FROM pg_stat_statements
    WHERE query NOT LIKE '%pg_stat_statements%'";

/// Parts of the statements of a move and of a purge, each with the maximum number of its executions by
/// one move or one purge. A purge that finds no more keys starts again with the first key.
const UPKEEP: &[(&str, u64)] =
    &[("WITH current AS", 1), ("pg_advisory_xact_lock", 2), ("setval", 2), ("WITH page AS", 2)];

/// It waits for the disk.
fn durable() -> Options {
    Options::new().set("fsync", "on")
}

/// It needs no archive to recover from.
fn that_may_become_another() -> Options {
    durable().set("restore_command", "false")
}

/// Has the server recover as from a backup, and begin a timeline, as a promoted standby does.
async fn become_another(server: &mut Server) {
    server.shut_down();
    std::fs::write(server.folder().join("data/recovery.signal"), "").unwrap();
    server.restart().await;
}

/// Has the next insertions of a lease raise an error. A sequence counts them: it is not rolled back.
async fn raise(server: &Server, code: &str, times: u8) {
    let sql = format!(
        "CREATE SEQUENCE IF NOT EXISTS raised;
         ALTER SEQUENCE raised RESTART;
         CREATE OR REPLACE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         IF nextval('public.raised') <= {times} THEN RAISE 'S' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$;
         DROP TRIGGER IF EXISTS raise ON leasehold_key;
         CREATE TRIGGER raise AFTER INSERT ON leasehold_key FOR EACH ROW EXECUTE FUNCTION raise()"
    );
    server.sql(&sql).await;
}
