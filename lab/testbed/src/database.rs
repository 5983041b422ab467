//! One database server, of any kind.

mod launch;
mod options;
mod processes;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process;

use rustix::process::Signal;
use tokio::process::Command;

use crate::certificates::Certificates;
use crate::disk::SmallDisk;
use crate::memory::Folder;
use crate::proxy::FaultProxy;
use crate::unprivileged;
use options::Small;
use processes::Processes;

pub use options::DatabaseOptions;

/// The folder that a small disk takes the place of if it is for the log of transactions.
pub(crate) const LOG: &str = "transactions";

/// A running database server on loopback. It dies when dropped.
///
/// Where the tests run as root, the server runs as the `nobody` user.
#[derive(Debug)]
pub struct DatabaseServer<K> {
    pub(crate) options: DatabaseOptions<K>,
    // Before the folder, so that it is gone when that is removed.
    processes: Option<Processes>,
    disk: Option<SmallDisk>,
    folder: Folder,
    port: u16,
    pub(crate) certificates: Option<Certificates>,
}

impl<K: DatabaseKind> DatabaseServer<K> {
    /// Starts a server that loopback may use without a password.
    ///
    /// # Panics
    ///
    /// As [`DatabaseOptions::start`].
    pub async fn start() -> Self {
        DatabaseOptions::new().start().await
    }

    /// Its address, `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL, as the user of the tests.
    pub fn url(&self) -> String {
        self.url_as(K::USER)
    }

    /// Its URL as a user, given as `name` or `name:password`.
    pub fn url_as(&self, user: &str) -> String {
        self.url_at(user, &self.address())
    }

    /// The URL by which a user reaches it at another address, such as a proxy's.
    pub fn url_at(&self, user: &str, address: &str) -> String {
        format!("{}://{user}@{address}/{}", K::SCHEME, K::DATABASE)
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
        self.processes().pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.processes().resume();
    }

    /// Kills it at once, with the processes of all its connections.
    pub fn kill(&mut self) {
        self.processes = None;
    }

    /// Ends all connections and shuts it down in order.
    pub fn shut_down(&mut self) {
        if let Some(mut processes) = self.processes.take() {
            processes.shut_down(K::SHUTDOWN);
        }
    }

    /// Starts it again, on the same port and with its data.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.kill();
        assert!(self.try_launch().await, "{} does not start again", K::NAME);
    }

    /// Refuses writes, or ends that.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub async fn set_read_only(&self, read_only: bool) {
        K::set_read_only(self, read_only).await;
    }

    /// Fills the small disk.
    ///
    /// # Panics
    ///
    /// If it was started without one.
    pub fn fill_disk(&self) {
        self.disk().fill();
    }

    /// Makes room on the small disk.
    ///
    /// # Panics
    ///
    /// If it was not filled.
    pub fn clear_disk(&self) {
        self.disk().clear();
    }

    /// Runs SQL as the superuser, over a connection of its own, and returns the rows as its client prints them.
    ///
    /// This is how tests look straight into the store, past every client of ours.
    ///
    /// # Panics
    ///
    /// If the server does not answer or refuses.
    pub async fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As [`Self::sql`], with the objection of the server or its client.
    ///
    /// # Errors
    ///
    /// If the server does not answer or refuses.
    pub async fn try_sql(&self, sql: &str) -> Result<String, String> {
        let output = self.client(sql).output().await.expect("the server's client can be started");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(text(&output.stderr))
    }

    /// The command that runs SQL as the superuser. Its process ends when it is dropped.
    pub fn client(&self, sql: &str) -> Command {
        let mut client = K::client(self, sql);
        client.kill_on_drop(true);
        client
    }

    /// Has its log of transactions lie on the small disk, if that is for the log.
    pub(crate) fn move_log(&self) {
        if self.has_log_on_disk() {
            K::move_log(self);
        }
    }

    pub(crate) fn has_log_on_disk(&self) -> bool {
        matches!(self.options.small_disk, Some(Small::Log))
    }

    /// A command of the server's user, which runs in the server's folder and sees the small disk.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> process::Command {
        match &self.disk {
            Some(disk) => disk.command(program, self.folder()),
            None => unprivileged::command(program, self.folder()),
        }
    }

    fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    /// The id of its first process.
    pub(crate) fn id(&self) -> u32 {
        self.processes().id()
    }

    /// The path of a file in its folder, as its settings take it.
    pub(crate) fn file(&self, name: &str) -> String {
        display(&self.folder().join(name))
    }

    fn processes(&self) -> &Processes {
        self.processes.as_ref().expect("the server was not killed")
    }

    fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("it was started with a small disk")
    }
}

/// A kind of database server: its programs, their settings and their files.
#[doc(hidden)]
pub trait DatabaseKind: Clone + Debug + Default + Send + Sync + Sized + 'static {
    /// The name of the server's program.
    const NAME: &str;

    /// The scheme of its URLs.
    const SCHEME: &str;

    /// The user of the tests.
    const USER: &str;

    /// The database of the tests.
    const DATABASE: &str;

    /// Has the server end all connections, and then itself.
    const SHUTDOWN: Signal;

    /// The folder that a small disk for tables takes the place of.
    const SMALL_FOLDER: &str;

    /// The arguments that need no value.
    const ARGS: &[&str];

    /// The path of the server's program.
    ///
    /// # Panics
    ///
    /// If it is not installed.
    fn program() -> PathBuf;

    /// Makes a new data folder.
    fn init(data: &Path);

    /// The name and the text of the file that the server reads beside its data.
    fn file(options: &DatabaseOptions<Self>) -> (&'static str, String);

    /// The settings of `server`, each with its value.
    fn settings(server: &DatabaseServer<Self>) -> Vec<(&'static str, String)>;

    /// Whether `server` answers.
    fn is_up(server: &DatabaseServer<Self>) -> impl Future<Output = bool> + Send;

    /// Has tables lie on the small disk at `folder`.
    fn use_disk(server: &DatabaseServer<Self>, folder: &Path) -> impl Future<Output = ()> + Send;

    /// Moves the log of transactions to the small disk, before the server starts.
    fn move_log(server: &DatabaseServer<Self>);

    /// The id of the segment of shared memory (System V) of the server in `folder`, which outlives a server that is killed.
    fn segment(folder: &Path) -> Option<String>;

    /// Refuses writes, or ends that.
    fn set_read_only(
        server: &DatabaseServer<Self>,
        read_only: bool,
    ) -> impl Future<Output = ()> + Send;

    /// The command that runs SQL as the superuser.
    fn client(server: &DatabaseServer<Self>, sql: &str) -> Command;
}

/// Returns a path in the form that the settings of a server require.
pub(crate) fn display(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}
