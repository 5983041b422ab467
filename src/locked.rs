//! The `#[locked]` attribute, which runs a function under a lock.

/// Runs a function under a lock. Each call of the annotated function acquires the lock, runs the
/// function's body and releases the lock.
///
/// The attribute needs the `macros` feature. The function must return a `Result<T, E>` with `E:
/// From<`[`Error`](crate::Error)`>`. The attribute supports these functions:
///
/// - `async fn`, with a [`LockClient`](crate::LockClient);
/// - plain `fn`, with a [`blocking::LockClient`](crate::blocking::LockClient) (with the `blocking`
///   feature);
/// - methods in traits and impls under `#[async_trait]`, and plain functions whose body ends with
///   an `async` block or with a `Box::pin` of an `async` block.
///
/// The attribute does not change the signature. The future is `Send` if it would be `Send` without
/// the attribute. Patterns in arguments, generic arguments, `?` and `return` work as usual.
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
///         Ok(lock.token().number()) // send the token with every write
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
/// | `key = "order:{id}"` | the key template | required |
/// | `client = self.locks` | an expression for the client or for a reference to the client | required |
/// | `ttl = "30s"` | [`LockOptions::ttl`](crate::LockOptions::ttl); the lease is renewed, so it may be shorter than the work | the client's TTL |
/// | `wait = "2s"` | [`LockOptions::wait`](crate::LockOptions::wait); `"0s"` makes a single attempt | the client's wait; a single attempt for `on_busy = skip` without `retry` |
/// | `retry = 5` | the number of attempts after the first one, within the wait; requires `every` | limited only by the wait |
/// | `every = "200ms"` | the pause between two attempts | the client's [`LockOptions::retry`](crate::LockOptions::retry) |
/// | `on_busy = error` | the result if another caller holds the lock: `error` or `skip` | `error` |
/// | `guard = name` | the name of a local variable for the guard: `&`[`LockGuard`](crate::LockGuard), or `&`[`blocking::Guard`](crate::blocking::Guard) | none |
/// | `crate = path` | the path of this crate, if you have renamed it | `::leasehold` |
///
/// Each call of the annotated function locks the mutex `client.mutex(key)?`. Options that the
/// attribute does not set come from the client. A duration is a whole number and a unit, in quotes:
/// `"200ms"`, `"30s"`, `"2m"` or `"1h"`. The compiler rejects other forms, unknown placeholders in
/// a template, and unknown arguments of the attribute.
///
/// # Keys
///
/// A template may contain `{arg}`, `{arg.field}` and `{self.field}`. Each placeholder is replaced
/// by its value, formatted with [`Display`](std::fmt::Display). Write `{{` and `}}` for braces. A
/// placeholder starts with `self` or with the name of an argument, including a name that a pattern
/// binds. Put a separator between two placeholders, because different values can otherwise result
/// in the same key: with `"{a}{b}"`, the values 1 and 23 and the values 12 and 3 both result in
/// `123`.
///
/// # Skipping
///
/// With `on_busy = skip`, the function returns `Result<Option<T>, E>`. If the lock is not acquired,
/// the function returns `Ok(None)`. The body also returns a `Result<Option<T>, E>`, so the caller
/// and the body see the same signature.
///
/// Some Java projects have a `@RedisLock` annotation with the attributes below. This table lists
/// the equivalent arguments:
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
/// Returns the following errors, converted to `E`, and the errors of the body unchanged:
///
/// - [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) if the lock did not become free within the
///   maximum waiting time, except with `on_busy = skip`;
/// - [`ErrorKind::LeaseLost`](crate::ErrorKind::LeaseLost) if the lease was lost, in which case the
///   body's result is discarded;
/// - [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the key or the options are not valid, in
///   which case no request is sent;
/// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if async code calls a plain
///   function;
/// - the remaining errors of [`Mutex::run`](crate::Mutex::run).
///
/// If the lease is lost, an async body is dropped before it finishes. A body that is not async
/// cannot be stopped, so the error is returned only after the body has finished.
///
/// # Cancel safety
///
/// A call to the annotated function is as cancel safe as the function's body. If the call is
/// dropped, the client releases the lock in the background.
pub use leasehold_macros::locked;

/// The runtime support for the attribute. Only the generated code uses this module.
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

    /// Converts a timeout into `None`. Only the acquisition can time out.
    fn or_skip<T, E: From<Error>>(
        ran: Result<Result<Option<T>, E>, Error>,
    ) -> Result<Option<T>, E> {
        match ran {
            Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
            ran => ran?,
        }
    }

    /// Runtime support for plain functions.
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
