//! `leasehold status`

use std::process::ExitCode;
use std::time::Duration;

use leasehold::{Holder, Inspection, LockKey, LockKind, MemberView, Waiter};
use serde_json::{Value, json};

use crate::args::Status;
use crate::exit::Failure;

pub(crate) async fn run(args: Status) -> Result<ExitCode, Failure> {
    let key = super::key(&args.key)?;
    let client = args.backend.connect().await?;
    let inspection = client.admin().inspect(&key).await?;
    if args.json {
        println!("{}", to_json(&key, &inspection));
    } else {
        print(&key, &inspection);
    }
    Ok(ExitCode::from(u8::from(!inspection.is_held())))
}

fn print(key: &LockKey, inspection: &Inspection) {
    if !inspection.is_held() {
        println!("{key}: free");
    }
    for holder in inspection.holders() {
        let token = holder.token().map(|token| format!(", token {token}")).unwrap_or_default();
        println!("{key}: held by {holder}{token}");
    }
    let listed: u64 = inspection.holders().iter().map(|holder| u64::from(holder.units())).sum();
    if inspection.units() > listed {
        println!("{key}: and by others, {} units in all", inspection.units());
    }
    if let Some(waiting) = inspection.waiting().filter(|waiting| *waiting > 0) {
        println!("{key}: {waiting} waiting");
    }
    for waiter in inspection.queue() {
        println!("{key}: waited for by {waiter}");
    }
    if let Some(token) = inspection.last_token() {
        println!("{key}: last token: at most {token}");
    }
    for member in inspection.members() {
        print_member(key, member);
    }
}

/// Prints a line for each lease on a member of a quorum, and one for a member without any.
fn print_member(key: &LockKey, member: &MemberView) {
    let (name, vote) = (member.name(), if member.has_vote() { "" } else { ", has no vote" });
    match member.inspection() {
        Ok(inspection) if inspection.is_held() => {
            for holder in inspection.holders() {
                println!("{key}: on {name}{vote}: held by {holder}");
            }
        }
        Ok(_) => println!("{key}: on {name}{vote}: free"),
        Err(failure) => println!("{key}: on {name}: {failure}"),
    }
}

pub(super) fn to_json(key: &LockKey, inspection: &Inspection) -> Value {
    let mut shown = json!({
        "key": key.as_str(),
        "held": inspection.is_held(),
        "kind": inspection.kind().map(LockKind::name),
        "units": inspection.units(),
        "holders": holders_to_json(inspection.holders()),
        "waiting": inspection.waiting(),
        "queue": inspection.queue().iter().map(waiter_to_json).collect::<Value>(),
        "last_token": inspection.last_token(),
    });
    if !inspection.members().is_empty() {
        shown["members"] = inspection.members().iter().map(member_to_json).collect();
    }
    shown
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

fn holders_to_json(holders: &[Holder]) -> Value {
    let holder = |holder: &Holder| {
        json!({
            "lease": holder.fingerprint().to_string(),
            "description": holder.description().map(ToString::to_string),
            "kind": holder.kind().map(LockKind::name),
            "units": holder.units(),
            "token": holder.token(),
            "held_ms": holder.held_for().map(millis),
            "remaining_ms": holder.remaining().map(millis),
        })
    };
    holders.iter().map(holder).collect()
}

fn waiter_to_json(waiter: &Waiter) -> Value {
    json!({
        "lease": waiter.fingerprint().to_string(),
        "description": waiter.description().map(ToString::to_string),
        "kind": waiter.kind().name(),
        "units": waiter.units(),
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
