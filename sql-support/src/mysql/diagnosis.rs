//! Checks whether a server's settings can endanger locks.

use leasehold_core::Error;
use leasehold_core::backend::Finding;

use crate::remote::Rows;
use crate::request::time_of;

/// The oldest supported versions.
const OLDEST: [(&str, (u32, u32)); 2] = [("MariaDB", (10, 6)), ("MySQL", (8, 0))];

/// Evaluates the reply to [`texts::DIAGNOSE`](super::texts::DIAGNOSE).
pub(super) fn findings(rows: &Rows) -> Result<Vec<Finding>, Error> {
    let clock = time_of(rows.one("clock")?.number()?);
    let value = |name| rows.of(name).next().and_then(|mut row| row.text()).unwrap_or_default();

    let mut findings = vec![version(value("version")), role(value("read_only"))];
    let risks = risks(value);
    if risks.is_empty() {
        findings.push(Finding::ok("persistence", "a crash keeps all locks"));
    }
    findings.extend(risks.into_iter().map(|risk| Finding::warning("persistence", risk)));
    findings.push(Finding::clock(clock));
    Ok(findings)
}

fn version(version: &str) -> Finding {
    let [mariadb, mysql] = OLDEST;
    let (product, oldest) = if version.contains("MariaDB") { mariadb } else { mysql };
    let mut numbers = version.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number >= oldest {
        return Finding::ok("version", format!("{product} {version}"));
    }
    let (major, minor) = oldest;
    Finding::failed(
        "version",
        format!("{product} {version}; version {major}.{minor} or newer is required"),
    )
}

fn role(read_only: &str) -> Finding {
    if read_only == "OFF" {
        return Finding::ok("role", "primary");
    }
    let message = format!(
        "read_only is {read_only}, so the server grants locks only to administrators, if at all; use the URL of the primary"
    );
    Finding::warning("role", message)
}

fn risks<'a>(value: impl Fn(&'static str) -> &'a str) -> Vec<String> {
    let mut risks = Vec::new();
    let flush = value("innodb_flush_log_at_trx_commit");
    // MariaDB also supports 3, which flushes more often than 1.
    if !matches!(flush, "1" | "3") {
        risks.push(format!(
            "innodb_flush_log_at_trx_commit is {flush}, so a crash may free held locks; to keep them, set it to 1"
        ));
    }
    let sync = value("sync_binlog");
    // Crash recovery rolls back transactions that are not in the binary log.
    if value("log_bin") != "OFF" && sync != "1" {
        risks.push(format!(
            "sync_binlog is {sync}, so a crash may free held locks; to keep them, set it to 1"
        ));
    }
    let doublewrite = value("innodb_doublewrite");
    if matches!(doublewrite, "OFF" | "DETECT_ONLY") {
        risks.push(format!(
            "innodb_doublewrite is {doublewrite}, so a crash of the machine may damage the tables; set it to ON"
        ));
    }
    risks
}

#[cfg(test)]
mod tests {
    use leasehold_core::backend::Verdict;

    use super::*;

    const GOOD: [(&str, &str); 6] = [
        ("version", "8.0.36"),
        ("read_only", "OFF"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("log_bin", "ON"),
        ("sync_binlog", "1"),
        ("innodb_doublewrite", "ON"),
    ];

    /// Returns the findings for a server on which `name` has the given value.
    fn found(name: &str, value: &str) -> Vec<Finding> {
        let row = |(known, good): (&str, &str)| {
            let value = if known == name { value } else { good };
            vec![Some(known.to_owned()), Some(value.to_owned())]
        };
        let mut rows: Vec<_> = GOOD.into_iter().map(row).collect();
        rows.push(vec![Some("clock".to_owned()), Some("0".to_owned())]);
        findings(&Rows(rows)).unwrap()
    }

    #[test]
    fn each_risk_is_found() {
        for (name, value, verdict, says) in [
            ("", "", Verdict::Ok, ""),
            ("version", "5.7.44", Verdict::Failed, "8.0 or newer"),
            ("version", "10.5.1-MariaDB", Verdict::Failed, "10.6 or newer"),
            ("version", "11.4.2-MariaDB", Verdict::Ok, ""),
            ("read_only", "ON", Verdict::Warning, "read_only is ON"),
            ("innodb_flush_log_at_trx_commit", "2", Verdict::Warning, "trx_commit is 2"),
            ("innodb_flush_log_at_trx_commit", "3", Verdict::Ok, ""),
            ("sync_binlog", "0", Verdict::Warning, "sync_binlog is 0"),
            ("innodb_doublewrite", "OFF", Verdict::Warning, "doublewrite is OFF"),
        ] {
            let found = found(name, value);
            let found = found.iter().filter(|it| it.check() != "clock");
            let risks: Vec<_> = found.filter(|it| it.verdict() != Verdict::Ok).collect();

            assert_eq!(risks.len(), usize::from(verdict != Verdict::Ok), "{name}: {risks:?}");
            assert!(
                risks.iter().all(|it| it.verdict() == verdict && it.message().contains(says)),
                "{name}: {risks:?}"
            );
        }
    }
}
