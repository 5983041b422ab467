//! The statements of the SQL stores withstand the adversary, and the adversary finds each flaw.

use std::time::{Duration, Instant};

use leasehold_campaign::adversary::{Flaw, Report, Scenario, Target, overtake, run};
use leasehold_testbed::{DatabaseKind, DatabaseServer};

/// The adversary finds the flaws of these tests within 400 grants, which take less than a minute on a busy
/// machine.
const FOUND_WITHIN: Duration = Duration::from_secs(300);

/// How long an attack on a flaw uses the same keys.
const SAME_KEYS: Duration = Duration::from_secs(3);

/// How long the statements must withstand the adversary: `LEASEHOLD_ADVERSARY_SECONDS`, or a few
/// seconds.
fn time() -> Duration {
    let seconds = std::env::var("LEASEHOLD_ADVERSARY_SECONDS");
    Duration::from_secs(seconds.map_or(8, |seconds| seconds.parse().expect("a number")))
}

async fn withstands<D: Target>(urls: &[String], scenario: Scenario) {
    let report = run::<D>(urls, scenario, None, time()).await;
    println!("{scenario:?}: {report:?}");
    assert!(!report.is_broken(), "{report:?}");
    assert!(scenario.is_enough(&report), "{report:?}");
}

async fn is_found<D: Target>(urls: &[String], flaw: Flaw, is_expected: fn(&Report) -> bool) {
    let started = Instant::now();
    loop {
        // A flaw may leave all keys locked before a rule is broken, so the keys change.
        let report = run::<D>(urls, Scenario::Purges, Some(flaw), SAME_KEYS).await;
        println!("{flaw:?}: {report:?}");
        if is_expected(&report) {
            return;
        }
        assert!(started.elapsed() < FOUND_WITHIN, "{report:?}");
    }
}

/// A random attack finds these flaws only after about a thousand grants.
async fn is_overtaken<D: Target>(server: &DatabaseServer<impl DatabaseKind>, flaw: Flaw) {
    let (before, after) = overtake::<D>(server, None).await;
    assert!(after > before, "{after} follows {before}");

    let (before, after) = overtake::<D>(server, Some(flaw)).await;
    assert!(after <= before, "{after} follows {before} despite {flaw:?}");
}

fn has_disorder(report: &Report) -> bool {
    report.disorder > 0
}

fn has_overlaps(report: &Report) -> bool {
    report.overlaps > 0
}

/// Declares the tests of a database. Each flaw has a name and the rule that it must break.
macro_rules! attacks {
    ($database:ident, $feature:literal, $server:ident, $driver:path, {
        $overtaken:ident: $overtaken_flaw:ident is overtaken,
        $($test:ident: $flaw:ident breaks $rule:path,)+
    }) => {
        #[cfg(feature = $feature)]
        mod $database {
            use leasehold_testbed::$server;

            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn purges_break_no_rule() {
                let server = $server::start().await;
                withstands::<$driver>(&[server.url()], Scenario::Purges).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn expiry_breaks_no_rule() {
                let server = $server::start().await;
                withstands::<$driver>(&[server.url()], Scenario::Expiry).await;
            }

            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    let server = $server::start().await;
                    is_found::<$driver>(&[server.url()], Flaw::$flaw, $rule).await;
                }
            )+

            #[tokio::test(flavor = "multi_thread")]
            async fn $overtaken() {
                let server = $server::start().await;
                is_overtaken::<$driver>(&server, Flaw::$overtaken_flaw).await;
            }
        }
    };
}

attacks!(postgres, "postgres", Postgres, leasehold_postgres::Postgres, {
    a_token_that_is_drawn_in_values_is_found: TokenDrawnInValues is overtaken,
    grants_without_the_minimum_token_are_found: WithoutMinimumToken breaks has_disorder,
    grants_on_a_moved_row_are_found: WithoutMoved breaks Report::is_broken,
    a_swap_without_a_version_is_found: WithoutVersion breaks has_overlaps,
});

attacks!(mysql, "mysql", MariaDb, leasehold_mysql::Mysql, {
    a_minimum_token_that_is_read_without_its_lock_is_found: MinimumTokenWithoutLock is overtaken,
    grants_without_the_minimum_token_are_found: WithoutMinimumToken breaks has_disorder,
    a_swap_without_a_version_is_found: WithoutVersion breaks has_overlaps,
});

#[cfg(feature = "mysql")]
mod galera {
    use leasehold_mysql::Mysql;
    use leasehold_testbed::Galera;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn statements_on_random_nodes_break_no_rule_and_a_flaw_is_found() {
        let cluster = Galera::start(3).await;

        withstands::<Mysql>(&cluster.urls(), Scenario::Purges).await;
        withstands::<Mysql>(&cluster.urls(), Scenario::Expiry).await;

        is_found::<Mysql>(&cluster.urls(), Flaw::WithoutMinimumToken, has_disorder).await;
    }
}
