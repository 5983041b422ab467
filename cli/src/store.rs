//! The store that the command line names, or the file of this user.

use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use leasehold::backend::LockBackend;
use leasehold::{LockClient, LockOptions};
use tokio::time::{Instant, sleep};

use crate::args::Backend;
use crate::exit::Failure;

/// Between two attempts to connect: short beside the start of a server, long beside the attempt.
const PAUSE: Duration = Duration::from_millis(250);

/// How long to wait for a store that is down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    None,
    /// As long as any caller that waits for a lock.
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
    /// Connects as soon as the store is up, and says once that it waits for it.
    pub(crate) async fn connect_patiently(
        &self,
        patience: Patience,
    ) -> Result<LockClient, Failure> {
        let began = Instant::now();
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
            sleep(PAUSE.min(left)).await;
        }
    }

    /// Connects to the named store, or opens the file in the user's state folder.
    pub(crate) async fn connect(&self) -> Result<LockClient, Failure> {
        match self.url.as_deref() {
            None => self.open_default_file().await,
            Some("") => Err(Failure::usage(
                "the backend is empty: name a store, or unset LEASEHOLD_BACKEND for locks on this machine",
            )),
            Some(url) if url.starts_with("memory:") => Err(Failure::usage(
                "a memory: store excludes no other command: leave --backend out for locks on this machine, or name a server",
            )),
            Some(url) => client(leasehold::backend::connect(&self.with_prefix(url)?).await?),
        }
    }

    /// The URL of the store, with the prefix: `named`, or that of `--backend`, or that of this user's file.
    pub(crate) fn url_or(&self, named: Option<&str>) -> Result<String, Failure> {
        match named.or(self.url.as_deref()) {
            Some("") => Err(Failure::usage("the backend is empty: name a store")),
            Some(url) => self.with_prefix(url),
            None => self.with_prefix(&url_of(&default_file()?)),
        }
    }

    /// The URL with the parameter for the prefix, if one is wanted.
    fn with_prefix(&self, url: &str) -> Result<String, Failure> {
        let Some(prefix) = &self.prefix else { return Ok(url.to_owned()) };
        let query = url.split_once('?').map(|(_, query)| query);
        if query.is_some_and(|query| query.split('&').any(|pair| pair.starts_with("prefix="))) {
            return Err(Failure::usage("the prefix is given twice: by --prefix and in the URL"));
        }
        let encoded: String = prefix.bytes().map(encode).collect();
        let mark = if query.is_some() { '&' } else { '?' };
        Ok(format!("{url}{mark}prefix={encoded}"))
    }

    /// Opens this user's file, and says once where it is.
    #[cfg(feature = "sqlite")]
    async fn open_default_file(&self) -> Result<LockClient, Failure> {
        use std::io::{IsTerminal, stderr};

        const REMEDY: &str = "to have the file elsewhere, set XDG_STATE_HOME; to use another store, \
                              set --backend or LEASEHOLD_BACKEND";

        let file = default_file()?;
        let is_new = !file.exists();
        let backend = leasehold::backend::connect(&self.url_or(None)?).await.map_err(|error| {
            let failure = Failure::from(error);
            if failure.passes() { failure } else { failure.with_remedy(REMEDY) }
        })?;
        if is_new && stderr().is_terminal() {
            crate::out::note(format!(
                "locks of this user on this machine are in {}; for others, name a store by --backend",
                file.display()
            ));
        }
        client(backend)
    }

    #[cfg(not(feature = "sqlite"))]
    async fn open_default_file(&self) -> Result<LockClient, Failure> {
        Err(Failure::usage(
            "no backend: name one by --backend or LEASEHOLD_BACKEND, e.g. redis://127.0.0.1",
        ))
    }
}

/// Refuses a relative path from the environment or the configuration file. Commands in different directories would use different files, and
/// not exclude each other.
pub(crate) fn check_origin(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((_, of_verb)) = matches.subcommand() else { return Ok(()) };
    let Ok(Some(url)) = of_verb.try_get_one::<String>("url") else { return Ok(()) };
    let named = match of_verb.value_source("url") {
        Some(ValueSource::EnvVariable) => "LEASEHOLD_BACKEND",
        Some(ValueSource::DefaultValue) => "backend in the configuration file",
        _ => return Ok(()),
    };
    let Some(path) = url.strip_prefix("sqlite:") else { return Ok(()) };
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty()
        || path.starts_with(['/', ':', '?'])
        || path.to_ascii_lowercase().starts_with("%2f")
    {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "cannot use {named}: {url} names another file in each directory; write the whole path, like sqlite:/var/lib/locks.db"
    )))
}

/// A command may run for hours: a long hold is no reason to warn.
fn client<B: LockBackend>(backend: B) -> Result<LockClient, Failure> {
    Ok(LockClient::builder(backend).long_hold(Duration::MAX).build()?.erase())
}

/// The URL of a file. Its path may contain any characters.
fn url_of(file: &Path) -> String {
    let path: String = file.as_os_str().as_bytes().iter().copied().map(encode).collect();
    format!("sqlite:{path}")
}

/// A byte of a parameter or path. Not all stores decode these, and none needs more than the plain ones.
fn encode(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b':' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    }
}

/// `leasehold/locks.db` in the folder where programs keep the state of a user.
fn default_file() -> Result<PathBuf, Failure> {
    let folder = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::usage(
                "no backend, and no HOME for a file of locks: name a store by --backend or LEASEHOLD_BACKEND",
            )
        })?;
    Ok(folder.join("leasehold").join("locks.db"))
}

/// The path in an environment variable. The XDG specification ignores relative ones.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}
