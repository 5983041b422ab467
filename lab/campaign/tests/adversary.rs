//! The statements of the SQL stores withstand the adversary, and the adversary finds each flaw.

use std::time::{Duration, Instant};

use leasehold_campaign::adversary::{Flaw, Report, Scenario, Target, run};

/// The number of grants within which the adversary must find a flaw. On two idle cores, they take
/// about a minute.
const FOUND_WITHIN: u64 = 10_000;

/// How long an attack may take on a busy machine.
const LATEST: Duration = Duration::from_secs(180);

/// How long an attack on a flaw uses the same keys.
const SAME_KEYS: Duration = Duration::from_secs(10);

/// How long the statements must withstand the adversary: `LEASEHOLD_ADVERSARY_SECONDS`, or a few
/// seconds.
fn time() -> Duration {
    let seconds = std::env::var("LEASEHOLD_ADVERSARY_SECONDS");
    Duration::from_secs(seconds.map_or(8, |seconds| seconds.parse().expect("a number")))
}

async fn withstands<D: Target>(urls: &[String], scenario: Scenario) -> Report {
    let latest_end = Instant::now() + LATEST;
    let report = loop {
        let report = run::<D>(urls, scenario, None, time()).await;
        if report.is_broken() || report.is_enough() || Instant::now() >= latest_end {
            break report;
        }
    };

    println!("{scenario:?}: {report:?}");
    assert!(!report.is_broken(), "{report:?}");
    assert!(report.is_enough(), "{report:?}");
    report
}

async fn is_found<D: Target>(urls: &[String], flaw: Flaw, is_expected: fn(&Report) -> bool) {
    let latest_end = Instant::now() + LATEST;
    let mut grants = 0;
    let report = loop {
        // A flaw may leave all keys locked before a rule is broken, so the keys change.
        let left = latest_end.saturating_duration_since(Instant::now());
        let report = run::<D>(urls, Scenario::Purges, Some(flaw), left.min(SAME_KEYS)).await;
        grants += report.grants;
        if is_expected(&report) || grants >= FOUND_WITHIN || Instant::now() >= latest_end {
            break report;
        }
    };

    println!("{flaw:?}: {report:?}");
    assert!(is_expected(&report), "{report:?}");
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
        $($test:ident: $flaw:ident breaks $rule:path,)+
    }) => {
        #[cfg(feature = $feature)]
        mod $database {
            use leasehold_testbed::$server;

            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn purges_break_no_rule() {
                let server = $server::start().await;
                let report = withstands::<$driver>(&[server.url()], Scenario::Purges).await;
                assert!(report.purged > 20, "{report:?}");
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
        }
    };
}

attacks!(postgres, "postgres", Postgres, leasehold_postgres::Postgres, {
    grants_without_the_minimum_token_are_found: WithoutMinimumToken breaks has_disorder,
    a_token_that_is_drawn_in_values_is_found: TokenDrawnInValues breaks has_disorder,
    grants_on_a_moved_row_are_found: WithoutMoved breaks Report::is_broken,
    a_swap_without_a_version_is_found: WithoutVersion breaks has_overlaps,
});

attacks!(mysql, "mysql", MariaDb, leasehold_mysql::Mysql, {
    grants_without_the_minimum_token_are_found: WithoutMinimumToken breaks has_disorder,
    a_minimum_token_that_is_read_without_its_lock_is_found: MinimumTokenWithoutLock breaks has_disorder,
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

        let report = withstands::<Mysql>(&cluster.urls(), Scenario::Purges).await;
        assert!(report.purged > 20, "{report:?}");
        withstands::<Mysql>(&cluster.urls(), Scenario::Expiry).await;

        is_found::<Mysql>(&cluster.urls(), Flaw::WithoutMinimumToken, has_disorder).await;
    }
}
