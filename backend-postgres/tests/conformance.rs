//! The suite on a real PostgreSQL, through a proxy that can fail, as a user with just the rights that are documented: in driven time, by a
//! clock of the tests, with mutexes made of other kinds of lock, too; in real time those cases that take a network, load or news.

use std::convert::identity;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::document::assert_documented;
use leasehold_conformance::{
    AsMutex, Disturbance, Groups, Harness, Need, Subject, Time, Timing, suite,
};
use leasehold_core::{Description, ErrorKind, Holder, LockKey};
use leasehold_postgres::tokio_postgres::{self, Client, NoTls};
use leasehold_postgres::{PostgresBackend, PostgresConfig};
use leasehold_testbed::{FaultProxy, Postgres, Weather, until_some};
use tokio::sync::RwLock;

/// A server with the tables of the documented migration, and a proxy before it.
struct Server {
    running: RwLock<Running>,
    proxy: FaultProxy,
    time: Time,
}

struct Running {
    postgres: Postgres,
    /// Past the proxy, as the superuser.
    admin: Client,
}

/// The rights that the documentation asks for.
const RIGHTS: &str = include_str!("rights.sql");

/// By the database's clock, in microseconds.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// By that of the tests.
const DRIVEN_NOW: &str = "(SELECT us FROM public.driven)";

const DRIVEN: &str = "CREATE TABLE public.driven AS SELECT 1700000000000000 AS us;
    GRANT SELECT ON public.driven TO locker;";

impl Server {
    async fn start(time: Time) -> Self {
        let postgres = Postgres::start().await;
        let admin = admin(&postgres).await;
        let config = PostgresConfig::from_url(&postgres.url()).unwrap();
        let migration = config.migration();
        let setup = format!("{migration} CREATE ROLE locker LOGIN; {RIGHTS} {DRIVEN}");
        admin.batch_execute(&setup).await.unwrap();
        let proxy = postgres.proxy().await;
        Self { running: RwLock::new(Running { postgres, admin }), proxy, time }
    }

    /// A backend that waits so long for replies. A machine that is busy may be slower than that.
    async fn connect(&self, timeout: Duration) -> PostgresBackend {
        let url = self.running.read().await.postgres.url_at("locker", &self.proxy.address());
        let mut config = PostgresConfig::from_url(&url).unwrap().timeout(timeout).unwrap();
        if self.time == Time::Driven {
            // News arrives when the server likes, and the clock must not move meanwhile.
            config = config.with_clock(DRIVEN_NOW).without_push();
        }
        until_some("connected", async || {
            match PostgresBackend::connect_with(config.clone()).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => None,
                connected => Some(connected.unwrap()),
            }
        })
        .await
    }

    async fn witness(&self, key: &LockKey) -> Option<Holder> {
        let now = if self.time == Time::Driven { DRIVEN_NOW } else { NOW };
        let sql = format!(
            "SELECT fingerprint, ends - {now}, description FROM leasehold_lease
             WHERE key = $1 AND place IS NULL AND ends > {now} ORDER BY ends LIMIT 1"
        );
        let running = self.running.read().await;
        let row = running.admin.query_opt(&sql, &[&key.as_str()]).await.unwrap()?;
        let left = Duration::from_micros(row.get::<_, i64>(1).try_into().unwrap());
        let description =
            row.get::<_, Option<String>>(2).map(|text| Description::new(text).unwrap());
        let holder = Holder::new(row.get::<_, String>(0).parse().unwrap());
        Some(holder.with_description(description).with_remaining(Some(left)))
    }

    async fn disturb(&self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Disconnect => self.proxy.disconnect().await,
            Disturbance::BlackHole => self.proxy.set_weather(Weather::BlackHole),
            Disturbance::Pause => self.running.read().await.postgres.pause(),
            Disturbance::Restart => {
                let mut running = self.running.write().await;
                running.postgres.restart().await;
                running.admin = admin(&running.postgres).await;
            }
            Disturbance::Heal => {
                self.proxy.set_weather(Weather::Fair);
                self.running.read().await.postgres.resume();
            }
            other => unreachable!("{other:?}"),
        }
    }

    async fn advance_store(&self, by: Duration) {
        let micros = i64::try_from(by.as_nanos().div_ceil(1000)).unwrap();
        let running = self.running.read().await;
        running.admin.execute("UPDATE public.driven SET us = us + $1", &[&micros]).await.unwrap();
    }
}

async fn admin(postgres: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

const FAILS: &[Need] = &[Need::BlackHole, Need::Disconnect, Need::Pause, Need::Restart];

/// Cases that hear of others.
const OF_NEWS: Groups = Groups::Named(&[
    "election",
    "fair",
    "hand_over",
    "lost",
    "mutual_exclusion",
    "revocation",
    "rw_lock",
    "semaphore",
    "waiting",
]);

/// All but the hand-over: a lease has spare numbers for the time that has passed, and this clock stands still.
const OF_STILL_CLOCK: Groups = Groups::Named(&[
    "bad_input",
    "cancellation",
    "election",
    "expiry",
    "fair",
    "fencing",
    "lock_delay",
    "lost",
    "multi_lock",
    "mutual_exclusion",
    "reentrancy",
    "release",
    "renewal",
    "retry",
    "revocation",
    "rw_lock",
    "semaphore",
    "striped",
    "together",
    "waiting",
    "model",
]);

/// Without news, callers look again within a second; twice that, since a pause may have begun.
const POLLED: Duration = Duration::from_secs(2);

macro_rules! harness {
    ($harness:ident, $name:literal, $backend:ty, $made:expr, $time:expr, $groups:expr, $subjects:expr) => {
        struct $harness(Server);

        #[async_trait]
        impl Harness for $harness {
            type Backend = $backend;

            const NAME: &str = $name;
            const TIME: Time = $time;
            const HOOKS: &[Need] = FAILS;
            const GROUPS: Groups = $groups;
            const SUBJECTS: &[Subject] = $subjects;

            async fn start() -> Self {
                Self(Server::start($time).await)
            }

            fn timing(&self) -> Timing {
                match Self::TIME {
                    Time::Real => Timing::new(),
                    _ => Timing::exact().with_slack(POLLED),
                }
            }

            async fn connect(&self) -> Self::Backend {
                let made = $made;
                made(self.0.connect(PostgresConfig::DEFAULT_TIMEOUT).await)
            }

            async fn connect_patiently(&self) -> Self::Backend {
                let made = $made;
                made(self.0.connect(Duration::from_secs(15)).await)
            }

            async fn witness(&self, key: &LockKey) -> Option<Holder> {
                self.0.witness(key).await
            }

            async fn disturb(&self, disturbance: Disturbance) {
                self.0.disturb(disturbance).await;
            }

            async fn advance_store(&self, by: Duration) {
                self.0.advance_store(by).await;
            }
        }
    };
}

harness!(
    Driven,
    "postgres, driven",
    PostgresBackend,
    identity,
    Time::Driven,
    OF_STILL_CLOCK,
    Time::Driven.subjects()
);
harness!(
    WriteLock,
    "postgres, driven write lock",
    AsMutex<PostgresBackend>,
    AsMutex::write_lock,
    Time::Driven,
    Groups::OF_KIND,
    Time::Driven.subjects()
);
harness!(
    OnePostgres,
    "postgres",
    PostgresBackend,
    identity,
    Time::Real,
    Groups::All,
    &[Subject::Load, Subject::Network]
);
harness!(
    WithNews,
    "postgres, news",
    PostgresBackend,
    identity,
    Time::Real,
    OF_NEWS,
    &[Subject::Store]
);

suite!(OnePostgres);

mod driven {
    use super::*;

    suite!(Driven);
}

mod write_lock {
    use super::*;

    suite!(WriteLock);
}

mod news {
    use super::*;

    suite!(WithNews);
}

#[test]
fn what_runs_here_is_documented() {
    const PAGE: &str = include_str!("../../docs/conformance.md");

    assert_documented::<OnePostgres>(PAGE);
    assert_documented::<Driven>(PAGE);
    assert_documented::<WriteLock>(PAGE);
    assert_documented::<WithNews>(PAGE);
}
