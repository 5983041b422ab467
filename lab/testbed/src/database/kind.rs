//! A kind of database server.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tokio::process::Command;

use super::{DatabaseOptions, DatabaseServer};

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
