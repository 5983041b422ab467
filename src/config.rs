//! Named locks from a configuration.

mod human;
mod service;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind, LockOptions};
use serde::{Deserialize, Deserializer};

pub use service::LockService;

/// The store of a program, and the kind and options of each of its locks: a value that serde reads, from TOML, YAML, JSON, the environment or
/// any other format with a serde crate.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold::config::{Config, LockService};
///
/// let config = Config::read(toml::Deserializer::parse(r#"
///     url = "memory:"
///
///     [defaults]
///     ttl = "10s"
///     wait = "5s"
///
///     [locks."report:*"]
///     wait = "0s"
///     min_hold = "1m"
///
///     [locks.connections]
///     kind = "semaphore"
///     limit = 3
/// "#)?)?;
///
/// let locks = LockService::connect(config).await?;
/// locks.run("report:daily", async |guard| println!("token {}", guard.token())).await?;
/// let connections = locks.semaphore("connections")?;
/// assert_eq!(connections.limit(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | field | meaning | default |
/// | --- | --- | --- |
/// | `url` | the store, as for [`connect`](crate::connect) | required |
/// | `lazy` | whether the service may start before the store serves, see [`connect_lazily`](crate::connect_lazily) | `false` |
/// | `defaults` | a [`Profile`] for all locks | that of [`LockOptions`] |
/// | `locks` | profiles by name; the defaults stand for fields that one leaves out | none |
///
/// In the name of a profile, each `*` stands for any text, also none. If several fit a lock, the one with the longest text beside
/// its stars counts.
///
/// Times are texts like `"30s"`, `"200ms"` or `"1h 30m"`. A field that does not exist is refused, and so is a setting that is not possible, with
/// the path of the field.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The store. It may hold a password, which neither errors nor `Debug` show.
    pub url: String,
    /// Whether the first request connects.
    #[serde(default)]
    pub lazy: bool,
    /// The profile of locks whose own profile leaves a field out.
    #[serde(default)]
    pub defaults: Profile,
    /// Profiles, by names and patterns.
    #[serde(default)]
    pub locks: BTreeMap<String, Profile>,
}

/// The kind and the options of a lock. All fields may be left out.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Profile {
    /// The kind of lock; a mutex, unless it is said.
    pub kind: Option<Kind>,
    /// The permits of a semaphore.
    pub limit: Option<u32>,
    /// [`LockOptions::ttl`].
    #[serde(deserialize_with = "human::time")]
    pub ttl: Option<Duration>,
    /// [`LockOptions::wait`]: `"0s"` for one attempt.
    #[serde(deserialize_with = "human::time")]
    pub wait: Option<Duration>,
    /// [`LockOptions::outage_wait`].
    #[serde(deserialize_with = "human::time")]
    pub outage_wait: Option<Duration>,
    /// [`LockOptions::min_hold`].
    #[serde(deserialize_with = "human::time")]
    pub min_hold: Option<Duration>,
    /// [`LockOptions::max_hold`].
    #[serde(deserialize_with = "human::time")]
    pub max_hold: Option<Duration>,
    /// [`LockOptions::min_validity`].
    #[serde(deserialize_with = "human::time")]
    pub min_validity: Option<Duration>,
    /// [`LockOptions::loss_grace`].
    #[serde(deserialize_with = "human::time")]
    pub loss_grace: Option<Duration>,
    /// [`LockOptions::lock_delay`].
    #[serde(deserialize_with = "human::time")]
    pub lock_delay: Option<Duration>,
    /// [`LockOptions::fair`].
    pub fair: Option<bool>,
    /// How many attempts to make at most: [`Retry::attempts`].
    pub attempts: Option<u32>,
    /// The pause between two attempts: [`Retry::every`].
    #[serde(deserialize_with = "human::time")]
    pub every: Option<Duration>,
}

/// The kind of a lock.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// [`Mutex`](crate::Mutex).
    #[default]
    Mutex,
    /// [`ReentrantMutex`](crate::ReentrantMutex).
    ReentrantMutex,
    /// [`RwLock`](crate::RwLock).
    RwLock,
    /// [`Semaphore`](crate::Semaphore).
    Semaphore,
}

impl Config {
    /// Creates a configuration of the store at `url`, all of whose locks are mutexes with default options.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), lazy: false, defaults: Profile::default(), locks: BTreeMap::new() }
    }

    /// Reads a configuration from a format that serde knows.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`], with the path of the field, if a field is missing, does not exist or is not of its type. [`LockService::connect`]
    /// refuses settings that are not possible together, or not on the store.
    pub fn read<'de>(format: impl Deserializer<'de>) -> Result<Self, Error> {
        serde_path_to_error::deserialize(format).map_err(|error| {
            let (path, why) = (error.path().to_string(), error.inner().to_string());
            // Formats that know the line show it, with a drawing.
            let why = why.lines().last().unwrap_or_default().to_owned();
            invalid(&path, &why)
        })
    }

    /// The profile of the lock `name`, and the path of that.
    fn profile(&self, name: &str) -> (String, Profile) {
        let fitting = self.locks.iter().filter(|(pattern, _)| fits(pattern, name));
        let text = |pattern: &str| pattern.len() - pattern.matches('*').count();
        let closest = fitting.max_by_key(|(pattern, _)| (text(pattern), !pattern.contains('*')));
        match closest {
            Some((pattern, profile)) => (path_of(pattern), profile.clone().or(&self.defaults)),
            None => (DEFAULTS.to_owned(), self.defaults.clone()),
        }
    }

    /// All profiles, with their paths.
    fn profiles(&self) -> impl Iterator<Item = (String, Profile)> {
        let defaults = (DEFAULTS.to_owned(), self.defaults.clone());
        let named = self.locks.iter();
        let named = named.map(|(pattern, it)| (path_of(pattern), it.clone().or(&self.defaults)));
        [defaults].into_iter().chain(named)
    }
}

/// The path of the profile of all locks that no other fits.
const DEFAULTS: &str = "defaults";

fn path_of(pattern: &str) -> String {
    format!("locks.{pattern}")
}

/// Whether `name` is `pattern`, with any text for each star.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, pattern)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = pattern.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl Profile {
    /// The same, with the fields of `others` for those that it leaves out.
    fn or(self, others: &Self) -> Self {
        Self {
            kind: self.kind.or(others.kind),
            limit: self.limit.or(others.limit),
            ttl: self.ttl.or(others.ttl),
            wait: self.wait.or(others.wait),
            outage_wait: self.outage_wait.or(others.outage_wait),
            min_hold: self.min_hold.or(others.min_hold),
            max_hold: self.max_hold.or(others.max_hold),
            min_validity: self.min_validity.or(others.min_validity),
            loss_grace: self.loss_grace.or(others.loss_grace),
            lock_delay: self.lock_delay.or(others.lock_delay),
            fair: self.fair.or(others.fair),
            attempts: self.attempts.or(others.attempts),
            every: self.every.or(others.every),
        }
    }

    /// The options of its locks.
    pub fn options(&self) -> LockOptions {
        type Set = fn(LockOptions, Duration) -> LockOptions;

        let times: [(Option<Duration>, Set); 8] = [
            (self.ttl, LockOptions::ttl),
            (self.wait, LockOptions::wait),
            (self.outage_wait, LockOptions::outage_wait),
            (self.min_hold, LockOptions::min_hold),
            (self.max_hold, LockOptions::max_hold),
            (self.min_validity, LockOptions::min_validity),
            (self.loss_grace, LockOptions::loss_grace),
            (self.lock_delay, LockOptions::lock_delay),
        ];
        let set = times.into_iter().filter_map(|(time, set)| Some((time?, set)));
        let options = set.fold(LockOptions::new(), |options, (time, set)| set(options, time));
        let retry = self.attempts.map_or(Retry::unlimited(), Retry::attempts);
        let retry = self.every.map_or(retry.clone(), |pause| retry.every(pause));
        options.retry(retry).fair(self.fair.unwrap_or_default())
    }
}

/// Leaves out the URL, which may hold a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("lazy", &self.lazy)
            .field("defaults", &self.defaults)
            .field("locks", &self.locks)
            .finish_non_exhaustive()
    }
}

fn invalid(path: &str, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{path}: {why}"))
}
