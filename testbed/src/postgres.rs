//! One PostgreSQL server.

mod options;
mod postmaster;
mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::certificates::{Certificates, TlsClients};
use crate::disk::SmallDisk;
use crate::port::free_port;
use crate::proxy::FaultProxy;
use crate::template::{copy_template, version};
use crate::{unprivileged, until};
use postmaster::Postmaster;
use program::program;

pub use options::PostgresOptions;

/// A server takes 50 ms to start. On a machine that is busy with a build, some seconds.
const START_WAIT: Duration = Duration::from_secs(60);

/// A running PostgreSQL server on loopback. It dies when dropped.
///
/// Its superuser and its database are called `postgres`. Where the tests run as root, it runs as `nobody`.
#[derive(Debug)]
pub struct Postgres {
    options: PostgresOptions,
    // Before the folder, so that it is gone when that is removed.
    postmaster: Option<Postmaster>,
    folder: TempDir,
    port: u16,
    certificates: Option<Certificates>,
    disk: Option<SmallDisk>,
}

impl Postgres {
    /// Starts a server that loopback may use without a password.
    ///
    /// # Panics
    ///
    /// As [`PostgresOptions::start`].
    pub async fn start() -> Self {
        PostgresOptions::new().start().await
    }

    /// Its address, `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL, as its superuser.
    pub fn url(&self) -> String {
        self.url_as("postgres")
    }

    /// Its URL as a user, given as `name` or `name:password`.
    pub fn url_as(&self, user: &str) -> String {
        self.url_at(user, &self.address())
    }

    /// The URL by which a user reaches it at another address, such as a proxy's.
    pub fn url_at(&self, user: &str, address: &str) -> String {
        format!("postgres://{user}@{address}/postgres")
    }

    /// The certificates that it and its clients use, for the name `localhost`.
    ///
    /// # Panics
    ///
    /// If it was started without TLS.
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("it was started with TLS")
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its folder, with its data, its log and its Unix socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a proxy in front of it.
    pub async fn proxy(&self) -> FaultProxy {
        FaultProxy::start(self.address()).await
    }

    /// Stops it in its tracks, with the processes of all its connections: they stay open, nothing is answered.
    pub fn pause(&self) {
        self.postmaster().pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.postmaster().resume();
    }

    /// Kills it at once, with the processes of all its connections.
    pub fn kill(&mut self) {
        self.postmaster = None;
    }

    /// Ends all connections and shuts it down in order.
    pub fn shut_down(&mut self) {
        if let Some(mut postmaster) = self.postmaster.take() {
            postmaster.shut_down();
        }
    }

    /// Starts it again, on the same port and with its data. What was on a small disk is gone.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.kill();
        assert!(self.try_launch().await, "postgres does not start again");
    }

    /// Makes transactions read-only unless they say otherwise, or ends that. Open connections hear of it within
    /// milliseconds.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn set_read_only(&self, read_only: bool) {
        let value = if read_only { "on" } else { "off" };
        self.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}")).await;
        self.sql("SELECT pg_reload_conf()").await;
        let show = "SHOW default_transaction_read_only";
        until("the setting is in force", async || self.sql(show).await == value).await;
    }

    /// Fills the small disk.
    ///
    /// # Panics
    ///
    /// If it was started without one.
    pub fn fill_disk(&self) {
        self.disk().fill(self.postmaster().id());
    }

    /// Makes room on the small disk.
    ///
    /// # Panics
    ///
    /// If it was not filled.
    pub fn clear_disk(&self) {
        self.disk().clear(self.postmaster().id());
    }

    /// Runs SQL as the superuser, over a connection of its own, and returns the rows, the columns set apart by `|`.
    ///
    /// This is how tests look straight into the store, past every client of ours.
    ///
    /// # Panics
    ///
    /// If the server does not answer or refuses.
    pub async fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As [`Self::sql`], with what the server or `psql` has to say against it.
    ///
    /// # Errors
    ///
    /// If the server does not answer or refuses.
    pub async fn try_sql(&self, sql: &str) -> Result<String, String> {
        let output = self.psql(sql).output().await.expect("psql can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(text(&output.stderr))
    }

    /// The command that runs SQL as the superuser. Its process ends when it is dropped.
    pub fn psql(&self, sql: &str) -> Command {
        let mut psql = Command::new(program("psql"));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-U", "postgres"]);
        psql.arg("-h").arg(self.folder()).args(["-p", &self.port.to_string(), "-c", sql]);
        psql.kill_on_drop(true);
        psql
    }

    async fn launch(options: PostgresOptions) -> Option<Self> {
        let folder = unprivileged::folder("leasehold-postgres-");
        let path = folder.path();
        let certificates =
            options.tls.map(|_| Certificates::create(path, &["localhost", "127.0.0.1"]));
        let name = format!("{}-1", version(&program("postgres")));
        copy_template(&name, init, &path.join("data"));
        let disk = options.small_disk.then(|| SmallDisk::new(path.join("small")));
        let port = free_port();
        let mut postgres = Self { options, postmaster: None, folder, port, certificates, disk };
        postgres.prepare();
        if !postgres.try_launch().await {
            return None;
        }
        if let Some(disk) = &postgres.disk {
            let location = disk.folder().display();
            postgres.sql(&format!("CREATE TABLESPACE small LOCATION '{location}'")).await;
            postgres.sql("ALTER DATABASE postgres SET default_tablespace = small").await;
        }
        Some(postgres)
    }

    /// Writes what lies beside the data.
    fn prepare(&self) {
        let access = self.folder().join("pg_hba.conf");
        fs::write(&access, self.access_rules()).expect("temporary files can be written");
        unprivileged::give(&access);
        if let Some(certificates) = &self.certificates {
            unprivileged::give_secret(&certificates.server_key());
        }
        if let Some(disk) = &self.disk {
            fs::create_dir(disk.folder()).expect("temporary folders can be written");
            unprivileged::give(disk.folder());
        }
    }

    fn access_rules(&self) -> String {
        let method = if self.options.passwords { "scram-sha-256" } else { "trust" };
        let over_tcp = match self.options.tls {
            Some(TlsClients::NeedCertificate) => {
                format!("hostssl all all 127.0.0.1/32 {method} clientcert=verify-ca")
            }
            _ => format!("host all all 127.0.0.1/32 {method}"),
        };
        format!("local all all trust\n{over_tcp}\n")
    }

    async fn try_launch(&mut self) -> bool {
        let (program, folder) = (program("postgres"), self.folder());
        let mut command = match &self.disk {
            Some(disk) => disk.command(program, folder),
            None => unprivileged::command(program, folder),
        };
        command.args(self.args());
        self.postmaster = Some(Postmaster::spawn(command, &self.log()));
        self.comes_up().await
    }

    fn args(&self) -> Vec<String> {
        let mut settings = vec![
            ("port", self.port.to_string()),
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", display(self.folder())),
            ("hba_file", display(&self.folder().join("pg_hba.conf"))),
            // What a kill leaves unwritten, the kernel writes: only a power cut would lose data.
            ("fsync", "off".to_owned()),
            ("full_page_writes", "off".to_owned()),
            ("shared_buffers", "16MB".to_owned()),
            ("max_connections", "200".to_owned()),
        ];
        if let Some(certificates) = &self.certificates {
            settings.push(("ssl", "on".to_owned()));
            settings.push(("ssl_cert_file", display(&certificates.server_certificate())));
            settings.push(("ssl_key_file", display(&certificates.server_key())));
            settings.push(("ssl_ca_file", display(&certificates.authority())));
        }
        let ours = settings.into_iter().map(|(name, value)| format!("--{name}={value}"));
        let theirs = self.options.settings.iter().map(|(name, value)| format!("--{name}={value}"));
        let data = ["-D".to_owned(), display(&self.data())];
        data.into_iter().chain(ours).chain(theirs).collect()
    }

    /// Waits until it answers. If it does not, its output is shown.
    async fn comes_up(&mut self) -> bool {
        let give_up = Instant::now() + START_WAIT;
        loop {
            if self.is_ready() {
                return true;
            }
            let postmaster = self.postmaster.as_mut().expect("it was started");
            if postmaster.exited() || Instant::now() > give_up {
                eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether this very process says that it is ready, as `pg_ctl` reads it.
    fn is_ready(&self) -> bool {
        let status = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = status.lines().map(str::trim);
        let id = self.postmaster().id().to_string();
        lines.next() == Some(&id) && lines.nth(6) == Some("ready")
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    fn postmaster(&self) -> &Postmaster {
        self.postmaster.as_ref().expect("the server was not killed")
    }

    fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("it was started with a small disk")
    }
}

/// Makes a new data folder.
fn init(data: &Path) {
    let folder = data.parent().expect("it lies in a folder");
    let mut initdb = unprivileged::command(program("initdb"), folder);
    initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    initdb.args(["--no-sync", "--no-instructions", "--wal-segsize=1", "-D"]).arg(data);
    let output = initdb.output().expect("initdb can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn display(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}
