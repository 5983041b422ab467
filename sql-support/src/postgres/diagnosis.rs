//! Checks whether a server's settings can endanger locks.

use leasehold_core::Error;
use leasehold_core::backend::Finding;

use crate::remote::Rows;
use crate::request::time_of;

/// The oldest supported version, in the format of `server_version_num`.
const OLDEST: u32 = 12_00_00;

/// Evaluates the reply to [`texts::DIAGNOSE`](super::texts::DIAGNOSE).
///
/// `synchronous_commit` is not included, because each transaction on the tables sets it.
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
    Ok(findings)
}
