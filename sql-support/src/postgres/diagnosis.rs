//! Checks whether a server's settings can endanger locks.

use std::time::Duration;

use leasehold_core::Error;
use leasehold_core::backend::Finding;

use crate::remote::Rows;
use crate::request::time_of;

/// The oldest supported version, in the format of `server_version_num`.
const OLDEST: u32 = 12_00_00;

/// A snapshot is old after this time. Backups and reports that take less time do not need attention.
const OLD: Duration = Duration::from_secs(5 * 60);

/// Fewer dead rows take up at most a few megabytes.
const MANY_DEAD_ROWS: u64 = 10_000;

/// If the user cannot see when a transaction started, its snapshot is old after this number of
/// transactions, because each lock and each release is a transaction that leaves a dead row.
const MANY_TRANSACTIONS: u64 = MANY_DEAD_ROWS;

/// Evaluates the reply to [`texts::DIAGNOSE`](super::texts::DIAGNOSE).
///
/// `synchronous_commit` is not included, because Leasehold replaces `off` and `local` by `on`.
pub(super) fn findings(rows: &Rows) -> Result<Vec<Finding>, Error> {
    let mut row = rows.one("diagnosis")?;
    let version = row.text().unwrap_or_default().to_owned();
    let number: u32 = row.number()?;
    let is_standby = row.flag()?;
    let [is_read_only, has_fsync, has_full_pages] = [row.text(), row.text(), row.text()];
    let clock = time_of(row.number()?);

    let mut findings = vec![
        if number >= OLDEST {
            Finding::ok("version", format!("PostgreSQL {version}"))
        } else {
            Finding::failed(
                "version",
                format!("PostgreSQL {version}; version 12 or newer is required"),
            )
        },
        if is_standby {
            Finding::failed(
                "role",
                "standby, which does not grant locks; use the URL of the primary",
            )
        } else if is_read_only == Some("on") {
            let message = "default_transaction_read_only is on, so the server does not grant locks; set it to off";
            Finding::failed("role", message)
        } else {
            Finding::ok("role", "primary")
        },
    ];
    let risks = [
        (
            has_fsync,
            "fsync is off, so a crash of the machine may lose or damage all data; set it to on",
        ),
        (
            has_full_pages,
            "full_page_writes is off, so a crash of the machine may damage the tables; set it to on",
        ),
    ];
    let risks: Vec<_> = risks.into_iter().filter(|(value, _)| *value != Some("on")).collect();
    if risks.is_empty() {
        findings.push(Finding::ok("persistence", "a crash keeps all locks"));
    }
    findings.extend(risks.into_iter().map(|(_, risk)| Finding::warning("persistence", risk)));
    findings.push(Finding::clock(clock));
    findings.push(oldest_snapshot(rows)?);
    Ok(findings)
}

/// Names the oldest snapshot if it keeps many dead rows, which take up disk space and CPU time.
fn oldest_snapshot(rows: &Rows) -> Result<Finding, Error> {
    const CHECK: &str = "oldest snapshot";

    let dead: u64 = rows.one("dead")?.number()?;
    let Some(mut row) = rows.of("snapshot").next() else {
        return Ok(Finding::ok(CHECK, format!("none; {dead} dead rows")));
    };
    let [kind, name, application] = [(); 3].map(|()| row.text().unwrap_or_default());
    let transactions: u64 = row.number()?;
    let age = row.optional::<u64>()?.map(Duration::from_secs);

    let age_text = match age {
        Some(age) => format!("{} s", age.as_secs()),
        None => format!("{transactions} transactions"),
    };
    let is_old = age.map_or(transactions >= MANY_TRANSACTIONS, |age| age >= OLD);
    if dead < MANY_DEAD_ROWS || !is_old {
        return Ok(Finding::ok(CHECK, format!("{age_text} old; {dead} dead rows")));
    }
    let (holder, remedy) = match kind {
        "replica" => {
            (format!("replica {application:?}"), "end the long query on the replica".to_owned())
        }
        "slot" => (
            format!("replication slot {name:?}"),
            "end the long query on its replica, or drop the slot".to_owned(),
        ),
        "prepared" => (
            format!("prepared transaction {name:?}"),
            "end it with COMMIT PREPARED or ROLLBACK PREPARED".to_owned(),
        ),
        _ => (
            format!("pid {name}, application {application:?}"),
            format!("end its transaction, for example with SELECT pg_terminate_backend({name})"),
        ),
    };
    let hint = match age {
        Some(_) => "",
        None => "; users with pg_monitor see the time instead of the number of transactions",
    };
    let message = format!(
        "{holder} is {age_text} old and keeps {dead} dead rows, so locks are slower and the table grows; {remedy}{hint}"
    );
    Ok(Finding::warning(CHECK, message))
}

#[cfg(test)]
mod tests {
    use leasehold_core::backend::Verdict;

    use super::*;

    /// Returns the finding about this many dead rows and a snapshot with these columns.
    fn found(dead: &str, snapshot: &[Option<&str>]) -> Finding {
        let row = |columns: &[Option<&str>]| {
            columns.iter().map(|column| column.map(str::to_owned)).collect::<Vec<_>>()
        };
        let mut rows = vec![row(&[Some("dead"), Some(dead)])];
        if !snapshot.is_empty() {
            rows.push(row(&[&[Some("snapshot")], snapshot].concat()));
        }
        oldest_snapshot(&Rows(rows)).unwrap()
    }

    #[test]
    fn an_old_snapshot_is_a_warning_only_if_it_keeps_many_dead_rows() {
        let session = |age| [Some("session"), Some("4711"), Some("pg_dump"), Some("12000"), age];
        let verdict = |dead, age| found(dead, &session(age)).verdict();

        assert_eq!(verdict("10000", Some("300")), Verdict::Warning);
        assert_eq!(verdict("10000", None), Verdict::Warning, "the time is not visible");
        assert_eq!(verdict("10000", Some("299")), Verdict::Ok);
        assert_eq!(verdict("9999", Some("300")), Verdict::Ok);
        assert_eq!(found("10000", &[]).verdict(), Verdict::Ok);
    }

    #[test]
    fn a_warning_names_the_snapshot_and_the_next_step() {
        for (kind, name, age, says) in [
            ("session", "4711", Some("754"), "pid 4711, application \"app\" is 754 s old"),
            ("session", "4711", Some("754"), "pg_terminate_backend(4711)"),
            ("session", "4711", None, "is 12000 transactions old"),
            ("session", "4711", None, "users with pg_monitor see the time"),
            ("replica", "4711", None, "replica \"app\""),
            ("slot", "standby", None, "replication slot \"standby\""),
            ("slot", "standby", None, "drop the slot"),
            ("prepared", "x'1", Some("754"), "prepared transaction \"x'1\""),
            ("prepared", "x'1", Some("754"), "ROLLBACK PREPARED"),
        ] {
            let finding =
                found("50000", &[Some(kind), Some(name), Some("app"), Some("12000"), age]);

            assert!(finding.message().contains(says), "{}", finding.message());
            assert!(finding.message().contains("50000 dead rows"), "{}", finding.message());
        }
    }
}
