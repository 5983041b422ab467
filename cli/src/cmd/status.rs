//! `leasehold status`

use std::ffi::OsString;
use std::process::ExitCode;

use leasehold::LockKind;
use leasehold::admin::{Inspection, MemberView, Waiter};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::help::Help;
use crate::key::Key;
use crate::obtain::holders_to_json;
use crate::out::{self, Report};
use crate::store::Backend;

/// Shows the holders of a lock and its waiters.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Name of the lock. Put `--` before a name that starts with `-`.
    key: OsString,

    #[command(flatten)]
    backend: Backend,
}

pub(crate) const HELP: Help = Help {
    status: "0    the lock is held\n1    the lock is free",
    examples: "leasehold status nightly\nleasehold status --json nightly",
    ..Help::CONNECTING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let key = Key::new(&args.key)?;
    let client = args.backend.connect().await?;
    let inspection = client.admin().inspect(key.as_lock_key()).await?;
    if out::style().json {
        out::print_json(&to_json(&key, &inspection))?;
    } else {
        report(&key, &inspection).print()?;
    }
    Ok(ExitCode::from(u8::from(!inspection.is_held())))
}

fn report(key: &Key, inspection: &Inspection) -> Report {
    let mut report = Report::new(key);
    if !inspection.is_held() {
        report.say("free");
    }
    for holder in inspection.holders() {
        report.say(format_args!("held by {}", holder));
    }
    let listed: u64 = inspection.holders().iter().map(|holder| u64::from(holder.units())).sum();
    if inspection.units() > listed {
        report.say(format_args!(
            "and by other holders; {} permits are held in total",
            inspection.units()
        ));
    }
    for waiter in inspection.queue() {
        report.say(format_args!("waited for by {waiter}"));
    }
    let unnamed = inspection.waiting().unwrap_or(0).saturating_sub(inspection.queue().len() as u64);
    if unnamed > 0 {
        report.say(format_args!("waited for by {unnamed} more"));
    }
    // The token of a holder is more useful than an upper bound.
    let is_told = inspection.holders().iter().any(|holder| holder.token().is_some());
    if let Some(token) = inspection.last_token().filter(|_| !is_told) {
        report.say(format_args!("last fencing token is at most {token}"));
    }
    for member in inspection.members() {
        report_member(&mut report, member);
    }
    report
}

/// A line for each lease on a member of a quorum, and one for a member without any.
fn report_member(report: &mut Report, member: &MemberView) {
    let (name, vote) = (member.name(), if member.has_vote() { "" } else { ", which has no vote" });
    match member.inspection() {
        Ok(inspection) if inspection.is_held() => {
            for holder in inspection.holders() {
                report.say(format_args!("on {name}{vote}: held by {}", holder));
            }
        }
        Ok(_) => report.say(format_args!("on {name}{vote}: free")),
        Err(failure) => report.say(format_args!("on {name}: {failure}")),
    }
}

pub(crate) fn to_json(key: &Key, inspection: &Inspection) -> Value {
    let mut shown = out::json_of(key);
    shown["held"] = inspection.is_held().into();
    shown["units"] = inspection.units().into();
    shown["holders"] = holders_to_json(inspection.holders());
    shown["kind"] = json!(inspection.kind().map(LockKind::name));
    shown["waiting"] = json!(inspection.waiting());
    shown["queue"] = inspection.queue().iter().map(waiter_to_json).collect();
    shown["last_token"] = json!(inspection.last_token());
    if !inspection.members().is_empty() {
        shown["members"] = inspection.members().iter().map(member_to_json).collect();
    }
    shown
}

fn waiter_to_json(waiter: &Waiter) -> Value {
    json!({
        "claim": waiter.fingerprint().to_string(),
        "description": waiter.description().map(ToString::to_string),
        "kind": waiter.kind().name(),
        "units": waiter.units(),
    })
}

fn member_to_json(member: &MemberView) -> Value {
    let (inspection, failure) = (member.inspection().ok(), member.inspection().err());
    json!({
        "name": member.name(),
        "vote": member.has_vote(),
        "holders": inspection.map(|it| holders_to_json(it.holders())),
        "last_token": inspection.and_then(Inspection::last_token),
        "failure": failure,
    })
}
