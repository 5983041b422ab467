//! Creates a quorum of Redis servers from a single URL.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::LockBackend;
#[cfg(feature = "quorum")]
use leasehold_quorum::Quorum;
use leasehold_settings::{Options, StoreUrl, invalid};

use crate::stores::refused;

/// The default port of Redis.
const PORT: u16 = 6379;

/// The parts of a quorum URL.
#[derive(Debug, Eq, PartialEq)]
struct Redlock {
    /// The name and URL of each member. All clients must use the same names.
    members: Vec<(String, String)>,
    max_ttl: Option<Duration>,
    member_timeout: Option<Duration>,
}

/// Returns whether `scheme` denotes a quorum. The text after the plus sign is the members' scheme.
pub(crate) fn is_redlock(scheme: &str) -> bool {
    let members = scheme.strip_prefix("redlock+");
    members.is_some_and(|it| matches!(it, "redis" | "rediss" | "valkey" | "valkeys"))
}

/// Connects to a majority of the members.
#[cfg(feature = "quorum")]
pub(crate) async fn connect(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let quorum = quorum(url)?;
    quorum.establish().await?;
    Ok(Arc::new(quorum))
}

/// Creates a quorum whose members connect on the first request.
#[cfg(feature = "quorum")]
pub(crate) fn connect_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    Ok(Arc::new(quorum(url)?))
}

#[cfg(not(feature = "quorum"))]
pub(crate) async fn connect(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    connect_lazily(url)
}

#[cfg(not(feature = "quorum"))]
pub(crate) fn connect_lazily(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    // If the members' store is disabled, too, its error comes first.
    for (_, member) in Redlock::read(url).map_err(refused)?.members {
        crate::stores::redis_lazily(&member)?;
    }
    Err(crate::stores::not_built_in("quorum", "quorum"))
}

#[cfg(feature = "quorum")]
fn quorum(url: &str) -> Result<Quorum<Arc<dyn LockBackend>>, Error> {
    let Redlock { members, max_ttl, member_timeout } = Redlock::read(url).map_err(refused)?;
    let stores =
        members.into_iter().map(|(name, url)| Ok((name, crate::stores::redis_lazily(&url)?)));
    let stores = stores.collect::<Result<Vec<_>, Error>>()?;
    let mut quorum = Quorum::builder(stores);
    if let Some(max_ttl) = max_ttl {
        quorum = quorum.max_ttl(max_ttl);
    }
    if let Some(limit) = member_timeout {
        quorum = quorum.member_timeout(limit);
    }
    quorum.build()
}

impl Redlock {
    fn read(url: &str) -> Result<Self, Error> {
        let url = StoreUrl::parse(url)?;
        let scheme = url.scheme().trim_start_matches("redlock+");
        let mut options = url.options()?;
        let max_ttl = positive(&mut options, "max-ttl-ms")?;
        let member_timeout = positive(&mut options, "member-timeout-ms")?;
        let of_members = match options.rest() {
            rest if rest.is_empty() => rest,
            rest => format!("?{rest}"),
        };
        let authority = url.authority()?;
        let user = match authority.encoded_credentials() {
            "" => String::new(),
            user => format!("{user}@"),
        };
        let path = match authority.path {
            "" => String::new(),
            path => format!("/{path}"),
        };
        let members = authority.servers(PORT)?.into_iter().map(|server| {
            (server.to_string(), format!("{scheme}://{user}{server}{path}{of_members}"))
        });
        Ok(Self { members: members.collect(), max_ttl, member_timeout })
    }
}

fn positive(options: &mut Options, name: &'static str) -> Result<Option<Duration>, Error> {
    match options.millis(name)? {
        Some(Duration::ZERO) => {
            Err(invalid(format!("{name} in the URL must be a number greater than 0")))
        }
        millis => Ok(millis),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Redlock {
        Redlock::read(url).unwrap()
    }

    #[test]
    fn members_share_all_but_the_host() {
        let url = "redlock+rediss://u:p%40@A,b:7000,[::1],[::1]:1/3?prefix=x:&max-ttl-ms=5000&client=fred";

        let redlock = read(url);

        let member = |server: &str| {
            (server.to_owned(), format!("rediss://u:p%40@{server}/3?prefix=x%3A&client=fred"))
        };
        let members = [member("a:6379"), member("b:7000"), member("[::1]:6379"), member("[::1]:1")];
        assert_eq!(redlock.members, members);
        assert_eq!(redlock.max_ttl, Some(Duration::from_secs(5)));
        assert_eq!(redlock.member_timeout, None);
    }

    #[test]
    fn plain_hosts_are_enough() {
        let redlock = read("redlock+redis://a,b,c?member-timeout-ms=50");

        let urls: Vec<_> = redlock.members.iter().map(|(_, url)| url.as_str()).collect();
        assert_eq!(urls, ["redis://a:6379", "redis://b:6379", "redis://c:6379"]);
        assert_eq!(redlock.member_timeout, Some(Duration::from_millis(50)));
    }

    #[test]
    fn settings_that_are_no_numbers_are_refused() {
        for setting in
            ["max-ttl-ms=x", "max-ttl-ms=0", "member-timeout-ms=", "member-timeout-ms=-1"]
        {
            let error = Redlock::read(&format!("redlock+redis://a,b,c?{setting}")).unwrap_err();
            assert!(error.to_string().contains("in the URL must be a number"), "{error}");
        }
    }

    #[test]
    fn schemes_of_one_server_make_members() {
        for scheme in ["redlock+redis", "redlock+rediss", "redlock+valkey", "redlock+valkeys"] {
            assert!(is_redlock(scheme), "{scheme}");
        }
        for scheme in ["redlock", "redlock+", "redlock+redis-cluster", "redlock+etcd", "redis"] {
            assert!(!is_redlock(scheme), "{scheme}");
        }
    }
}
