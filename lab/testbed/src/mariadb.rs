//! MariaDB and MySQL servers.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::database::{DatabaseKind, DatabaseOptions, DatabaseServer, LOG, display};
use crate::unprivileged;

/// A running MariaDB or MySQL server on loopback, with all rights for its user `leasehold` on its database `leasehold`. It dies when dropped.
pub type MariaDb = DatabaseServer<MariaDbKind>;

/// How a MariaDB or MySQL server is started. Users may be made that must use TLS, or need a certificate.
pub type MariaDbOptions = DatabaseOptions<MariaDbKind>;

/// The kind of server.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct MariaDbKind;

/// The user and the database of tests.
const NAME: &str = "leasehold";

/// The settings that a data folder of MariaDB is made with, and only works with. They keep it small: each server copies one.
const INNODB: [(&str, &str); 3] = [
    ("innodb-log-file-size", "4M"),
    ("innodb-data-file-path", "ibdata1:10M:autoextend"),
    ("innodb-undo-tablespaces", "0"),
];

/// The settings of MySQL that make it small and quick to start. A data directory that was created
/// with these settings also works with different settings.
const MYSQL: [(&str, &str); 5] = [
    ("auto-generate-certs", "OFF"),
    ("innodb-redo-log-capacity", "32M"),
    ("mysqlx", "OFF"),
    ("performance-schema", "OFF"),
    ("secure-file-priv", "NULL"),
];

impl DatabaseKind for MariaDbKind {
    const NAME: &str = "mariadb";
    const SCHEME: &str = "mysql";
    const USER: &str = NAME;
    const DATABASE: &str = NAME;
    const SHUTDOWN: Signal = Signal::TERM;
    // InnoDB's own files lie beside it.
    const SMALL_FOLDER: &str = "data/leasehold";
    const ARGS: &[&str] = &["--no-defaults", "--skip-log-bin", "--skip-name-resolve"];

    fn program() -> PathBuf {
        let here = || {
            let path = env::var_os("PATH").unwrap_or_default();
            let folders = env::split_paths(&path).chain(["/usr/sbin".into()]);
            let mut programs = folders.map(|folder| folder.join("mariadbd"));
            programs.find(|program| program.is_file())
        };
        let program = env::var_os("LEASEHOLD_MYSQL_SERVER").map(PathBuf::from).or_else(here);
        let program = program.expect("mariadbd is missing: run scripts/install");
        // The servers' user may be able to read the program, but not the folder of a link to it.
        fs::canonicalize(program).expect("the program is there")
    }

    fn init(data: &Path) {
        if is_mysql() {
            return init_mysql(data);
        }
        let base = base();
        let script = base.join("bin/mariadb-install-db");
        let mut install = unprivileged::command(script, parent(data));
        install.arg(format!("--basedir={}", display(&base)));
        install.args([
            "--no-defaults",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ]);
        install.args(INNODB.map(|(name, value)| format!("--{name}={value}")));
        run(install.arg(format!("--datadir={}", display(data))));
        // A database is a folder.
        fs::create_dir(data.join(NAME)).expect("temporary folders can be written");
        unprivileged::give(&data.join(NAME));
    }

    fn file(_: &MariaDbOptions) -> (&'static str, String) {
        let sql = format!(
            "CREATE USER IF NOT EXISTS {NAME};\nGRANT ALL ON {NAME}.* TO {NAME};\n\
             GRANT ALL ON *.* TO root@localhost;\n"
        );
        ("init.sql", sql)
    }

    fn settings(server: &MariaDb) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("basedir", display(&base())),
            ("datadir", server.file("data")),
            ("socket", server.file("socket")),
            // Else all servers of this machine share one, and delete each other's files.
            ("tmpdir", display(server.folder())),
            ("pid-file", server.file("pid")),
            ("init-file", server.file("init.sql")),
            ("bind-address", "127.0.0.1".to_owned()),
            ("port", server.port().to_string()),
            ("innodb-buffer-pool-size", "16M".to_owned()),
        ];
        let small: &[_] = if is_mysql() { &MYSQL } else { &INNODB };
        settings.extend(small.iter().map(|(name, value)| (*name, (*value).to_owned())));
        // A kill leaves nothing unwritten: only a power cut would lose data.
        let flush = if server.options.durable { "fsync" } else { "nosync" };
        settings.push(("innodb-flush-method", flush.to_owned()));
        if server.has_log_on_disk() {
            settings.push(("log-bin", server.file(&format!("{LOG}/binary"))));
        }
        if let Some(certificates) = &server.certificates {
            settings.push(("ssl-cert", display(&certificates.server_certificate())));
            settings.push(("ssl-key", display(&certificates.server_key())));
            settings.push(("ssl-ca", display(&certificates.authority())));
        }
        settings
    }

    /// It greets each connection.
    async fn is_up(server: &MariaDb) -> bool {
        let Ok(mut stream) = UnixStream::connect(server.file("socket")).await else {
            return false;
        };
        stream.read_u8().await.is_ok()
    }

    /// The database's folder is the disk.
    async fn use_disk(_: &MariaDb, _: &Path) {}

    /// A setting says where it lies.
    fn move_log(_: &MariaDb) {}

    fn segment(_: &Path) -> Option<String> {
        None
    }

    /// The server refuses writes of all users but root.
    async fn set_read_only(server: &MariaDb, read_only: bool) {
        server.sql(&format!("SET GLOBAL read_only = {}", u8::from(read_only))).await;
    }

    fn client(server: &MariaDb, sql: &str) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-uroot", "-NB", "-D", NAME, "-e", sql, "-S"]);
        client.arg(server.file("socket"));
        client
    }
}

/// The directory of the server's files, such as its messages. Another version may be installed in
/// the default directory.
fn base() -> PathBuf {
    let program = MariaDbKind::program();
    program.ancestors().nth(2).expect("the program is in a directory for programs").to_owned()
}

/// Debian's MariaDB has a link that is named `mysqld`, but the path of the program contains no links.
fn is_mysql() -> bool {
    MariaDbKind::program().file_name() == Some("mysqld".as_ref())
}

fn init_mysql(data: &Path) {
    let folder = parent(data);
    let sql = folder.join("database.sql");
    fs::write(&sql, format!("CREATE DATABASE {NAME};\n"))
        .expect("temporary folders can be written");
    let mut install = unprivileged::command(MariaDbKind::program(), folder);
    install.args(["--no-defaults", "--initialize-insecure", "--skip-log-bin"]);
    install.args(MYSQL.map(|(name, value)| format!("--{name}={value}")));
    install.arg(format!("--init-file={}", display(&sql)));
    run(install.arg(format!("--datadir={}", display(data))));
    // It has the server's id: each server makes another.
    fs::remove_file(data.join("auto.cnf")).expect("temporary folders can be written");
}

fn parent(data: &Path) -> &Path {
    data.parent().expect("it lies in a folder")
}

fn run(install: &mut process::Command) {
    let output = install.output().expect("the data folder's program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
