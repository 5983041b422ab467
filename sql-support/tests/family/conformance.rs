//! The suite's part of databases on a server: one server behind a proxy that can fail, and a user with just the documented rights.
//!
//! The including file names the `Backend`, `Config`, `Server` and `Direct` types, and the SQL in which the databases differ.

use std::any::Any;
use std::time::Duration;

use leasehold_conformance::{FaultKind, Need, Time};
use leasehold_core::backend::entry::Entry;
use leasehold_core::{Description, ErrorKind, Holder, LockKey};
use leasehold_entry::Document;
use leasehold_testbed::{FaultProxy, NetworkFault, until_some};
use tokio::sync::RwLock;

use crate::{Backend, Config, DRIVEN_CLOCK, Direct, REAL_CLOCK, Server};

/// Without news, callers look again within a second; twice that, since a pause may have begun.
pub(crate) const POLLED: Duration = Duration::from_secs(2);

/// The rights that the documentation asks for.
const RIGHTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rights.sql"));

/// The faults that a server can have.
pub(crate) const FAULTS: &[Need] = &[
    Need::Fault(FaultKind::ConnectionsKilled),
    Need::Fault(FaultKind::NetworkSilent),
    Need::Fault(FaultKind::ReadOnly),
    Need::Fault(FaultKind::ServerKilled),
    Need::Fault(FaultKind::ServerStopped),
];

/// A server with the tables of the documented migration, and a proxy before it.
pub(crate) struct Served {
    pub(crate) running: RwLock<Running>,
    pub(crate) proxy: FaultProxy,
    /// The pooler between the proxy and the server, if there is one. It runs until it is dropped.
    pub(crate) _pooler: Option<Box<dyn Any + Send + Sync>>,
    time: Time,
}

pub(crate) struct Running {
    pub(crate) server: Server,
    /// Past the proxy.
    direct: Direct,
}

impl Served {
    pub(crate) async fn start(time: Time) -> Self {
        let server = Server::start().await;
        let migration = Config::from_url(&server.url()).unwrap().migration();
        let sql = format!(
            "{migration} {}; {RIGHTS} CREATE TABLE test_clock (us BIGINT); INSERT INTO test_clock {REAL_CLOCK};
             GRANT SELECT ON test_clock TO locker;",
            crate::CREATE_USER
        );
        server.sql(&sql).await;
        let proxy = server.proxy().await;
        let running = RwLock::new(Running::new(server).await);
        Self { running, proxy, _pooler: None, time }
    }

    /// A backend that waits for replies until `timeout`. A machine that is busy may be slower than that.
    pub(crate) async fn connect(&self, timeout: Duration) -> Backend {
        let url = self.running.read().await.server.url_at("locker:secret", &self.proxy.address());
        let config = Config::from_url(&url).unwrap().timeout(timeout).unwrap();
        let config = if self.time == Time::Driven { crate::driven(config) } else { config };
        until_some("connected", async || match Backend::connect_with(config.clone()).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => None,
            connected => Some(connected.unwrap()),
        })
        .await
    }

    pub(crate) async fn probe(&self, key: &LockKey) -> Option<Holder> {
        let now = if self.time == Time::Driven { DRIVEN_CLOCK } else { REAL_CLOCK };
        let sql = format!(
            "SELECT token, fingerprint, ends, description, document, ({now}) FROM leasehold_key
             WHERE {} = '{key}' AND ends > ({now})",
            crate::KEY
        );
        let rows = self.running.read().await.direct.query(&sql).await.unwrap();
        let mut columns = rows.into_iter().next()?.into_iter();
        let mut column = || columns.next().expect("a row has six columns");
        let token = column().unwrap().parse().unwrap();
        let [fingerprint, ends, description, document, now] = [(); 5].map(|()| column());
        let now: i64 = now.unwrap().parse().unwrap();
        let (fingerprint, ends, description) = match document {
            Some(document) => {
                let Entry { holders, .. } = Document::parse(&document, token).unwrap().entry;
                let first = holders
                    .into_iter()
                    .filter(|holding| holding.ends > now)
                    .min_by_key(|holding| holding.ends)?;
                (first.name.fingerprint, first.ends, first.description)
            }
            None => {
                let description = description.map(|text| Description::new(text).unwrap());
                (fingerprint.unwrap().parse().unwrap(), ends.unwrap().parse().unwrap(), description)
            }
        };
        let left = Duration::from_micros(u64::try_from(ends - now).unwrap());
        let holder = Holder::new(fingerprint);
        Some(holder.with_description(description).with_remaining(Some(left)))
    }

    pub(crate) async fn disturb(&self, fault: FaultKind) {
        match fault {
            FaultKind::ConnectionsKilled => self.proxy.disconnect().await,
            FaultKind::NetworkSilent => self.proxy.set_network_fault(NetworkFault::BlackHole),
            FaultKind::ServerStopped => self.running.read().await.server.pause(),
            FaultKind::ServerKilled => {
                let mut running = self.running.write().await;
                running.server.restart().await;
                running.direct = Direct::open(&running.server.url()).await;
            }
            FaultKind::ReadOnly => self.running.read().await.server.set_read_only(true).await,
            other => unreachable!("{other} is not in the hooks"),
        }
    }

    pub(crate) async fn heal(&self) {
        self.proxy.set_network_fault(NetworkFault::None);
        let running = self.running.read().await;
        running.server.resume();
        running.server.set_read_only(false).await;
    }

    pub(crate) async fn advance(&self, by: Duration) {
        let micros = by.as_nanos().div_ceil(1000);
        let sql = format!("UPDATE test_clock SET us = us + {micros}");
        self.running.read().await.direct.query(&sql).await.unwrap();
    }
}

impl Running {
    async fn new(server: Server) -> Self {
        let direct = Direct::open(&server.url()).await;
        Self { server, direct }
    }
}

/// Implements the harness on a [`Served`], which may be behind a pooler, for mutexes made in some way; with items that differ from the trait's.
macro_rules! harness {
    ($harness:ident, $name:literal, $time:expr, $backend:ty, $made:expr, $hooks:expr, $(behind $pooler:expr,)? { $($item:item)* }) => {
        struct $harness(family::Served);

        #[async_trait::async_trait]
        impl Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const TIME: Time = $time;
            const POOLED: bool = true;
            const HOOKS: &[Need] = $hooks;

            $($item)*

            async fn start() -> Self {
                let served = family::Served::start($time).await;
                $(let served = served.behind($pooler).await;)?
                Self(served)
            }

            fn timing(&self) -> Timing {
                match Self::TIME {
                    Time::Real => Timing::new(),
                    _ => Timing::exact().with_slack(family::POLLED),
                }
            }

            async fn connect(&self) -> $backend {
                match Self::TIME {
                    Time::Real => $made(self.0.connect(self.timing().ttl / 3).await),
                    // Time stands still during a call, so only a machine that stalls makes it late.
                    _ => self.connect_patiently().await,
                }
            }

            async fn connect_patiently(&self) -> $backend {
                $made(self.0.connect(Duration::from_secs(30)).await)
            }

            async fn probe(&self, key: &LockKey) -> Option<Holder> {
                self.0.probe(key).await
            }

            async fn disturb(&self, fault: FaultKind) {
                self.0.disturb(fault).await;
            }

            async fn heal(&self) {
                self.0.heal().await;
            }

            async fn advance_store(&self, by: Duration) {
                self.0.advance(by).await;
            }
        }
    };
}
