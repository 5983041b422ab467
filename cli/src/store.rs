//! The store that the command line names, or the file of this user.

use std::env;
use std::io::{IsTerminal, stderr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use leasehold::backend::LockBackend;
use leasehold::{Error, ErrorKind, LockClient, LockOptions};
use tokio::time::{Instant, sleep};

use crate::exit::{self, Failure};
use crate::place::Place;
use crate::time;

/// The pause between two attempts to connect. A server takes longer to start, and an attempt is much shorter.
const PAUSE: Duration = Duration::from_millis(250);

/// How long the command waits for a store without a message. A server that restarts is often back by then.
const SILENT: Duration = Duration::from_secs(1);

/// The URL of the file in this user's state directory.
const LOCAL: &str = "local";

/// The store of the locks.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct Backend {
    /// Store to use, such as redis://127.0.0.1. By default, locks are kept in a file that only your own processes on this machine share;
    /// `local` selects this file explicitly.
    ///
    /// Other users, including root, have separate lock files, so your locks do not keep their commands from running at the same time. If
    /// the URL contains a password, set the environment variable instead of this option, because command lines are visible to other users.
    /// See `leasehold --help` for the supported URLs.
    #[arg(long = "backend", value_name = "URL", env = "LEASEHOLD_BACKEND")]
    pub(crate) url: Option<String>,

    /// Prefix for the names of all locks in the store, instead of the store's default.
    #[arg(long, value_name = "TEXT", env = "LEASEHOLD_PREFIX")]
    pub(crate) prefix: Option<String>,

    /// Fail if no store is specified, or if the store is `local`, instead of using a lock file on this machine.
    #[arg(long)]
    pub(crate) shared: bool,
}

/// How long to wait for a store that is down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    None,
    /// The default of the library for callers that wait for a lock.
    Usual,
    For(Duration),
}

impl Patience {
    fn limit(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Usual => LockOptions::DEFAULT_OUTAGE_WAIT,
            Self::For(wait) => wait,
        }
    }
}

impl Backend {
    /// The store at `url`.
    pub(crate) fn named(url: &str) -> Self {
        Self { url: Some(url.to_owned()), prefix: None, shared: false }
    }

    /// Connects as soon as the store is up.
    pub(crate) async fn connect_patiently(
        &self,
        patience: Patience,
    ) -> Result<LockClient, Failure> {
        let began = Instant::now();
        let mut is_announced = false;
        loop {
            let failure = match self.connect().await {
                Ok(client) => return Ok(client),
                Err(failure) => failure,
            };
            let left = patience.limit().saturating_sub(began.elapsed());
            if !failure.passes() || left.is_zero() {
                return Err(failure);
            }
            tracing::info!("waiting for the store: {}", failure.message());
            if began.elapsed() >= SILENT && !is_announced {
                is_announced = true;
                let limit = time::show(patience.limit());
                crate::out::note(format!(
                    "the store is unavailable; trying to connect for at most {limit}"
                ));
            }
            sleep(PAUSE.min(left)).await;
        }
    }

    /// Prints a message that the lock is local if no store is specified and stderr is not a terminal, as in a crontab on several machines.
    ///
    /// # Errors
    ///
    /// Fails if `--shared` forbids that.
    pub(crate) fn announce_local(&self) -> Result<(), Failure> {
        if self.shared && matches!(self.url.as_deref(), None | Some(LOCAL)) {
            return Err(Failure::usage(
                "--shared requires a store that machines can share; use --backend or set LEASEHOLD_BACKEND",
            ));
        }
        if self.url.is_none() && !stderr().is_terminal() {
            let file = default_file()?;
            crate::out::note(format!(
                "no store is specified, so the lock is local to this user and this machine ({}); \
                 use --backend or LEASEHOLD_BACKEND to name a store, or --backend local to accept this",
                file.display()
            ));
        }
        Ok(())
    }

    /// Connects to the named store, or opens the file in the user's state directory.
    pub(crate) async fn connect(&self) -> Result<LockClient, Failure> {
        match self.url.as_deref() {
            None | Some(LOCAL) => self.open_default_file().await,
            Some("") => Err(Failure::usage(
                "the backend URL is empty; specify a store, or unset LEASEHOLD_BACKEND to use locks on this machine",
            )),
            Some(url) if url.starts_with("memory:") => Err(Failure::usage(
                "a memory: store cannot be shared with other commands; omit --backend to use locks on this machine, or specify a server",
            )),
            Some(url) => {
                Place::check(url)?;
                let backend = leasehold::backend::connect(&self.with_prefix(url)?).await;
                client(backend.map_err(|error| not_connected(url, error))?)
            }
        }
    }

    /// Returns the URL of the store, with the prefix. Without `--backend`, this is the URL of the user's lock file.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        match self.url.as_deref() {
            Some("") => Err(Failure::usage("the backend URL is empty; specify a store")),
            Some(url) if url != LOCAL => self.with_prefix(url),
            _ => self.with_prefix(&url_of(&default_file()?)),
        }
    }

    /// The URL with the parameter for the prefix, if one is wanted.
    fn with_prefix(&self, url: &str) -> Result<String, Failure> {
        let Some(prefix) = &self.prefix else { return Ok(url.to_owned()) };
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let others = query.split('&').filter(|pair| !pair.is_empty() && !is_prefix(pair));
        let encoded: String = prefix.bytes().map(encode).collect();
        let query: Vec<String> =
            others.map(str::to_owned).chain([format!("prefix={encoded}")]).collect();
        Ok(format!("{url}?{}", query.join("&")))
    }

    /// Opens the file of this user. The first time, prints where the file is.
    #[cfg(feature = "sqlite")]
    async fn open_default_file(&self) -> Result<LockClient, Failure> {
        const REMEDY: &str = "to use a different directory for the file, set XDG_STATE_HOME; to use a different store, set --backend or LEASEHOLD_BACKEND";

        let (file, url) = (default_file()?, self.url()?);
        let is_new = !file.exists();
        let backend = leasehold::backend::connect(&url).await.map_err(|error| {
            let failure = not_connected(&url, error);
            if failure.passes() { failure } else { failure.with_remedy(REMEDY) }
        })?;
        if is_new && stderr().is_terminal() {
            crate::out::note(format!(
                "your locks on this machine are kept in {}; to use a different store, specify it with --backend",
                file.display()
            ));
        }
        client(backend)
    }

    #[cfg(not(feature = "sqlite"))]
    async fn open_default_file(&self) -> Result<LockClient, Failure> {
        Err(Failure::usage(
            "no store is specified; use --backend or set LEASEHOLD_BACKEND, for example to redis://127.0.0.1",
        ))
    }
}

fn not_connected(url: &str, error: Error) -> Failure {
    let is_bad_place = error.kind() == ErrorKind::Unsupported && url.starts_with("sqlite:");
    let failure = Failure::from(error);
    // A network file system cannot have a lock file. On other stores, `Unsupported` means that the URL does not suit the server.
    if is_bad_place { failure.with_code(exit::CANNOT_CREATE) } else { failure }
}

/// A command may run for hours, so a long hold is not worth a warning.
fn client<B: LockBackend>(backend: B) -> Result<LockClient, Failure> {
    Ok(LockClient::builder(backend).long_hold(Duration::MAX).build()?.into_dyn())
}

/// Whether the URL of a store contains the prefix for the names of locks.
pub(crate) fn has_prefix(url: &str) -> bool {
    url.split_once('?').is_some_and(|(_, query)| query.split('&').any(is_prefix))
}

fn is_prefix(parameter: &str) -> bool {
    parameter.starts_with("prefix=")
}

/// The URL of a file. Its path may contain any characters.
fn url_of(file: &Path) -> String {
    let path: String = file.as_os_str().as_bytes().iter().copied().map(encode).collect();
    format!("sqlite:{path}")
}

/// Encodes a byte of a parameter or path, unless it is plain. Not all stores decode plain bytes.
fn encode(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    }
}

/// `leasehold/locks.db` in the directory where programs keep the state of a user.
fn default_file() -> Result<PathBuf, Failure> {
    let directory = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::usage(
                "no store is specified, and a lock file cannot be used because HOME is not set; use --backend or set LEASEHOLD_BACKEND",
            )
        })?;
    Ok(directory.join("leasehold").join("locks.db"))
}

/// The path in an environment variable. The XDG specification ignores relative paths.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
