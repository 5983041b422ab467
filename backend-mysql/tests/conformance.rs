//! The suite on a real MariaDB, as a user with just the rights that are documented: in driven time, through a proxy that can fail, and with mutexes
//! made of other kinds of lock.

use std::convert::identity;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{
    AsMutex, Disturbance, Groups, Harness, Need, Subject, Time, Timing, suite,
};
use leasehold_core::{Description, Holder, LockKey};
use leasehold_mysql::mysql_async::prelude::Queryable;
use leasehold_mysql::mysql_async::{Conn, Opts};
use leasehold_mysql::{MysqlBackend, MysqlConfig};
use leasehold_testbed::{FaultProxy, MariaDb, Weather};
use tokio::sync::RwLock;

/// A server with the tables of the documented migration, and a proxy before it.
struct Server {
    mariadb: RwLock<MariaDb>,
    proxy: FaultProxy,
    /// The query for the time that leases go by.
    clock: &'static str,
}

/// The rights that the documentation asks for.
const RIGHTS: &str = include_str!("rights.sql");

const REAL_CLOCK: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// A grant takes a tenth of a millisecond. Without that, a lease would have no numbers to hand over with.
const DRIVEN_CLOCK: &str =
    "SELECT GREATEST(us, 100 + (SELECT MAX(token) FROM leasehold_stripe)) FROM test_clock";

impl Server {
    async fn start(clock: &'static str) -> Self {
        let mariadb = MariaDb::start().await;
        let migration = MysqlConfig::from_url(&mariadb.url()).unwrap().migration().unwrap();
        let sql = format!(
            "{migration} CREATE USER locker IDENTIFIED BY 'secret'; {RIGHTS}
             CREATE TABLE test_clock (us BIGINT) ENGINE = InnoDB; INSERT INTO test_clock {REAL_CLOCK};
             GRANT SELECT ON test_clock TO locker;"
        );
        mariadb.sql(&sql).await;
        let proxy = mariadb.proxy().await;
        Self { mariadb: RwLock::new(mariadb), proxy, clock }
    }

    async fn connect(&self, timeout: Duration) -> MysqlBackend {
        let url = self.mariadb.read().await.url_at("locker:secret", &self.proxy.address());
        let config = MysqlConfig::from_url(&url).unwrap().timeout(timeout).unwrap();
        MysqlBackend::connect_with(config.with_clock(self.clock)).await.unwrap()
    }

    /// A connection past the proxy and the backend.
    async fn open(&self) -> Conn {
        let options = Opts::from_url(&self.mariadb.read().await.url()).unwrap();
        Conn::new(options).await.unwrap()
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        let sql = format!(
            "SELECT fingerprint, ends - ({0}), description FROM leasehold_lease
             WHERE `key` = '{key}' AND place IS NULL AND ends > ({0}) ORDER BY ends LIMIT 1",
            self.clock
        );
        let row = self.open().await.query_first(sql).await.unwrap();
        let (fingerprint, left, description): (String, u64, Option<String>) = row?;
        let holder = Holder::new(fingerprint.parse().unwrap());
        let description = description.and_then(|text| Description::new(text).ok());
        Some(holder.with_description(description).with_remaining(Some(Duration::from_micros(left))))
    }

    async fn disturb(&self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Disconnect => self.proxy.disconnect().await,
            Disturbance::BlackHole => self.proxy.set_weather(Weather::BlackHole),
            Disturbance::Pause => self.mariadb.read().await.pause(),
            Disturbance::Restart => self.mariadb.write().await.restart().await,
            Disturbance::Heal => {
                self.proxy.set_weather(Weather::Fair);
                self.mariadb.read().await.resume();
            }
            other => unreachable!("{other:?}"),
        }
    }

    async fn advance_clock(&self, by: Duration) {
        // What grants took has passed for all.
        let sql = format!("UPDATE test_clock SET us = ({DRIVEN_CLOCK}) + {}", by.as_micros());
        self.open().await.query_drop(sql).await.unwrap();
    }
}

/// Without news, callers look again within a second; twice that, since a pause may have begun.
const POLLED: Duration = Duration::from_secs(2);

/// Implements the harness on a [`Server`], for mutexes made in some way, in some time.
macro_rules! harness {
    ($harness:ident, $name:literal, $time:ident, $clock:expr, $backend:ty, $made:expr, $groups:expr) => {
        struct $harness(Server);

        #[async_trait]
        impl Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const TIME: Time = Time::$time;
            const HOOKS: &[Need] = match Self::TIME {
                Time::Real => &[Need::BlackHole, Need::Disconnect, Need::Pause, Need::Restart],
                _ => &[Need::Restart],
            };
            const GROUPS: Groups = $groups;
            const LACKS: &[Need] = &[Need::Membership];
            const SUBJECTS: &[Subject] = match Self::TIME {
                Time::Real => &[Subject::Load, Subject::Network],
                time => time.subjects(),
            };

            async fn start() -> Self {
                Self(Server::start($clock).await)
            }

            fn timing(&self) -> Timing {
                match Self::TIME {
                    Time::Real => Timing::new(),
                    _ => Timing::exact().with_slack(POLLED),
                }
            }

            async fn connect(&self) -> $backend {
                $made(self.0.connect(self.timing().ttl / 3).await)
            }

            async fn connect_patiently(&self) -> $backend {
                $made(self.0.connect(Duration::from_secs(30)).await)
            }

            async fn witness(&self, key: &LockKey) -> Option<Holder> {
                self.0.witness(key).await
            }

            async fn disturb(&self, disturbance: Disturbance) {
                self.0.disturb(disturbance).await;
            }

            async fn advance_store(&self, by: Duration) {
                self.0.advance_clock(by).await;
            }
        }
    };
}

harness!(Driven, "mariadb", Driven, DRIVEN_CLOCK, MysqlBackend, identity, Groups::All);
harness!(Real, "mariadb, real time", Real, REAL_CLOCK, MysqlBackend, identity, Groups::All);
harness!(
    WriteLock,
    "mariadb, write lock",
    Driven,
    DRIVEN_CLOCK,
    AsMutex<MysqlBackend>,
    AsMutex::write_lock,
    Groups::OF_KIND
);

suite!(Driven);

mod real_time {
    use super::*;

    suite!(Real);
}

mod write_lock {
    use super::*;

    suite!(WriteLock);
}

#[test]
fn what_runs_here_is_documented() {
    const PAGE: &str = include_str!("../../docs/conformance.md");

    assert_documented::<Driven>(PAGE);
    assert_documented::<Real>(PAGE);
    assert_documented::<WriteLock>(PAGE);
}
