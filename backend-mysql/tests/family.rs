//! The tests of databases on a server, with this client crate, and the tests of MySQL alone.

use leasehold_mysql::{MysqlBackend as Backend, MysqlConfig as Config};
use leasehold_testbed::{MariaDb as Server, MariaDbOptions as Options};

use direct::Direct;

mod direct;

#[path = "../../sql-support/tests/family/mod.rs"]
mod family;

mod own;

/// Poolers of MySQL connections are not tested.
type Store = Server;

async fn start(options: Options) -> Store {
    options.start().await
}

/// Locks the row of the key `other`.
const KEEP_OTHER: &str = "SELECT token FROM leasehold_key WHERE `key` = 'other' FOR UPDATE";

/// The tables whose only row must not be missing.
const TABLES_OF_ONE_ROW: &[&str] = &["leasehold_member", "leasehold_min_token"];

/// The rights that the documentation asks for.
const RIGHTS: &str = include_str!("rights.sql");

/// A user has no rights beside these.
const MORE_REVOCATIONS: &[&str] = &[];

/// A user without rights on a database does not get in.
const LET_IN: &[&str] = &["GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.* TO locker"];

const CREATE_SCHEMA: &str = "CREATE DATABASE app; GRANT ALL ON app.* TO locker";

fn create_user(password: &str) -> String {
    format!("CREATE USER locker IDENTIFIED BY '{password}'")
}

/// Every server asks users that have a password.
fn asking_for_passwords() -> Options {
    Options::new()
}

#[cfg(feature = "tls")]
fn asking_for_certificates() -> Options {
    Options::new().tls()
}

#[cfg(feature = "tls")]
const NEED_CERTIFICATE: &str = "ALTER USER locker REQUIRE X509; GRANT ALL ON leasehold.* TO locker";

#[cfg(feature = "tls")]
const TLS_PARAMETERS: [&str; 4] = ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key"];

#[cfg(feature = "tls")]
const TLS_MODES: [&str; 3] = ["disabled", "required", "verify_identity"];

fn in_serializable_sessions() -> Options {
    Options::new().set("transaction-isolation", "SERIALIZABLE")
}

/// A lock that others kept, deadlock victim.
const CONFLICTS: [&str; 2] = ["1205", "1213"];

const INTERRUPTED: &str = "1317";

/// Counts all connections that were made.
const COUNT_CONNECTIONS: &str = "SHOW GLOBAL STATUS LIKE 'Connections'";

/// Returns the number of connections that were opened, including the connection of this query.
async fn opened_connections(server: &Server) -> u64 {
    let row = server.sql(COUNT_CONNECTIONS).await;
    row.split('\t').next_back().unwrap().parse().unwrap()
}

/// Returns settings that limit the number of connections, each with the options of a server.
fn connection_limits() -> [(&'static str, Options); 2] {
    // MariaDB has at least 10 connections.
    [("max_connections", "10"), ("max_user_connections", "6")]
        .map(|(name, limit)| (name, Options::new().set(name, limit)))
}

/// InnoDB waits for whole seconds, and the remaining time of the call may be shorter.
const REASONS_TO_GIVE_UP: &[&str] = &["time limit", "held a database lock", "in time"];

fn counting_statements() -> Options {
    let options = Options::new().set("performance-schema", "ON");
    options.set("general-log", "ON").set("log-output", "TABLE")
}

const FORGET_STATEMENTS: &str = "TRUNCATE performance_schema.events_statements_summary_by_digest;
    TRUNCATE mysql.general_log";

/// Returns one line per statement: the number of its executions and the beginning of its text. MariaDB's
/// digests do not contain prepared statements, but the log does. MySQL's digests also contain preparations,
/// which are left out, because each connection prepares a statement only once.
const EXECUTED_STATEMENTS: &str = "SELECT CONCAT(COUNT_STAR, ' ', DIGEST_TEXT)
    FROM performance_schema.events_statements_summary_by_digest WHERE DIGEST_TEXT NOT REGEXP '^(PREPARE|TRUNCATE)'
    UNION ALL SELECT CONCAT(COUNT(*), ' ', MIN(LEFT(argument, 40))) FROM mysql.general_log
    WHERE command_type = 'Execute' AND @@version LIKE '%MariaDB%' GROUP BY LEFT(argument, 40)";

/// Parts of the statements of a purge, each with the maximum number of its executions by one purge. A
/// purge that finds no more keys starts again with the first key.
const UPKEEP: &[(&str, u64)] =
    &[("UPDATE `leasehold_min_token`", 2), ("SELECT MAX", 2), ("DELETE FROM `leasehold_key`", 2)];

fn durable() -> Options {
    Options::new()
}

fn that_may_become_another() -> Options {
    durable()
}

/// Gives the server the id of another, as a promoted replica has.
async fn become_another(server: &mut Server) {
    server.sql("SET GLOBAL server_id = 4711").await;
}

async fn is_mariadb(server: &Server) -> bool {
    server.sql("SELECT @@version").await.contains("MariaDB")
}

/// Has the next insertions of a lease raise an error. A table without transactions counts them.
async fn raise(server: &Server, code: &str, times: u8) {
    let trigger = format!(
        "CREATE TRIGGER raises BEFORE INSERT ON leasehold_key FOR EACH ROW
         IF (SELECT COUNT(*) FROM raised) < {times} THEN
           INSERT INTO raised VALUES (1);
           SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'a test';
         END IF"
    );
    let direct = Direct::open(&server.url()).await;
    for statement in [
        "DROP TRIGGER IF EXISTS raises",
        "DROP TABLE IF EXISTS raised",
        "CREATE TABLE raised (n INT) ENGINE = MyISAM",
        &trigger,
    ] {
        direct.query(statement).await.unwrap();
    }
}
