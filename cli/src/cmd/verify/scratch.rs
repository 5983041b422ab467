//! Creates a separate namespace on the user's store.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use leasehold::backend::LockBackend;
use leasehold::{Holder, LockKey};
use leasehold_conformance::{Harness, Timing};
use leasehold_settings::StoreUrl;

use crate::exit::Failure;
use crate::place::{Place, Store};

/// How long cases that use the store without a client wait for a reply. These cases do not retry requests.
const PATIENCE: &str = "timeout-ms=20000";

/// The URL that the cases use. The suite identifies a store only by its type, so the URL cannot be passed to the suite.
static URL: OnceLock<String> = OnceLock::new();

/// A namespace that no other user of the store uses.
#[derive(Debug)]
pub(super) struct Scratch {
    url: String,
    place: Place,
    /// A file to be removed.
    file: Option<PathBuf>,
}

impl Scratch {
    pub(super) fn of(url: &str) -> Result<Self, Failure> {
        let place = Place::of(url)?;
        let id = std::process::id();
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let prefix = match place.store {
            Store::Sqlite => {
                let path = base.trim_start_matches("sqlite:");
                let path = path.strip_prefix("//").unwrap_or(path);
                let file = PathBuf::from(format!("{path}.verify-{id}"));
                let url = format!("sqlite:{}", file.display());
                return Ok(Self { url, place, file: Some(file) });
            }
            Store::Etcd => format!("{}verify-{id}/", place.prefix()),
            Store::ZooKeeper => format!("{}/verify-{id}", place.prefix()),
            Store::Postgres | Store::Mysql => format!("{}verify_{id}_", place.prefix()),
            _ => format!("{}verify-{id}:", place.prefix()),
        };
        // The path of a ZooKeeper URL is also a prefix.
        let end = match place.store {
            Store::ZooKeeper => base.len() - StoreUrl::parse(url)?.authority()?.path.len(),
            _ => base.len(),
        };
        let mut url = format!("{}?prefix={prefix}", &base[..end]);
        let kept = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("prefix="));
        for pair in kept {
            url = url + "&" + pair;
        }
        Ok(Self { url, place, file: None })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Makes all cases use this namespace. A process verifies only one store.
    pub(super) fn choose(&self) {
        URL.get_or_init(|| self.url.clone());
    }

    /// Removes what the suite has left in the store. Returns a message about anything that it cannot remove.
    pub(super) fn clean(self) -> Option<String> {
        if let Some(file) = &self.file {
            for end in ["", "-wal", "-shm"] {
                // A missing file need not be removed.
                drop(fs::remove_file(format!("{}{end}", file.display())));
            }
            return None;
        }
        let scratch = Place::of(&self.url).ok()?;
        let prefix = scratch.prefix();
        match self.place.store {
            Store::Postgres => Some(format!(
                "the suite's tables still exist; to remove them, run: DROP VIEW {prefix}locks; DROP TABLE {prefix}key, {prefix}member; DROP SEQUENCE {prefix}min_token;"
            )),
            Store::Mysql => Some(format!(
                "the suite's tables still exist; to remove them, run: DROP VIEW {prefix}locks; DROP TABLE {prefix}key, {prefix}min_token, {prefix}member;"
            )),
            Store::ZooKeeper => Some(format!(
                "the suite's node still exists; to remove it, run: zkCli.sh deleteall {prefix}"
            )),
            _ => None,
        }
    }
}

/// The user's store.
#[derive(Debug)]
pub(super) struct Theirs {
    probe: Arc<dyn LockBackend>,
}

#[async_trait::async_trait]
impl Harness for Theirs {
    type Backend = Arc<dyn LockBackend>;

    const NAME: &str = "this store";

    async fn start() -> Self {
        Self { probe: connect().await }
    }

    async fn connect(&self) -> Self::Backend {
        connect().await
    }

    async fn connect_patiently(&self) -> Self::Backend {
        connect_to(&patient(url())).await
    }

    fn timing(&self) -> Timing {
        let store = self.probe.capabilities();
        Timing::new().within(store.min_ttl(), store.max_ttl())
    }

    /// Reads the holder through a separate client, because stores have no other interface in common.
    async fn probe(&self, key: &LockKey) -> Option<Holder> {
        let admin = self.probe.admin().expect("the store supports inspection");
        let seen = admin.inspect(key).await.expect("the store names the holders of a key");
        seen.holders().first().cloned()
    }
}

async fn connect() -> Arc<dyn LockBackend> {
    connect_to(url()).await
}

async fn connect_to(url: &str) -> Arc<dyn LockBackend> {
    leasehold::backend::connect(url).await.unwrap_or_else(|error| panic!("{error}"))
}

fn url() -> &'static str {
    URL.get().expect("the namespace was chosen before the cases run")
}

/// The URL of the same namespace, with a time limit that is long enough for a busy machine.
fn patient(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let kept = query.split('&').filter(|it| !it.is_empty() && !it.starts_with("timeout-ms="));
    let parameters: Vec<&str> = kept.chain([PATIENCE]).collect();
    format!("{base}?{}", parameters.join("&"))
}

#[cfg(test)]
mod tests {
    use super::patient;

    #[test]
    fn patience_replaces_the_timeout_and_nothing_else() {
        assert_eq!(patient("sqlite:/tmp/a"), "sqlite:/tmp/a?timeout-ms=20000");
        assert_eq!(
            patient("redis://h/1?timeout-ms=5&prefix=a:"),
            "redis://h/1?prefix=a:&timeout-ms=20000"
        );
    }
}
