//! Creates a quorum of Redis servers from a single URL.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::LockBackend;
use leasehold_core::quorum::Quorum;

use crate::connect::{self, invalid};

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
pub(crate) async fn connect(url: &str) -> Result<Arc<dyn LockBackend>, Error> {
    let quorum = quorum(url)?;
    quorum.establish().await?;
    Ok(Arc::new(quorum))
}

/// Creates a quorum whose members connect on the first request.
pub(crate) fn quorum(url: &str) -> Result<Quorum<Arc<dyn LockBackend>>, Error> {
    let Redlock { members, max_ttl, member_timeout } = Redlock::read(url)?;
    let stores = members.into_iter().map(|(name, url)| Ok((name, connect::redis_lazily(&url)?)));
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
        let (scheme, rest) = url.split_once("://").ok_or_else(no_host)?;
        let scheme = scheme.trim_start_matches("redlock+");
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.split_once('/') {
            Some((authority, _)) => (authority, &place[authority.len()..]),
            None => (place, ""),
        };
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (&authority[..=user.len()], hosts),
            None => ("", authority),
        };
        let (mut max_ttl, mut member_timeout, mut of_members) = (None, None, String::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("max-ttl-ms", value)) => max_ttl = Some(millis("max-ttl-ms", value)?),
                Some(("member-timeout-ms", value)) => {
                    member_timeout = Some(millis("member-timeout-ms", value)?);
                }
                _ => {
                    of_members.push(if of_members.is_empty() { '?' } else { '&' });
                    of_members.push_str(pair);
                }
            }
        }
        let member =
            |host: &str| (name(host), format!("{scheme}://{user}{host}{path}{of_members}"));
        let members = hosts.split(',').map(member).collect();
        Ok(Self { members, max_ttl, member_timeout })
    }
}

/// Returns the host and the port in a canonical form.
fn name(host: &str) -> String {
    let after_address = host.rsplit_once(']').map_or(host, |(_, port)| port);
    let host = host.to_ascii_lowercase();
    if after_address.contains(':') { host } else { format!("{host}:{PORT}") }
}

fn millis(name: &'static str, value: &str) -> Result<Duration, Error> {
    match value.parse() {
        Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
        _ if name == "max-ttl-ms" => {
            Err(invalid("max-ttl-ms in the URL must be a number greater than 0"))
        }
        _ => Err(invalid("member-timeout-ms in the URL must be a number greater than 0")),
    }
}

fn no_host() -> Error {
    invalid("the URL has no hosts; use, for example, redlock+redis://a,b,c")
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

        let member = |name: &str, host: &str| {
            (name.to_owned(), format!("rediss://u:p%40@{host}/3?prefix=x:&client=fred"))
        };
        let members = [
            member("a:6379", "A"),
            member("b:7000", "b:7000"),
            member("[::1]:6379", "[::1]"),
            member("[::1]:1", "[::1]:1"),
        ];
        assert_eq!(redlock.members, members);
        assert_eq!(redlock.max_ttl, Some(Duration::from_secs(5)));
        assert_eq!(redlock.member_timeout, None);
    }

    #[test]
    fn plain_hosts_are_enough() {
        let redlock = read("redlock+redis://a,b,c?member-timeout-ms=50");

        let urls: Vec<_> = redlock.members.iter().map(|(_, url)| url.as_str()).collect();
        assert_eq!(urls, ["redis://a", "redis://b", "redis://c"]);
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
