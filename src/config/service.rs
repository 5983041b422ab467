//! A service that provides the locks defined in a configuration.

use std::time::Duration;

use leasehold_core::{
    Error, ErrorKind, LockClient, LockGuard, LockKey, Mutex, ReentrantMutex, RwLock, Semaphore,
    TryLockError, WriteGuard,
};

use super::{Config, DEFAULTS, Kind, Profile, invalid};

/// Connects to the store of a [`Config`] and provides its locks by name.
///
/// The code refers to a lock by name, and operators set the lock's type and options in the
/// configuration. If no profile matches a name, the lock is a mutex with the default options.
/// Clones share the client.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use leasehold::config::{Config, LockService};
///
/// let locks = LockService::connect(Config::new("memory:")).await?;
/// let done = locks.try_run("nightly-report", async |_guard| "written").await?;
/// assert_eq!(done, "written");
/// # Ok::<(), leasehold::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LockService {
    client: LockClient,
    config: Config,
}

/// A lock of any kind.
enum Lock {
    Mutex(Mutex),
    Reentrant(ReentrantMutex),
    ReaderWriter(RwLock),
    Semaphore(Semaphore),
}

impl LockService {
    /// Connects to the store in `config` and validates all profiles.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`connect`](crate::connect), or of
    /// [`connect_lazily`](crate::connect_lazily) if the configuration sets `lazy`. Also returns
    /// [`ErrorKind::Invalid`] if a setting is not valid, and [`ErrorKind::Unsupported`] if the
    /// store does not support a setting. Both errors contain the path of the rejected field.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let options = config.defaults.options();
        let backend = if config.lazy {
            crate::backend::connect_lazily(&config.url)?
        } else {
            crate::backend::connect(&config.url).await?
        };
        let client = LockClient::builder(backend).options(options).build();
        let client = client.map_err(|error| at_path(DEFAULTS, &error))?.into_dyn();
        Self::over(client, config)
    }

    /// Creates a service from an existing client and validates all profiles. The URL in `config` is
    /// ignored.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if a setting is not valid, and [`ErrorKind::Unsupported`] if
    /// the store does not support a setting. Both errors contain the path of the rejected field.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # use leasehold::config::{Config, LockService};
    /// let client = leasehold::connect("memory:").await?;
    /// let locks = LockService::over(client, Config::new("memory:"))?;
    /// # let _ = locks;
    /// # Ok::<(), leasehold::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn over(client: LockClient, config: Config) -> Result<Self, Error> {
        let service = Self { client, config };
        for (path, profile) in service.config.profiles() {
            // The name does not matter, because this lock is never acquired.
            service.make(&LockKey::new("any")?, &path, &profile)?;
        }
        Ok(service)
    }

    /// Returns the client, for uses that the configuration does not cover.
    pub fn client(&self) -> &LockClient {
        &self.client
    }

    /// Acquires the lock `name`. Waits for at most the time that the lock's profile sets.
    ///
    /// For a semaphore, this method acquires one permit. For a reader-writer lock, it acquires the
    /// write lock.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::lock`](crate::Mutex::lock), and [`ErrorKind::Invalid`] if
    /// `name` is not a valid name.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped after the store has granted the lease,
    /// the lease is released in the background.
    pub async fn lock(&self, name: &str) -> Result<LockGuard, Error> {
        match self.named(name)? {
            Lock::Mutex(mutex) => mutex.lock().await,
            Lock::Reentrant(mutex) => mutex.lock().await,
            Lock::ReaderWriter(lock) => lock.write().await.map(WriteGuard::into_guard),
            Lock::Semaphore(semaphore) => semaphore.acquire(1).await,
        }
    }

    /// Makes one attempt to acquire the lock `name`, even if the lock's profile sets a time to
    /// wait.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock is held, and [`TryLockError::Failed`] with one of
    /// the errors that [`lock`](Self::lock) returns if the attempt failed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If the future is dropped after the store has granted the lease,
    /// the lease is released in the background.
    pub async fn try_lock(&self, name: &str) -> Result<LockGuard, TryLockError> {
        match self.named(name)? {
            Lock::Mutex(mutex) => mutex.try_lock().await,
            Lock::Reentrant(mutex) => mutex.try_lock().await,
            Lock::ReaderWriter(lock) => lock.try_write().await.map(WriteGuard::into_guard),
            Lock::Semaphore(semaphore) => semaphore.try_acquire(1).await,
        }
    }

    /// Acquires the lock `name` and runs `work`, like [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::run`](crate::Mutex::run), and [`ErrorKind::Invalid`] if
    /// `name` is not a valid name.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn run<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, Error> {
        match self.named(name)? {
            Lock::Mutex(mutex) => mutex.run(work).await,
            Lock::Reentrant(mutex) => mutex.run(work).await,
            Lock::ReaderWriter(lock) => lock.run_write(work).await,
            Lock::Semaphore(semaphore) => semaphore.run(1, work).await,
        }
    }

    /// Makes one attempt to acquire the lock `name` and, if it succeeds, runs `work`, like
    /// [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If the lock was not acquired, returns the errors of [`try_lock`](Self::try_lock). Otherwise,
    /// returns [`TryLockError::Failed`] with one of the errors that [`run`](Self::run) returns.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run<T>(
        &self,
        name: &str,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        match self.named(name)? {
            Lock::Mutex(mutex) => mutex.try_run(work).await,
            Lock::Reentrant(mutex) => mutex.try_run(work).await,
            Lock::ReaderWriter(lock) => lock.try_run_write(work).await,
            Lock::Semaphore(semaphore) => semaphore.try_run(1, work).await,
        }
    }

    /// Acquires the lock `name` and runs `work`, like [`run`](Self::run). Waits for at most `wait`,
    /// regardless of the `wait` setting in the lock's profile.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock did not become free within `wait`. In all other
    /// cases, returns [`TryLockError::Failed`] with one of the errors that [`run`](Self::run)
    /// returns.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If the future is dropped, the lock is released in
    /// the background.
    pub async fn try_run_for<T>(
        &self,
        name: &str,
        wait: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, TryLockError> {
        match self.named(name)? {
            Lock::Mutex(mutex) => mutex.try_run_for(wait, work).await,
            Lock::Reentrant(mutex) => mutex.try_run_for(wait, work).await,
            Lock::ReaderWriter(lock) => lock.try_run_write_for(wait, work).await,
            Lock::Semaphore(semaphore) => semaphore.try_run_for(1, wait, work).await,
        }
    }

    /// Returns the mutex `name`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the profile sets a different type, or if `name` is not a
    /// valid name.
    pub fn mutex(&self, name: &str) -> Result<Mutex, Error> {
        match self.named(name)? {
            Lock::Mutex(mutex) => Ok(mutex),
            _ => Err(self.other_kind(name, "a mutex")),
        }
    }

    /// Returns the reentrant mutex `name`. The owner of a reentrant mutex can lock it again.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the profile sets a different type, or if `name` is not a
    /// valid name.
    pub fn reentrant_mutex(&self, name: &str) -> Result<ReentrantMutex, Error> {
        match self.named(name)? {
            Lock::Reentrant(mutex) => Ok(mutex),
            _ => Err(self.other_kind(name, "a reentrant mutex")),
        }
    }

    /// Returns the reader-writer lock `name`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the profile sets a different type, or if `name` is not a
    /// valid name.
    pub fn rw_lock(&self, name: &str) -> Result<RwLock, Error> {
        match self.named(name)? {
            Lock::ReaderWriter(lock) => Ok(lock),
            _ => Err(self.other_kind(name, "a reader-writer lock")),
        }
    }

    /// Returns the semaphore `name`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the profile sets a different type, or if `name` is not a
    /// valid name.
    pub fn semaphore(&self, name: &str) -> Result<Semaphore, Error> {
        match self.named(name)? {
            Lock::Semaphore(semaphore) => Ok(semaphore),
            _ => Err(self.other_kind(name, "a semaphore")),
        }
    }

    fn named(&self, name: &str) -> Result<Lock, Error> {
        let (path, profile) = self.config.profile(name);
        self.make(&LockKey::new(name)?, &path, &profile)
    }

    fn make(&self, key: &LockKey, path: &str, profile: &Profile) -> Result<Lock, Error> {
        let (client, options) = (&self.client, profile.options());
        let lock = match (profile.kind.unwrap_or_default(), profile.limit) {
            (Kind::Mutex, _) => {
                client.mutex(key).and_then(|lock| lock.with_options(options)).map(Lock::Mutex)
            }
            (Kind::ReentrantMutex, _) => {
                let mutex = client.reentrant_mutex(key);
                mutex.and_then(|mutex| mutex.with_options(options)).map(Lock::Reentrant)
            }
            (Kind::RwLock, _) => {
                let lock = client.rw_lock(key);
                lock.and_then(|lock| lock.with_options(options)).map(Lock::ReaderWriter)
            }
            (Kind::Semaphore, Some(limit)) => {
                let semaphore = client.semaphore(key, limit);
                semaphore.and_then(|it| it.with_options(options)).map(Lock::Semaphore)
            }
            (Kind::Semaphore, None) => {
                let message = "limit: a semaphore needs a number of permits";
                Err(Error::new(ErrorKind::Invalid, message))
            }
        };
        lock.map_err(|error| at_path(path, &error))
    }

    fn other_kind(&self, name: &str, asked: &str) -> Error {
        let (path, profile) = self.config.profile(name);
        let kind = profile.kind.unwrap_or_default();
        invalid(&path, &format!("\"{name}\" is configured as {kind:?}, but {asked} was requested"))
    }
}

/// Adds `path` to an error about a setting. A message about an option starts with the name of the
/// option, which is appended to the path.
fn at_path(path: &str, error: &Error) -> Error {
    let text = error.to_string();
    let context = match (error.key(), error.backend()) {
        (Some(key), Some(backend)) => format!("\"{key}\" on {backend}: "),
        (Some(key), None) => format!("\"{key}\": "),
        (None, Some(backend)) => format!("{backend}: "),
        (None, None) => String::new(),
    };
    let why = text.strip_prefix(&context).unwrap_or(&text);
    let option = why.split([':', ' ']).next().unwrap_or_default();
    let field = match option {
        // In a profile, `every` is the only retry setting that can be invalid.
        "retry" => Some("every"),
        "limit" | "ttl" => Some(option),
        _ => option.contains('_').then_some(option),
    };
    let message = match field {
        Some(field) => format!("{path}.{field}{}", &why[option.len()..]),
        None => format!("{path}: {why}"),
    };
    Error::new(error.kind(), message)
}
