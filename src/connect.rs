//! From a URL to a client.

use std::sync::Arc;

use leasehold_core::{Error, ErrorKind, LockBackend, LockClient, MemoryBackend, Operation};

/// Connects to the store at `url`.
///
/// | URL | store | Cargo feature |
/// | --- | --- | --- |
/// | `memory:` | a new store in this process | – |
/// | `redis://[user:password@]host[:port][/database]` | one Redis or Valkey server | `redis` |
/// | `unix:///path/to/socket` | the same | `redis` |
/// | `rediss://…` | the same, over TLS | `redis-tls` |
///
/// The parameters of Redis URLs are those of `RedisConfig::from_url`.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the URL cannot be understood, [`ErrorKind::Unsupported`] if its feature is
/// off, [`ErrorKind::Unavailable`] if the store cannot be reached, [`ErrorKind::Denied`] if it does not
/// let us in. None of them shows the URL, which may hold a password.
///
/// # Cancel safety
///
/// Safe to drop.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = leasehold::connect("memory:").await?;
/// let guard = client.mutex("invoice:42")?.lock().await?;
/// guard.release().await?;
/// # Ok::<(), leasehold::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn connect(url: &str) -> Result<LockClient, Error> {
    Ok(LockClient::new(backend(url).await?).erase())
}

/// Connects to the store at `url`, to be used with [`LockClient::builder`].
///
/// # Errors
///
/// As [`connect`].
pub async fn backend(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(invalid("the URL has no scheme: it begins like redis:// or memory:"));
    };
    match scheme {
        "memory" => Ok(Arc::new(MemoryBackend::new())),
        "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" => redis(url).await,
        _ => Err(invalid("the URL has an unknown scheme: known are memory, redis, rediss, unix")),
    }
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_redis::RedisBackend::connect(url).await?))
}

#[cfg(not(feature = "redis"))]
async fn redis(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let message = "Redis URLs need the Cargo feature `redis` of leasehold, with TLS `redis-tls`";
    Err(Error::new(ErrorKind::Unsupported, message).with_operation(Operation::Connect))
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, message).with_operation(Operation::Connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> Error {
        backend(url).await.unwrap_err()
    }

    #[tokio::test]
    async fn unknown_urls_are_refused_without_showing_them() {
        for url in ["", "S3CR3T", "ftp://S3CR3T@host", "http:S3CR3T"] {
            let error = refusal(url).await;
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("S3CR3T"));
        }
    }

    #[cfg(not(feature = "redis"))]
    #[tokio::test]
    async fn a_store_whose_feature_is_off_names_it() {
        let error = refusal("redis://:S3CR3T@host").await;
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("`redis`"));
    }
}
