//! From a URL to a client.

use std::sync::Arc;

use leasehold_core::{Error, ErrorKind, LockBackend, LockClient, MemoryBackend, Operation};

/// Connects to the store at `url`.
///
/// | URL | store | Cargo feature |
/// | --- | --- | --- |
/// | `memory:` | a new store in this process | – |
/// | `etcd://[user:password@]host[:port][,host[:port]…]` | one etcd cluster, by some or all of its members | `etcd` |
/// | `etcds://…` | the same, over TLS | `etcd-tls` |
/// | `redis://[user:password@]host[:port][/database]` | one Redis or Valkey server | `redis` |
/// | `unix:///path/to/socket` | the same | `redis` |
/// | `rediss://…` | the same, over TLS | `redis-tls` |
///
/// The parameters, after `?`, are those of `EtcdConfig::from_url` and `RedisConfig::from_url`.
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
        "etcd" | "etcds" => etcd(url).await,
        "redis" | "rediss" | "valkey" | "valkeys" | "unix" | "redis+unix" => redis(url).await,
        _ => Err(invalid(
            "the URL has an unknown scheme: known are memory, etcd, etcds, redis, rediss, unix",
        )),
    }
}

#[cfg(feature = "etcd")]
async fn etcd(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_etcd::EtcdBackend::connect(url).await?))
}

#[cfg(not(feature = "etcd"))]
async fn etcd(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported("etcd URLs need the Cargo feature `etcd` of leasehold, with TLS `etcd-tls`"))
}

#[cfg(feature = "redis")]
async fn redis(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(leasehold_redis::RedisBackend::connect(url).await?))
}

#[cfg(not(feature = "redis"))]
async fn redis(_url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Err(unsupported("Redis URLs need the Cargo feature `redis` of leasehold, with TLS `redis-tls`"))
}

#[cfg(not(all(feature = "etcd", feature = "redis")))]
fn unsupported(message: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, message).with_operation(Operation::Connect)
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

    #[cfg(not(feature = "etcd"))]
    #[tokio::test]
    async fn without_its_feature_an_etcd_url_is_refused_and_names_it() {
        for url in ["etcd://u:S3CR3T@host", "etcds://u:S3CR3T@host"] {
            assert_names(&refusal(url).await, "`etcd`");
        }
    }

    #[cfg(all(feature = "etcd", not(feature = "etcd-tls")))]
    #[tokio::test]
    async fn without_its_feature_an_etcd_url_with_tls_is_refused_and_names_it() {
        assert_names(&refusal("etcds://u:S3CR3T@host").await, "`etcd-tls`");
    }

    #[cfg(feature = "etcd")]
    #[tokio::test]
    async fn etcd_urls_reach_the_backend() {
        let nobody = format!("etcd://127.0.0.1:{}", leasehold_testbed::free_port());
        assert_eq!(refusal(&nobody).await.kind(), ErrorKind::Unavailable);
        assert_eq!(refusal("etcd://u:S3CR3T@").await.kind(), ErrorKind::Invalid);
    }

    #[cfg(not(feature = "redis"))]
    #[tokio::test]
    async fn without_its_feature_a_redis_url_is_refused_and_names_it() {
        assert_names(&refusal("redis://:S3CR3T@host").await, "`redis`");
    }

    #[cfg(not(all(feature = "etcd-tls", feature = "redis")))]
    fn assert_names(error: &Error, feature: &str) {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(feature) && !shown.contains("S3CR3T"), "{shown}");
    }
}
