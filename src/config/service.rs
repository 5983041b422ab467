//! A service that provides the locks of a configuration.

use std::time::Duration;

use leasehold_core::{
    Error, ErrorKind, LockClient, LockGuard, LockKey, Mutex, ReentrantMutex, RwLock, Semaphore,
    TryLockError, WriteGuard,
};

use super::{Config, DEFAULTS, Kind, Profile, invalid};

/// The store that a [`Config`] names, and its locks by name.
///
/// Code that takes a lock says its name; operators choose its kind in the configuration, and for how long it is waited for and
/// held. A name that no profile fits is a mutex with the defaults. Clones share the client.
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
    /// Connects to the store that `config` names, and checks all profiles.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](crate::connect), or of [`connect_lazily`](crate::connect_lazily) if the configuration says so.
    /// [`ErrorKind::Invalid`] and [`ErrorKind::Unsupported`], with the path of the profile or field, if a setting is not possible, or not on the store.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let options = config.defaults.options();
        let backend = if config.lazy {
            crate::connect::backend_lazily(&config.url)?
        } else {
            crate::backend::connect(&config.url).await?
        };
        let client = LockClient::builder(backend).options(options).build();
        let client = client.map_err(|error| at_path(DEFAULTS, &error))?.into_dyn();
        Self::over(client, config)
    }

    /// Creates a service over an existing client, and checks all profiles. It ignores the store that `config` names.
    ///
    /// # Errors
    ///
    /// The errors of [`connect`](Self::connect) that concern profiles.
    pub fn over(client: LockClient, config: Config) -> Result<Self, Error> {
        let service = Self { client, config };
        for (path, profile) in service.config.profiles() {
            // Any name does: nothing is locked.
            service.make(&LockKey::new("any")?, &path, &profile)?;
        }
        Ok(service)
    }

    /// The client, for all that no configuration is about.
    pub fn client(&self) -> &LockClient {
        &self.client
    }

    /// Waits for the lock `name`, for as long as its profile says: of a semaphore one permit, of a reader-writer lock the writer's part.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Mutex::lock`](crate::Mutex::lock), and [`ErrorKind::Invalid`] if `name` is no name of a lock.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn lock(&self, name: &str) -> Result<LockGuard, Error> {
        match self.named(name)? {
            Lock::Mutex(mutex) => mutex.lock().await,
            Lock::Reentrant(mutex) => mutex.lock().await,
            Lock::ReaderWriter(lock) => lock.write().await.map(WriteGuard::into_guard),
            Lock::Semaphore(semaphore) => semaphore.acquire(1).await,
        }
    }

    /// Makes one attempt to acquire the lock `name`, even if its profile has a wait.
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock is held, and [`TryLockError::Failed`] with an error of [`lock`](Self::lock) if the
    /// attempt failed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. If it is dropped, a lease that the store has granted in the meantime is released in the background.
    pub async fn try_lock(&self, name: &str) -> Result<LockGuard, TryLockError> {
        match self.named(name)? {
            Lock::Mutex(mutex) => mutex.try_lock().await,
            Lock::Reentrant(mutex) => mutex.try_lock().await,
            Lock::ReaderWriter(lock) => lock.try_write().await.map(WriteGuard::into_guard),
            Lock::Semaphore(semaphore) => semaphore.try_acquire(1).await,
        }
    }

    /// Runs `work` under the lock `name`, as [`Mutex::run`](crate::Mutex::run) does.
    ///
    /// # Errors
    ///
    /// The errors of [`lock`](Self::lock), and of [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
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

    /// Makes one attempt to acquire the lock `name` and, if it succeeds, runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`try_lock`](Self::try_lock) before `work` is called, and the errors of [`run`](Self::run) as
    /// [`TryLockError::Failed`].
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
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

    /// Waits to acquire the lock `name` for at most `wait`, whatever its profile says, and runs `work` like [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns [`TryLockError::Busy`] if the lock was held throughout, and [`TryLockError::Failed`] with an error of [`run`](Self::run)
    /// otherwise.
    ///
    /// # Cancel safety
    ///
    /// This method is as cancel safe as `work`. If it is dropped, the lock is released in the background.
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

    /// The mutex `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if its profile is one of another kind, or `name` is no name of a lock.
    pub fn mutex(&self, name: &str) -> Result<Mutex, Error> {
        match self.named(name)? {
            Lock::Mutex(mutex) => Ok(mutex),
            _ => Err(self.other_kind(name, "a mutex")),
        }
    }

    /// The mutex `name`, whose owner may enter again.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`mutex`](Self::mutex).
    pub fn reentrant_mutex(&self, name: &str) -> Result<ReentrantMutex, Error> {
        match self.named(name)? {
            Lock::Reentrant(mutex) => Ok(mutex),
            _ => Err(self.other_kind(name, "a reentrant mutex")),
        }
    }

    /// The reader-writer lock `name`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`mutex`](Self::mutex).
    pub fn rw_lock(&self, name: &str) -> Result<RwLock, Error> {
        match self.named(name)? {
            Lock::ReaderWriter(lock) => Ok(lock),
            _ => Err(self.other_kind(name, "a reader-writer lock")),
        }
    }

    /// The semaphore `name`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`mutex`](Self::mutex).
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
                let message = "limit: a semaphore needs its number of permits";
                Err(Error::new(ErrorKind::Invalid, message))
            }
        };
        lock.map_err(|error| at_path(path, &error))
    }

    fn other_kind(&self, name: &str, asked: &str) -> Error {
        let (path, profile) = self.config.profile(name);
        let kind = profile.kind.unwrap_or_default();
        invalid(&path, &format!("\"{name}\" is of the kind {kind:?}, and {asked} was asked for"))
    }
}

/// The same refusal of a setting, with the path of the field where the message begins with one.
fn at_path(path: &str, error: &Error) -> Error {
    let text = error.to_string();
    let context = match (error.key(), error.backend()) {
        (Some(key), Some(backend)) => format!("\"{key}\" on {backend}: "),
        (Some(key), None) => format!("\"{key}\": "),
        (None, Some(backend)) => format!("{backend}: "),
        (None, None) => String::new(),
    };
    let why = text.strip_prefix(&context).unwrap_or(&text);
    let is_field = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let message = match why.split_once(": ") {
        // The pauses of a `Retry` have one field here.
        Some(("retry", why)) => format!("{path}.every: {why}"),
        Some((field, _)) if is_field(field) => format!("{path}.{why}"),
        _ => format!("{path}: {why}"),
    };
    Error::new(error.kind(), message)
}
