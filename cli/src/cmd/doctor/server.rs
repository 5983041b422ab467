//! The settings that a server tells of.

use crate::exit::Failure;
use crate::place::Place;

use super::Findings;

#[cfg(not(feature = "redis"))]
pub(super) async fn look(_: &str, _: &Place, _: &mut Findings) -> Result<(), Failure> {
    Ok(())
}

#[cfg(feature = "redis")]
pub(super) use self::redis::look;

#[cfg(feature = "redis")]
mod redis {
    use std::collections::HashMap;
    use std::time::{Duration, SystemTime};

    use leasehold::redis::client::aio::MultiplexedConnection;
    use leasehold::redis::client::{Client, RedisResult, cmd};
    use tokio::time::timeout;

    use super::super::Verdict;
    use super::{Failure, Findings, Place};
    use crate::place::Store;

    /// Above this, a server's clock is worth a warning: fencing tokens and `--min-hold` go by clocks.
    const SKEW: Duration = Duration::from_secs(1);

    /// How long a server has to answer.
    const LIMIT: Duration = Duration::from_secs(5);

    /// The answers to `INFO` and `TIME`.
    struct Seen {
        info: HashMap<String, String>,
        /// How far its clock is from ours, ahead or behind.
        skew: Duration,
    }

    pub(crate) async fn look(
        url: &str,
        place: &Place,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        if place.store == Store::RedisSentinel {
            return findings.tell(
                Verdict::Ok,
                "settings",
                "not looked at: give the URL of the server that Sentinel names",
            );
        }
        for (name, url) in servers(url, place.store) {
            let seen = match timeout(LIMIT, see(&url)).await {
                Ok(Ok(seen)) => seen,
                Ok(Err(refusal)) => {
                    let code = refusal.code().unwrap_or("no answer").to_owned();
                    let said =
                        format!("{code}; see them as a user with +info, +config|get and +time");
                    findings.tell(Verdict::Warning, &of("settings", &name), said)?;
                    continue;
                }
                Err(_elapsed) => {
                    findings.tell(Verdict::Warning, &of("settings", &name), "no answer in time")?;
                    continue;
                }
            };
            judge(&name, &seen, findings)?;
        }
        Ok(())
    }

    /// A check of one server, where there are several.
    fn of(check: &str, name: &str) -> String {
        if name.is_empty() { check.to_owned() } else { format!("{check} of {name}") }
    }

    /// The servers that can be asked by themselves: their names, and their URLs.
    fn servers(url: &str, store: Store) -> Vec<(String, String)> {
        let url = url.split('?').next().unwrap_or_default().replace("valkey", "redis");
        let (scheme, rest) = url.split_once("://").unwrap_or((&url, ""));
        let single = match store {
            Store::Redis => return vec![(String::new(), url.clone())],
            Store::RedisCluster | Store::Redlock => {
                scheme.trim_start_matches("redlock+").trim_end_matches("-cluster")
            }
            _ => return Vec::new(),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let server = |host: &str| (host.to_owned(), format!("{single}://{user}{host}/{path}"));
        hosts.split(',').map(server).collect()
    }

    async fn see(url: &str) -> RedisResult<Seen> {
        let mut connection = Client::open(url)?.get_multiplexed_async_connection().await?;
        let mut info = HashMap::new();
        for section in ["server", "replication", "memory", "persistence"] {
            let text: String = cmd("INFO").arg(section).query_async(&mut connection).await?;
            let lines = text.lines().filter_map(|line| line.split_once(':'));
            info.extend(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())));
        }
        info.extend(settings(&mut connection).await.unwrap_or_default());
        let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut connection).await?;
        let theirs =
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros);
        let ours = SystemTime::now();
        let skew = theirs.duration_since(ours).or_else(|_| ours.duration_since(theirs));
        Ok(Seen { info, skew: skew.unwrap_or_default() })
    }

    /// The settings that only `CONFIG GET` tells. Many users may not ask for it.
    async fn settings(
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<HashMap<String, String>> {
        cmd("CONFIG").arg("GET").arg("appendfsync").query_async(connection).await
    }

    fn judge(name: &str, seen: &Seen, findings: &mut Findings) -> Result<(), Failure> {
        let get = |field: &str| seen.info.get(field).map_or("", String::as_str);
        let mut tell =
            |verdict, check: &str, said: String| findings.tell(verdict, &of(check, name), said);

        let (product, version) = match get("valkey_version") {
            "" => ("Redis", get("redis_version")),
            version => ("Valkey", version),
        };
        let mut numbers = version.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
        let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if number >= (6, 2) {
            tell(Verdict::Ok, "version", format!("{product} {version}"))?;
        } else {
            tell(
                Verdict::Failed,
                "version",
                format!("{product} {version}: 6.2 or newer is needed"),
            )?;
        }

        match get("role") {
            "master" => tell(Verdict::Ok, "role", "primary".to_owned())?,
            role => tell(
                Verdict::Failed,
                "role",
                format!("{role}: a replica grants no locks; name the primary"),
            )?,
        }

        match get("maxmemory_policy") {
            "noeviction" => tell(Verdict::Ok, "eviction", "none".to_owned())?,
            policy if get("maxmemory") == "0" => tell(
                Verdict::Ok,
                "eviction",
                format!("none: memory has no limit (else, {policy} may evict locks)"),
            )?,
            policy => tell(
                Verdict::Warning,
                "eviction",
                format!("{policy} may evict locks: CONFIG SET maxmemory-policy noeviction"),
            )?,
        }

        match (get("aof_enabled"), get("appendfsync")) {
            ("1", "always") => {
                tell(Verdict::Ok, "persistence", "a restart keeps all locks".to_owned())?;
            }
            ("1", "") => tell(Verdict::Ok, "persistence", "appendonly yes".to_owned())?,
            ("1", sync) => tell(
                Verdict::Warning,
                "persistence",
                format!(
                    "appendfsync {sync}: a crash may free locks that are held; always keeps them"
                ),
            )?,
            _ => tell(
                Verdict::Warning,
                "persistence",
                "a restart frees all locks: appendonly yes with appendfsync always keeps them"
                    .to_owned(),
            )?,
        }

        let said = format!("{:.1?} from this machine's", seen.skew);
        let verdict = if seen.skew > SKEW { Verdict::Warning } else { Verdict::Ok };
        tell(verdict, "clock", said)
    }
}
