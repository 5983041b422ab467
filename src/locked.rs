//! The attribute `#[locked]`, which runs a function under a lock.

/// Runs a function under a lock: each call locks, runs the body, and releases.
///
/// Feature `macros`. It is for functions and methods that return a `Result<T, E>` with `E: From<`[`Error`](crate::Error)`>`:
///
/// - `async fn`, over a [`LockClient`](crate::LockClient);
/// - plain `fn`, over a [`blocking::LockClient`](crate::blocking::LockClient) (feature `blocking`);
/// - methods in traits and impls under `#[async_trait]`, and plain functions whose body ends with an `async` block or with
///   `Box::pin` of one.
///
/// The signature stays as it is written, and the future is `Send` if it is without the attribute. Patterns, generic arguments, `?` and
/// `return` work as in any function.
///
/// ```
/// use leasehold::{LockClient, locked};
///
/// struct Shop {
///     locks: LockClient,
/// }
///
/// impl Shop {
///     #[locked(key = "order:{id}", client = self.locks, ttl = "30s", wait = "2s", guard = lock)]
///     async fn settle(&self, id: u64) -> Result<u64, leasehold::Error> {
///         Ok(lock.token().number()) // send it along with every write
///     }
///
///     #[locked(key = "report", client = self.locks, on_busy = skip)]
///     async fn report(&self) -> Result<Option<&'static str>, leasehold::Error> {
///         Ok(Some("written"))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let shop = Shop { locks: leasehold::connect("memory:").await? };
/// shop.settle(42).await?;
///
/// let held = shop.locks.mutex("report")?.lock().await?;
/// assert_eq!(shop.report().await?, None);
/// held.release().await?;
/// assert_eq!(shop.report().await?, Some("written"));
/// # Ok(())
/// # }
/// ```
///
/// # Arguments
///
/// | argument | meaning | default |
/// | --- | --- | --- |
/// | `key = "order:{id}"` | the key, a template | required |
/// | `client = self.locks` | an expression for the client, or a reference to it | required |
/// | `ttl = "30s"` | [`LockOptions::ttl`](crate::LockOptions::ttl); the watchdog renews the lease, however short it is | the client's |
/// | `wait = "2s"` | [`LockOptions::wait`](crate::LockOptions::wait); `"0s"` is one attempt | the client's, which has no limit unless one is set; one attempt with `on_busy = skip` and without `retry` |
/// | `max_hold = "5m"` | [`LockOptions::max_hold`](crate::LockOptions::max_hold): after this time the lease is lost, and an async body is dropped | the client's, which has no limit unless one is set |
/// | `retry = 5` | attempts after the first, within the wait; needs `every` | as many as the wait allows |
/// | `every = "200ms"` | the pause between attempts | the client's [`LockOptions::retry`](crate::LockOptions::retry) |
/// | `on_busy = error` | the outcome while another holds the lock: `error` or `skip` | `error` |
/// | `guard = name` | a local of the body: `&`[`LockGuard`](crate::LockGuard), or `&`[`blocking::Guard`](crate::blocking::Guard) | none |
/// | `crate = path` | the path of this crate, where it has another name | `::leasehold` |
///
/// A call takes the lock that `client.mutex(key)?.lock()` takes, with the client's options for all that the attribute leaves out. A time
/// is a whole number and a unit in quotes: `"200ms"`, `"30s"`, `"2m"` or `"1h"`. The compiler refuses other forms, templates that name no
/// argument, and arguments of the attribute that do not exist.
///
/// # Keys
///
/// `{arg}`, `{arg.field}` and `{self.field}` stand for values, formatted with [`Display`](std::fmt::Display), and `{{` and `}}` for
/// braces. The first name is an argument of the function, also one that a pattern binds, or `self`. Two values side by side need a
/// separator: with `"{a}{b}"` the pairs 1, 23 and 12, 3 are one key.
///
/// # Skipping
///
/// With `on_busy = skip` the function returns `Result<Option<T>, E>`, and a call that does not get the lock gives `Ok(None)`. The body returns
/// the same type, so the signature tells the caller and the author alike.
///
/// | Redisson's `tryLock` in Java | here |
/// | --- | --- |
/// | `tryLock(waitTime, leaseTime, unit)` | `wait = "2s", max_hold = "5m", on_busy = skip` |
///
/// | `@RedisLock` in Java | here |
/// | --- | --- |
/// | `keepMills = 30000, action = CONTINUE, sleepMills = 200, retryTimes = 5` | `ttl = "30s", retry = 5, every = "200ms", on_busy = skip` |
/// | `keepMills = 30000, action = GIVEUP` | `ttl = "30s", on_busy = skip` |
///
/// # Errors
///
/// The errors of [`Mutex::run`](crate::Mutex::run), as `E`: [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if another held the lock throughout,
/// unless the call skips; [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost, also in place of the body's result. A key or
/// options that are not possible are [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), before any request. The errors of the body pass through.
///
/// A loss drops an async body unfinished. Nothing stops a plain one: the error comes once it has ended, and
/// a plain function gives [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when async code calls it.
///
/// # Cancel safety
///
/// As the body. A dropped call leaves no lock behind: the client releases it in the background.
pub use leasehold_macros::locked;

/// The part of the attribute that runs: for the code that it makes alone.
#[doc(hidden)]
pub mod __locked {
    use std::fmt::Arguments;

    pub use leasehold_core::LockGuard as Guard;
    use leasehold_core::backend::LockBackend;
    use leasehold_core::{Error, ErrorKind, LockClient, LockOptions, Mutex};

    pub fn mutex<B: LockBackend + ?Sized>(
        client: &LockClient<B>,
        key: Arguments<'_>,
        change: impl FnOnce(LockOptions) -> LockOptions,
    ) -> Result<Mutex, Error> {
        client.mutex(key.to_string())?.with_options(change(client.options()))
    }

    pub async fn run<T, E: From<Error>>(
        mutex: Result<Mutex, Error>,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, E> {
        mutex?.run(work).await?
    }

    pub async fn run_or_skip<T, E: From<Error>>(
        mutex: Result<Mutex, Error>,
        work: impl AsyncFnOnce(&Guard) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        or_skip(mutex?.run(work).await)
    }

    /// Reads the outcome of a run: only an acquisition times out.
    fn or_skip<T, E: From<Error>>(
        ran: Result<Result<Option<T>, E>, Error>,
    ) -> Result<Option<T>, E> {
        match ran {
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
            ran => ran?,
        }
    }

    /// The same for functions that block.
    #[cfg(feature = "blocking")]
    pub mod blocking {
        use std::fmt::Arguments;

        pub use leasehold_core::blocking::Guard;
        use leasehold_core::blocking::{LockClient, Mutex};
        use leasehold_core::{Error, LockOptions};

        pub fn mutex(
            client: &LockClient,
            key: Arguments<'_>,
            change: impl FnOnce(LockOptions) -> LockOptions,
        ) -> Result<Mutex, Error> {
            client.mutex(key.to_string())?.with_options(change(client.options()))
        }

        pub fn run<T, E: From<Error>>(
            mutex: Result<Mutex, Error>,
            work: impl FnOnce(&Guard) -> Result<T, E>,
        ) -> Result<T, E> {
            mutex?.run(work)?
        }

        pub fn run_or_skip<T, E: From<Error>>(
            mutex: Result<Mutex, Error>,
            work: impl FnOnce(&Guard) -> Result<Option<T>, E>,
        ) -> Result<Option<T>, E> {
            super::or_skip(mutex?.run(work))
        }
    }
}
