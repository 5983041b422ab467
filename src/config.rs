//! Named locks whose types and options are configured outside the code.

mod human;
mod service;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold_core::retry::Retry;
use leasehold_core::{Error, ErrorKind, LockOptions};
use serde::{Deserialize, Deserializer};

pub use service::LockService;

/// The store of a program, and the type and options of each of its locks.
///
/// A `Config` can be read from every format that serde supports, for example TOML, YAML, JSON or
/// environment variables.
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
/// | `url` | the URL of the store, as in [`connect`](crate::connect) | required |
/// | `lazy` | whether the service may start before the store is available, as in [`connect_lazily`](crate::connect_lazily) | `false` |
/// | `defaults` | a [`Profile`] for all locks | the defaults of [`LockOptions`] |
/// | `locks` | profiles by lock name; fields that a profile omits come from `defaults` | none |
///
/// In the name of a profile, each `*` matches any text, including an empty string. If several
/// profiles match a lock, the profile whose name has the most characters besides `*` applies.
///
/// A duration is a string such as `"30s"`, `"200ms"` or `"1h 30m"`. Unknown fields and invalid
/// settings are rejected. The error for an unknown field or an invalid setting contains the path of
/// the field.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// The URL of the store. The URL may contain a password, so neither errors nor `Debug` show it.
    pub url: String,
    /// Whether to connect on the first request instead of at startup.
    #[serde(default)]
    pub lazy: bool,
    /// The profile for locks that match no other profile, and the default for fields that a profile
    /// omits.
    #[serde(default)]
    pub defaults: Profile,
    /// Profiles, keyed by a lock name or by a pattern that matches several names.
    #[serde(default)]
    pub locks: BTreeMap<String, Profile>,
}

/// The type and options of a lock. All fields are optional.
///
/// The example for [`Config`] contains profiles for a mutex and for a semaphore.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Profile {
    /// The type of the lock. The default is a mutex.
    pub kind: Option<Kind>,
    /// The total number of permits of a semaphore.
    pub limit: Option<u32>,
    /// The TTL of a lease. See [`LockOptions::ttl`].
    #[serde(deserialize_with = "human::time")]
    pub ttl: Option<Duration>,
    /// The longest time to wait for the lock. See [`LockOptions::wait`]. `"0s"` makes a single
    /// attempt.
    #[serde(deserialize_with = "human::time")]
    pub wait: Option<Duration>,
    /// The longest time to wait for the store while the store is unavailable. See
    /// [`LockOptions::outage_wait`].
    #[serde(deserialize_with = "human::time")]
    pub outage_wait: Option<Duration>,
    /// The shortest time for which the lock is held. See [`LockOptions::min_hold`].
    #[serde(deserialize_with = "human::time")]
    pub min_hold: Option<Duration>,
    /// The longest time for which a lease is renewed. See [`LockOptions::max_hold`].
    #[serde(deserialize_with = "human::time")]
    pub max_hold: Option<Duration>,
    /// The minimum remaining time of a lease when it is granted. See
    /// [`LockOptions::min_validity`].
    #[serde(deserialize_with = "human::time")]
    pub min_validity: Option<Duration>,
    /// How long work under the lock may continue after the loss notification. See
    /// [`LockOptions::loss_grace`].
    #[serde(deserialize_with = "human::time")]
    pub loss_grace: Option<Duration>,
    /// How long a key remains locked after its lease has expired. See [`LockOptions::lock_delay`].
    #[serde(deserialize_with = "human::time")]
    pub lock_delay: Option<Duration>,
    /// Whether callers acquire the lock in order of arrival. See [`LockOptions::fair`].
    pub fair: Option<bool>,
    /// The maximum number of attempts. See [`Retry::attempts`].
    pub attempts: Option<u32>,
    /// The pause between two attempts. See [`Retry::every`].
    #[serde(deserialize_with = "human::time")]
    pub every: Option<Duration>,
}

/// The type of a lock in a [`Profile`].
///
/// The example for [`Config`] selects a semaphore with `kind = "semaphore"`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// A [`Mutex`](crate::Mutex), `"mutex"` in a configuration.
    #[default]
    Mutex,
    /// A [`ReentrantMutex`](crate::ReentrantMutex), `"reentrant-mutex"` in a configuration.
    ReentrantMutex,
    /// A [`RwLock`](crate::RwLock), `"rw-lock"` in a configuration.
    RwLock,
    /// A [`Semaphore`](crate::Semaphore), `"semaphore"` in a configuration.
    Semaphore,
}

impl Config {
    /// Creates a configuration for the store at `url`. All locks are mutexes with default options.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), lazy: false, defaults: Profile::default(), locks: BTreeMap::new() }
    }

    /// Reads a configuration from a serde deserializer.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`], with the field's path, if a field is missing, is unknown or
    /// has the wrong type. [`LockService::connect`] checks whether the settings are consistent and
    /// supported by the store.
    pub fn read<'de>(format: impl Deserializer<'de>) -> Result<Self, Error> {
        serde_path_to_error::deserialize(format).map_err(|error| {
            let (path, why) = (error.path().to_string(), error.inner().to_string());
            // Formats that track positions return an error with several lines, the last of which is
            // the message.
            let why = why.lines().last().unwrap_or_default().to_owned();
            invalid(&path, &why)
        })
    }

    /// Returns the profile of the lock `name` and the profile's path.
    fn profile(&self, name: &str) -> (String, Profile) {
        let fitting = self.locks.iter().filter(|(pattern, _)| fits(pattern, name));
        let text = |pattern: &str| pattern.len() - pattern.matches('*').count();
        let closest = fitting.max_by_key(|(pattern, _)| (text(pattern), !pattern.contains('*')));
        match closest {
            Some((pattern, profile)) => (path_of(pattern), profile.clone().or(&self.defaults)),
            None => (DEFAULTS.to_owned(), self.defaults.clone()),
        }
    }

    /// Returns all profiles with their paths.
    fn profiles(&self) -> impl Iterator<Item = (String, Profile)> {
        let defaults = (DEFAULTS.to_owned(), self.defaults.clone());
        let named = self.locks.iter();
        let named = named.map(|(pattern, it)| (path_of(pattern), it.clone().or(&self.defaults)));
        [defaults].into_iter().chain(named)
    }
}

/// The path of the default profile, which applies if no other profile matches.
const DEFAULTS: &str = "defaults";

fn path_of(pattern: &str) -> String {
    format!("locks.{pattern}")
}

/// Returns whether `name` matches `pattern`. Each star matches any text.
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
    /// Returns this profile with its missing fields filled from `others`.
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

    /// Returns the lock options of this profile.
    ///
    /// ```
    /// # use leasehold::config::Profile;
    /// # use leasehold::LockOptions;
    /// assert_eq!(Profile::default().options(), LockOptions::new());
    /// ```
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

/// The URL is omitted because it may contain a password.
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
