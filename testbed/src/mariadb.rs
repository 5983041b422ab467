//! One MariaDB server.

mod options;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::certificates::Certificates;
use crate::disk::SmallDisk;
use crate::port::free_port;
use crate::process::Process;
use crate::proxy::FaultProxy;
use crate::template::{copy_template, version};
use crate::unprivileged;

pub use options::MariaDbOptions;

/// A server takes 300 ms to start. On a machine that is busy with a build, some seconds.
const START_WAIT: Duration = Duration::from_secs(60);

/// The user and the database of tests.
const NAME: &str = "leasehold";

/// The settings that a data folder is made with, and only works with. They keep it small: each server copies one.
const INNODB: [&str; 3] = [
    "--innodb-log-file-size=4M",
    "--innodb-data-file-path=ibdata1:10M:autoextend",
    "--innodb-undo-tablespaces=0",
];

/// A running MariaDB server on loopback. It dies when dropped.
///
/// Its database and a user with all rights on it are called `leasehold`. Where the tests run as root, it runs as `nobody`.
#[derive(Debug)]
pub struct MariaDb {
    options: MariaDbOptions,
    // Before the folder, so that it is gone when that is removed.
    process: Option<Process>,
    folder: TempDir,
    port: u16,
    certificates: Option<Certificates>,
    disk: Option<SmallDisk>,
}

impl MariaDb {
    /// Starts a server with the user `leasehold`, who needs no password.
    ///
    /// # Panics
    ///
    /// As [`MariaDbOptions::start`].
    pub async fn start() -> Self {
        MariaDbOptions::new().start().await
    }

    /// Its address, `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL, as the user `leasehold`.
    pub fn url(&self) -> String {
        self.url_as(NAME)
    }

    /// Its URL as a user, given as `name` or `name:password`.
    pub fn url_as(&self, user: &str) -> String {
        self.url_at(user, &self.address())
    }

    /// The URL by which a user reaches it at another address, such as a proxy's.
    pub fn url_at(&self, user: &str, address: &str) -> String {
        format!("mysql://{user}@{address}/{NAME}")
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

    /// Stops it in its tracks: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Shuts it down in order.
    pub fn shut_down(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate();
        }
    }

    /// Starts it again, on the same port and with its data. What was on a small disk is gone.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.kill();
        assert!(self.try_launch().await, "mariadbd does not start again");
    }

    /// Refuses writes of all users but root, or ends that.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn set_read_only(&self, read_only: bool) {
        self.sql(&format!("SET GLOBAL read_only = {}", u8::from(read_only))).await;
    }

    /// Fills the small disk.
    ///
    /// # Panics
    ///
    /// If it was started without one.
    pub fn fill_disk(&self) {
        self.disk().fill(self.process().id());
    }

    /// Makes room on the small disk.
    ///
    /// # Panics
    ///
    /// If it was not filled.
    pub fn clear_disk(&self) {
        self.disk().clear(self.process().id());
    }

    /// Runs SQL as root, over a connection of its own, and returns the rows, the columns set apart by tabs.
    ///
    /// This is how tests look straight into the store, past every client of ours.
    ///
    /// # Panics
    ///
    /// If the server does not answer or refuses.
    pub async fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As [`Self::sql`], with what the server or the client has to say against it.
    ///
    /// # Errors
    ///
    /// If the server does not answer or refuses.
    pub async fn try_sql(&self, sql: &str) -> Result<String, String> {
        let output = self.client(sql).output().await.expect("mariadb can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(text(&output.stderr))
    }

    /// The command that runs SQL as root. Its process ends when it is dropped.
    pub fn client(&self, sql: &str) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-uroot", "-NB", "-D", NAME, "-e", sql, "-S"]);
        client.arg(self.socket()).kill_on_drop(true);
        client
    }

    async fn launch(options: MariaDbOptions) -> Option<Self> {
        let folder = unprivileged::folder("leasehold-mariadb-");
        let path = folder.path();
        let certificates = options.tls.then(|| Certificates::create(path, &["localhost"]));
        let name = format!("{}-1", version(&program()));
        copy_template(&name, init, &path.join("data"));
        let disk = options.small_disk.then(|| SmallDisk::new(path.join("data").join(NAME)));
        let port = free_port();
        let mut mariadb = Self { options, process: None, folder, port, certificates, disk };
        mariadb.prepare();
        mariadb.try_launch().await.then_some(mariadb)
    }

    /// Writes what lies beside the data.
    fn prepare(&self) {
        let sql = format!(
            "CREATE USER IF NOT EXISTS {NAME};\nGRANT ALL ON {NAME}.* TO {NAME};\n\
             GRANT ALL ON *.* TO root@localhost;\n"
        );
        fs::write(self.init_file(), sql).expect("temporary files can be written");
        unprivileged::give(&self.init_file());
        if let Some(certificates) = &self.certificates {
            unprivileged::give_secret(&certificates.server_key());
        }
    }

    async fn try_launch(&mut self) -> bool {
        let (program, folder) = (program(), self.folder());
        let mut command = match &self.disk {
            Some(disk) => disk.command(program, folder),
            None => unprivileged::command(program, folder),
        };
        command.args(self.args());
        self.process =
            Some(Process::spawn(&mut command, &self.log()).expect("mariadbd can be started"));
        self.comes_up().await
    }

    fn args(&self) -> Vec<String> {
        let mut settings = vec![
            ("datadir", display(&self.folder().join("data"))),
            ("socket", display(&self.socket())),
            // Else all servers of this machine share one, and delete each other's files.
            ("tmpdir", display(self.folder())),
            ("pid-file", display(&self.folder().join("pid"))),
            ("init-file", display(&self.init_file())),
            ("bind-address", "127.0.0.1".to_owned()),
            ("port", self.port.to_string()),
            ("innodb-buffer-pool-size", "16M".to_owned()),
            // What a kill leaves unwritten, the kernel writes: only a power cut would lose data.
            ("innodb-flush-method", "nosync".to_owned()),
        ];
        if let Some(certificates) = &self.certificates {
            settings.push(("ssl-cert", display(&certificates.server_certificate())));
            settings.push(("ssl-key", display(&certificates.server_key())));
            settings.push(("ssl-ca", display(&certificates.authority())));
        }
        let ours = settings.into_iter().map(|(name, value)| format!("--{name}={value}"));
        let fixed = ["--no-defaults", "--skip-log-bin", "--skip-name-resolve"];
        let fixed = fixed.into_iter().chain(INNODB).map(str::to_owned);
        fixed.chain(ours).chain(self.options.args.iter().cloned()).collect()
    }

    /// Waits until it answers. If it does not, its output is shown.
    async fn comes_up(&mut self) -> bool {
        let give_up = Instant::now() + START_WAIT;
        loop {
            if is_up(&self.socket()).await {
                return true;
            }
            let process = self.process.as_mut().expect("it was started");
            if process.exited().is_some() || Instant::now() > give_up {
                eprintln!("{}", fs::read_to_string(self.log()).unwrap_or_default());
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }

    fn init_file(&self) -> PathBuf {
        self.folder().join("init.sql")
    }

    fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server was not killed")
    }

    fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("it was started with a small disk")
    }
}

fn program() -> PathBuf {
    let here = || {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders: Vec<_> = env::split_paths(&path).chain(["/usr/sbin".into()]).collect();
        folders.into_iter().map(|folder| folder.join("mariadbd")).find(|program| program.is_file())
    };
    let program = env::var_os("LEASEHOLD_MARIADBD").map(PathBuf::from).or_else(here);
    program.expect("mariadbd is missing: run scripts/install")
}

/// Makes a new data folder, with the database of the tests.
fn init(data: &Path) {
    let folder = data.parent().expect("it lies in a folder");
    let mut install = unprivileged::command("mariadb-install-db", folder);
    install.args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"]);
    install.args(INNODB).arg(format!("--datadir={}", display(data)));
    let output = install.output().expect("mariadb-install-db can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A database is a folder.
    fs::create_dir(data.join(NAME)).expect("temporary folders can be written");
    unprivileged::give(&data.join(NAME));
}

/// Whether a server greets there.
async fn is_up(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket).await else {
        return false;
    };
    stream.read_u8().await.is_ok()
}

fn display(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}
