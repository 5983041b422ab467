//! PostgreSQL servers.

mod pooler;
mod program;
mod replica;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tokio::process::Command;

use crate::certificates::TlsClients;
use crate::database::{DatabaseKind, DatabaseOptions, DatabaseServer, LOG, display};
use crate::{unprivileged, until};
pub use pooler::{PgBouncer, PoolMode};
use program::program;

/// A running PostgreSQL server on loopback, whose superuser and database are called `postgres`. It dies when dropped.
pub type Postgres = DatabaseServer<PostgresKind>;

/// How a PostgreSQL server is started.
pub type PostgresOptions = DatabaseOptions<PostgresKind>;

/// The kind of server.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct PostgresKind;

/// No test creates databases, and the template databases contain two thirds of the files. A
/// single-user server takes a line at a time.
const DROP_TEMPLATES: &str = "UPDATE pg_database SET datistemplate = false
DROP DATABASE template0
DROP DATABASE template1
";

impl DatabaseOptions<PostgresKind> {
    /// Asks for passwords (SCRAM), for users that the test makes by [`DatabaseServer::sql`].
    #[must_use]
    pub fn passwords(mut self) -> Self {
        self.passwords = true;
        self
    }

    /// Speaks TLS only, and asks clients for a certificate.
    #[must_use]
    pub fn tls_with_client_certificates(mut self) -> Self {
        self.tls = Some(TlsClients::NeedCertificate);
        self
    }
}

impl DatabaseKind for PostgresKind {
    const NAME: &str = "postgres";
    const SCHEME: &str = "postgres";
    const USER: &str = "postgres";
    const DATABASE: &str = "postgres";
    const SHUTDOWN: Signal = Signal::INT;
    const SMALL_FOLDER: &str = "small";
    // It runs in its folder.
    const ARGS: &[&str] = &["-D", "data"];

    fn program() -> PathBuf {
        program("postgres")
    }

    fn init(data: &Path) {
        let folder = data.parent().expect("it lies in a folder");
        let mut initdb = unprivileged::command(program("initdb"), folder);
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "--wal-segsize=1", "-D"]).arg(data);
        let output = initdb.output().expect("initdb can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let script = folder.join("drop.sql");
        fs::write(&script, DROP_TEMPLATES).expect("temporary files can be written");
        let script = File::open(script).expect("it was written");
        let mut single = unprivileged::command(program("postgres"), folder);
        single.args(["--single", "-D"]).arg(data).arg("postgres").stdin(script);
        let output = single.output().expect("postgres can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The rules of access.
    fn file(options: &PostgresOptions) -> (&'static str, String) {
        let method = if options.passwords { "scram-sha-256" } else { "trust" };
        let over_tcp = match options.tls {
            Some(TlsClients::NeedCertificate) => {
                format!("hostssl all all 127.0.0.1/32 {method} clientcert=verify-ca")
            }
            _ => format!("host all all 127.0.0.1/32 {method}"),
        };
        ("pg_hba.conf", format!("local all,replication all trust\n{over_tcp}\n"))
    }

    fn settings(server: &Postgres) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("port", server.port().to_string()),
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", display(server.folder())),
            ("hba_file", server.file("pg_hba.conf")),
            ("shared_buffers", "16MB".to_owned()),
            ("max_connections", "200".to_owned()),
            // Up to PostgreSQL 13, the default is MD5.
            ("password_encryption", "scram-sha-256".to_owned()),
            // A server that is killed leaves a segment of another type in the machine's memory, for ever.
            ("dynamic_shared_memory_type", "mmap".to_owned()),
            // A replica looks for its primary again at once.
            ("wal_retrieve_retry_interval", "100ms".to_owned()),
        ];
        if !server.options.durable {
            // A kill leaves nothing unwritten: only a power cut would lose data.
            settings.extend(["fsync", "full_page_writes"].map(|name| (name, "off".to_owned())));
        }
        if let Some(certificates) = &server.certificates {
            settings.push(("ssl", "on".to_owned()));
            settings.push(("ssl_cert_file", display(&certificates.server_certificate())));
            settings.push(("ssl_key_file", display(&certificates.server_key())));
            settings.push(("ssl_ca_file", display(&certificates.authority())));
        }
        settings
    }

    /// This very process says that it is ready, as `pg_ctl` reads it.
    async fn is_up(server: &Postgres) -> bool {
        let status = fs::read_to_string(server.file("data/postmaster.pid")).unwrap_or_default();
        let mut lines = status.lines().map(str::trim);
        let id = server.id().to_string();
        lines.next() == Some(&id) && lines.nth(6) == Some("ready")
    }

    async fn use_disk(server: &Postgres, folder: &Path) {
        server.sql(&format!("CREATE TABLESPACE small LOCATION '{}'", folder.display())).await;
        server.sql("ALTER DATABASE postgres SET default_tablespace = small").await;
    }

    fn move_log(server: &Postgres) {
        let mut shell = server.command("sh");
        let log = "mv data/pg_wal/* \"$0\" && rmdir data/pg_wal && ln -s \"../$0\" data/pg_wal";
        let status = shell.args(["-c", log, LOG]).status().expect("there is a shell");
        assert!(status.success(), "the log can be moved");
    }

    /// The seventh line of this file has the key of the segment, and its id.
    fn segment(folder: &Path) -> Option<String> {
        let status = fs::read_to_string(folder.join("data/postmaster.pid")).ok()?;
        status.lines().nth(6)?.split_whitespace().nth(1).map(str::to_owned)
    }

    /// The server refuses writes of transactions that do not say otherwise. Open connections hear of it within milliseconds.
    async fn set_read_only(server: &Postgres, read_only: bool) {
        let value = if read_only { "on" } else { "off" };
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        server.sql(&set).await;
        server.sql("SELECT pg_reload_conf()").await;
        let show = "SHOW default_transaction_read_only";
        until("the setting is in force", async || server.sql(show).await == value).await;
    }

    fn client(server: &Postgres, sql: &str) -> Command {
        let mut psql = Command::new(program("psql"));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-U", "postgres"]);
        psql.arg("-h").arg(server.folder()).args(["-p", &server.port().to_string(), "-c", sql]);
        psql
    }
}
