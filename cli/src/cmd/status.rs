//! `leasehold status`

use std::process::ExitCode;

use leasehold::{Holder, Inspection, LockKey, MemberView};
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
        println!("{key}: held by {holder}");
    }
    let listed: u64 = inspection.holders().iter().map(|holder| u64::from(holder.units())).sum();
    if inspection.units() > listed {
        println!("{key}: and by others, {} units in all", inspection.units());
    }
    if let Some(token) = inspection.last_token() {
        println!("{key}: no token so far is above {token}");
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

fn to_json(key: &LockKey, inspection: &Inspection) -> Value {
    let mut shown = json!({
        "key": key.as_str(),
        "held": inspection.is_held(),
        "units": inspection.units(),
        "holders": holders_to_json(inspection.holders()),
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
            "units": holder.units(),
            "remaining_ms": holder.remaining().map(|left| u64::try_from(left.as_millis()).ok()),
        })
    };
    holders.iter().map(holder).collect()
}
